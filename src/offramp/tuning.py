"""Search for the settings that validate best: `offramp tune`.

Optuna proposes, the ordinary training loop answers with the validation score of the epoch it kept, the mean over the
exits it trained. Test texts are never read. Everything is in one folder: `tune.db` (every trial, SQLite), the run under
way, `best.toml` and, with matplotlib, `importance.svg`.

A search that was killed goes on: the trial under way resumes from its checkpoint. What is proposed depends on the seed,
on the trial's number and on the trials before it, so a search in pieces is the search in one go.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from offramp.classifier import Classifier
from offramp.cluster.session import Cluster
from offramp.config import Config, changes, override, to_mapping
from offramp.data.sources import Table
from offramp.data.tokens import TruncationWarning
from offramp.disk import replace_file
from offramp.errors import ConfigError, MissingExtra, TrainingError
from offramp.exits.predecessor import ExitsBeginAnew
from offramp.lock import held
from offramp.optimise.journal import Watch
from offramp.optimise.run_folder import fingerprint
from offramp.report.importance import importance_bars
from offramp.spaces import Range, Space
from offramp.trials import Trials, trials

STORE = "tune.db"
STUDY = "tune"


@dataclass(frozen=True)
class Trial:
    """One set of settings and what it scored."""

    number: int
    settings: dict[str, Any]
    score: float | None  # None: the training broke off


@dataclass(frozen=True)
class Search:
    """What a search has found so far."""

    metric: str
    best: Trial
    trials: list[Trial]
    importance: dict[str, float]  # share of each setting in the scores' differences; empty with too few trials

    def to_json(self) -> dict[str, Any]:
        """The search as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """What is tuned, on which texts, and how long."""

    config: Config  # the recipe with the settings that are not searched
    space: Space
    train: Table
    validation: Table | None = None
    trials: int | None = None  # in all, those of earlier calls included; None: the whole grid, or 20
    seeds: int = 1  # a trial is trained so many times, and its score is the mean

    def __post_init__(self) -> None:
        for name, value in (("trials", self.trials), ("seeds", self.seeds)):
            if value is not None and value < 1:
                raise ConfigError(f"`{name}` should be 1 or more. Found {value}.")

    def wanted(self) -> int:
        """How many trials there are to be."""
        most = self.space.size() if self.space.grid else None
        return min(self.trials or most or 20, most or self.trials or 20)

    def facts(self) -> dict[str, Any]:
        """What a search is: a folder holds one search only."""
        held = [] if self.validation is None else self.validation.examples
        fields = {key: asdict(v) if isinstance(v, Range) else list(v) for key, v in self.space.fields.items()}
        return {
            "config": to_mapping(self.config),
            "space": {"fields": fields, "grid": self.space.grid},
            "seeds": self.seeds,
            "data": fingerprint(self.train.examples, held),
        }


def tune(
    plan: Plan,
    folder: Path,
    watch: Watch | None = None,
    told: Callable[[Trial, int], None] | None = None,
    cluster: Cluster | None = None,
) -> Search:
    """Run the trials that are missing and write what was found; `told` hears of each trial and of how many there are.

    A trial whose training breaks off, or whose settings do not go together, counts as one without a score; where no
    trial has a score, its reason is raised. On a `cluster` several trials are under way at a time, and nobody watches
    their updates; the store is this process' alone, so a search may go on with a cluster or without.
    """
    optuna = _optuna()
    with held(folder):
        study = _open(optuna, plan, folder)
        with trials(_score, plan, watch, cluster) as under_way:
            _run(optuna, study, plan, folder, under_way, told)
        return _found(optuna, study, plan, folder)


def _run(
    optuna: Any, study: Any, plan: Plan, folder: Path, trials: Trials, told: Callable[[Trial, int], None] | None
) -> None:
    while True:
        while trials.room and (begun := len(_ended(optuna, study)) + len(trials.under_way)) < plan.wanted():
            number, settings = _next(optuna, study, plan, trials.under_way)
            trials.begin(number, settings, _home(folder, number), begun == 0)
        if not trials.under_way:
            return
        settings_of = dict(trials.under_way)
        number, found = trials.ended()
        if found.stops and found.error is not None:
            raise found.error
        state = optuna.trial.TrialState.FAIL if found.score is None else optuna.trial.TrialState.COMPLETE
        study.tell(number, found.score, state)
        shutil.rmtree(_home(folder, number), ignore_errors=True)
        if told:
            told(Trial(number, dict(settings_of[number]), found.score), plan.wanted())
        ended = len(_ended(optuna, study))
        if found.error is not None and not _scored(optuna, study) and ended >= min(3, plan.wanted()):
            raise found.error  # three times in a row is no accident


def best_config(plan: Plan, search: Search) -> Config:
    """The configuration of the best trial."""
    return override(plan.config, _written(search.best.settings))


def as_recipe(config: Config, search: Search) -> str:
    """The best configuration as a recipe's TOML: only what differs from the defaults, and no seed."""
    about = f"From {config.recipe}, tuned: validation {search.metric} {search.best.score:.4f}."
    lines = [f"about = {json.dumps(about, ensure_ascii=False)}"]
    different = changes(replace(config, recipe=""))
    different.pop("optimise.seed", None)
    for stage, fields in itertools.groupby(different.items(), key=lambda item: item[0].partition(".")[0]):
        lines += ["", f"[{stage}]"]
        lines += [f"{key.partition('.')[2]} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields]
    return "\n".join(lines) + "\n"


# --- the trials


def _score(plan: Plan, settings: Mapping[str, Any], home: Path, watch: Watch | None, first: bool) -> float:
    """The mean validation score over exits and seeds; a run that was killed is resumed."""
    scores = []
    for seed in range(plan.config.optimise.seed, plan.config.optimise.seed + plan.seeds):
        config = override(plan.config, [*_written(settings), f"optimise.seed={seed}"])
        classifier = Classifier(config.recipe, settings=changes(config))
        with warnings.catch_warnings():
            if not first:
                for told in (TruncationWarning, ExitsBeginAnew):  # by the first trial
                    warnings.simplefilter("ignore", told)
            place = home / f"seed-{seed}"
            result = classifier.fit_table(plan.train, plan.validation, place, place.exists(), watch=watch)
        scores.append(mean(result.by_exit.values()) if result.by_exit else result.score)
    return mean(scores)


def _next(optuna: Any, study: Any, plan: Plan, busy: Container[int]) -> tuple[int, dict[str, Any]]:
    """The trial that a kill left under way, which is none of the `busy` ones, or a new one."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if trial.number in busy:
            continue
        if trial.params.keys() == plan.space.fields.keys():
            return trial.number, dict(trial.params)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # killed while it was being proposed
    number = len(study.get_trials(deepcopy=False))
    # A sampler's own generator is not kept in the store: with one seed for all it would propose the same again.
    seed = random.Random(f"{plan.config.optimise.seed} {number}").getrandbits(31)
    study.sampler = optuna.samplers.TPESampler(seed=seed)
    if plan.space.grid and not study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,)):
        study.enqueue_trial(_untried(optuna, study, plan))
    trial = study.ask({key: _distribution(optuna, values) for key, values in plan.space.fields.items()})
    return trial.number, dict(trial.params)


def _untried(optuna: Any, study: Any, plan: Plan) -> dict[str, Any]:
    """The next combination of a grid, in an order that the seed shuffles."""
    keys = list(plan.space.fields)
    lists = [values for values in plan.space.fields.values() if isinstance(values, tuple)]
    combinations = [dict(zip(keys, values, strict=True)) for values in itertools.product(*lists)]
    random.Random(plan.config.optimise.seed).shuffle(combinations)
    under_way = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    tried = [trial.params for trial in (*_ended(optuna, study), *under_way)]
    return next(one for one in combinations if one not in tried)


def _distribution(optuna: Any, values: Range | tuple[Any, ...]) -> Any:
    if isinstance(values, tuple):
        return optuna.distributions.CategoricalDistribution(values)
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    return kind(values.low, values.high, log=values.log)


def _ended(optuna: Any, study: Any) -> list[Any]:
    """Trials that were trained, to the end or until they broke off; not one that was killed while it was proposed."""
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL)
    return [trial for trial in study.get_trials(deepcopy=False, states=states) if trial.params]


def _scored(optuna: Any, study: Any) -> list[Any]:
    found: list[Any] = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return found


# --- the folder


def _open(optuna: Any, plan: Plan, folder: Path) -> Any:
    """The study of a folder, which must be a new one or the same as before."""
    facts = json.loads(json.dumps(plan.facts()))
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STORE).exists():
        raise ConfigError(f"`{folder}` should be empty or hold a search. It holds other files: choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            storage=f"sqlite:///{(folder / STORE).resolve()}",
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:  # the file system's errors and those of the database
        raise ConfigError(f"A search should have a folder that can be written. Found `{folder}`: {error}.") from error
    before = study.user_attrs.get("facts")
    if before is None:
        study.set_user_attr("facts", facts)
    elif before != facts:
        changed = sorted(key for key in facts if before.get(key) != facts[key])
        raise ConfigError(
            f"A search should go on with the settings and texts it began with. Changed: {', '.join(changed)}. "
            "Use the same, or another folder."
        )
    for left in folder.glob("trial-*"):
        number = left.name.removeprefix("trial-")
        under_way = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        if not any(number == f"{trial.number:04}" for trial in under_way):
            shutil.rmtree(left)
    return study


def _home(folder: Path, number: int) -> Path:
    return folder / f"trial-{number:04}"


def _found(optuna: Any, study: Any, plan: Plan, folder: Path) -> Search:
    if not _scored(optuna, study):
        raise TrainingError("A search should have a trial that trained to its end. Found none: look at the settings.")
    trials = [Trial(trial.number, dict(trial.params), trial.value) for trial in _ended(optuna, study)]
    best = max((trial for trial in trials if trial.score is not None), key=lambda t: (t.score or 0.0, -t.number))
    shares = _importance(optuna, study)
    search = Search(plan.config.optimise.metric, best, trials, shares)
    replace_file(folder / "best.toml", as_recipe(best_config(plan, search), search))
    if shares:
        try:
            picture = importance_bars(shares, f"share in the differences of {search.metric} over {len(trials)} trials")
        except MissingExtra:
            return search
        replace_file(folder / "importance.svg", picture)
    return search


def _importance(optuna: Any, study: Any) -> dict[str, float]:
    """Each setting's share of the variance of the scores (fANOVA); nothing where all trials scored the same."""
    scores = {trial.value for trial in _scored(optuna, study)}
    if len(scores) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {key: float(share) for key, share in found.items()}


def _written(settings: Mapping[str, Any]) -> Sequence[str]:
    return [f"{key}={json.dumps(value) if isinstance(value, bool) else value}" for key, value in settings.items()]


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtra("optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it tells of every trial otherwise
    return optuna

"""Verbs: `offramp VERB THING`.

Results go to standard output, progress and warnings to standard error. Exit codes: 0 done, 2 misuse, 1 failure,
130 interrupted, 143 terminated. Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from offramp import __version__, hub_cli, split_cli
from offramp.cluster.options import Address, OnRay, Workers, cluster_of
from offramp.config import DEFAULT_RECIPE
from offramp.errors import Interrupted, OfframpError, UserError, need
from offramp.process import Verbs, as_process
from offramp.serve.cli import serve
from offramp.study.cli import app as study_app

if TYPE_CHECKING:
    from rich.console import Console

    from offramp.classifier import Classifier
    from offramp.data.sources import Table
    from offramp.optimise.loop import Result
    from offramp.report.curve import Curve
    from offramp.report.exit_map import ExitMap
    from offramp.report.tag_metrics import Evaluated
    from offramp.runtime.predictions import Answered
    from offramp.runtime.tag_predictions import TagPrediction


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"offramp {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="offramp",
    cls=Verbs,
    help="Text classifiers with an exit after every layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def offramp(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    """Text classifiers with an exit after every layer."""


app.add_typer(study_app)
app.command()(serve)
app.command()(split_cli.split)
app.command()(hub_cli.card)
app.command()(hub_cli.push)

TextColumns = Annotated[
    list[str] | None, typer.Option("--text", help="Column that holds the text; twice for a pair of texts.")
]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column that holds the label.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
PolicyName = Annotated[
    str | None, typer.Option("--policy", help="When a text leaves: never, fixed, confidence, ... (docs/policies).")
]
Threshold = Annotated[float | None, typer.Option(help="Score of the policy from which a text leaves.")]
Threads = Annotated[int | None, typer.Option(help="Threads to run with; one per core unless given.")]
Depth = Annotated[int | None, typer.Option(help="`fixed`: the depth at which every text leaves.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `offramp train` or `export` wrote.")]
TrainedFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `offramp train` wrote.")]


class Format(StrEnum):
    """What lines hold: the names of `offramp.data.rows.FORMATS`, which are not imported for `--help`."""

    TEXT = "text"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


@app.command()
def train(
    data: Annotated[
        str, typer.Argument(metavar="TRAIN", help="CSV, TSV, JSONL or Parquet file, or a data set's name.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and its report.")],
    validation: Annotated[str | None, typer.Option(help="Labelled texts that choose the best epoch.")] = None,
    recipe: Annotated[str, typer.Option(help="Named configuration; `offramp recipes` lists them.")] = DEFAULT_RECIPE,
    backbone: Annotated[str | None, typer.Option(help="minilm-l6, a Hugging Face name, or a folder.")] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: optimise.epochs=3.")] = None,
    track: Annotated[
        list[str] | None, typer.Option("--track", help="Tell tensorboard, wandb or trackio; more than once for more.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in --out.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace the model in --out.")] = False,
    as_json: Json = False,
) -> None:
    """Fine-tune a classifier on labelled texts."""
    changed = [*(settings or []), *([f"optimise.track={json.dumps(track)}"] if track else [])]
    result, validated = _train(data, out, validation, recipe, backbone, text, label, seed, changed, resume, overwrite)
    report = out / "report.html"
    if as_json:
        found: dict[str, Any] = {"out": str(out), "report": str(report), **asdict(result)}
        _print_json(found | {"validation": validated.to_json()})
        return
    typer.echo(
        f"epoch {result.best_epoch} of {result.epochs} is kept: validation {result.metric} {result.score:.4f} "
        f"({validated.n} texts, {result.seconds:.0f} s)"
    )
    if len(result.by_exit) > 1:
        mean = sum(result.by_exit.values()) / len(result.by_exit)
        each = "  ".join(f"{depth}: {score:.4f}" for depth, score in result.by_exit.items())
        typer.echo(f"exits   {each}  mean {mean:.4f}")
    typer.echo(f"model   {out}\nreport  {report}")


@app.command()
def evaluate(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Labelled texts.")],
    policy: PolicyName = None,
    threshold: Threshold = None,
    depth: Depth = None,
    threads: Threads = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    map_depth: Annotated[int | None, typer.Option("--map", help="Exit whose representations the page maps.")] = None,
    with_curve: Annotated[
        bool, typer.Option("--curve", help="Also run the policy at many thresholds: accuracy, layers, time per text.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score a model on labelled texts, under a policy and exit by exit."""
    _check_there(model, data)
    classifier = _load(model, policy, threshold, depth, threads)
    _check_map(classifier, map_depth, report)
    table = _read(classifier, data, text, label)
    curve = classifier.curve(table) if with_curve else None  # first, because it may be refused
    evaluation = classifier.evaluate(table)
    if report:
        title = f"{model.name} on {Path(data).name}"
        _write_report(report, title, classifier, evaluation, model, table, map_depth, curve)
    certificate = classifier.certificate
    if as_json:
        found = evaluation.to_json()
        found |= {} if certificate is None else {"certificate": json.loads(certificate.to_json())}
        _print_json(found | ({} if curve is None else {"curve": curve.to_json()}))
        return
    _print_evaluation(evaluation)
    if certificate is not None:
        typer.echo(certificate.promises())
    if curve is not None:
        _print_curve(curve)


@app.command()
def calibrate(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Held-out texts, labelled unless it is a disagreement.")],
    max_drop: Annotated[float | None, typer.Option(help="Most accuracy that may be lost; 0.01 unless given.")] = None,
    max_disagreement: Annotated[
        float | None, typer.Option(help="Largest share of answers that may differ from the full model's.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the promise is.")] = 0.95,
    budget_layers: Annotated[float | None, typer.Option(help="Most layers to be run, on average.")] = None,
    policy: Annotated[str, typer.Option(help="Policy whose thresholds are chosen; `auto` tries all.")] = "auto",
    threads: Threads = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    as_json: Json = False,
) -> None:
    """Choose when texts may leave, with a guarantee, from texts the model was not trained on."""
    from offramp.lock import held

    _check_there(model, data)
    classifier = _load(model, threads=threads, certificate=False)
    table = _read(classifier, data, text, label, labels_required=max_disagreement is None)
    with held(model):
        found = classifier.calibrate(table, max_drop, max_disagreement, confidence, budget_layers, policy)
        classifier.save_certificate(model)
    if as_json:
        _print_json(json.loads(found.to_json()))
        return
    limits = ", ".join(f"{depth}: {threshold:.4g}" for depth, threshold in found.thresholds.items())
    typer.echo(f"policy  {found.policy}" + (f", thresholds {limits}" if limits else ""))
    typer.echo(found.promises())


@app.command()
def export(
    model: TrainedFolder,
    out: Annotated[Path, typer.Option(help="Folder for the exported model.")],
    int8: Annotated[bool, typer.Option("--int8", help="Weights and activations of the layers in 8 bits.")] = False,
    data: Annotated[str | None, typer.Option(help="Labelled texts to compare accuracies on; needed by --int8.")] = None,
    max_drop: Annotated[float, typer.Option(help="Refuse int8 that loses more accuracy than this.")] = 0.01,
    exits: Annotated[
        str | None, typer.Option(help="Depths to export, as 2,4,6; those that the certificate reads unless given.")
    ] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    as_json: Json = False,
) -> None:
    """Write a model as ONNX segments, for onnxruntime."""
    if int8 and data is None:
        raise UserError("`--int8` should come with `--data FILE`: labelled texts on which the loss is measured.")
    from offramp.exits.folder import check_empty

    _check_there(model, data)
    check_empty(out)
    classifier = _load(model)
    table = None if data is None else _read(classifier, data, text, label)
    depths = _exits(classifier, exits)
    found = classifier.export(out, int8, depths, table, max_drop)
    if as_json:
        _print_json({"out": str(out), **found})
        return
    for name, value in found.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        typer.echo(f"{name.replace('_', ' '):<16} {shown}")
    if exits is None and depths is not None:
        kept = ", ".join(map(str, sorted({*depths, classifier.engine_.depth})))
        typer.echo(f"Exits exported: {kept}, which are those that the certificate reads; `--exits` names others.")
    if classifier.certified_ is not None:
        typer.echo(f"The certificate is about the model in torch: run `offramp calibrate {out} DATA` again.")
    typer.echo(f"model {out}")


@app.command()
def predict(
    model: ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="One text per line, or CSV, TSV, JSONL, Parquet.")
    ] = "-",
    policy: PolicyName = None,
    threshold: Threshold = None,
    depth: Depth = None,
    threads: Threads = None,
    text: TextColumns = None,
    format: Annotated[
        Format | None,
        typer.Option(help="What FILE or standard input holds; as its suffix says, or text, unless given."),
    ] = None,
    on_ray: OnRay = False,
    address: Address = None,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for texts and answers: .csv, .tsv or .jsonl; with `--ray`, a folder of Parquet files."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --out.")] = False,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="`--ray`: the texts beside their answers.")] = False,
    block: Annotated[int | None, typer.Option(help="`--ray`: texts that a worker answers and then writes.")] = None,
    as_json: Json = False,
) -> None:
    """Answer texts, in their order, as a stream; or on Ray, into a folder that a killed command goes on with."""
    from offramp.answers import check_file, write_answers
    from offramp.data.presence import check_texts

    only = {"--keep-text": keep_text, "--block": block}
    cluster = cluster_of(on_ray, address, workers, threads, only)
    if cluster is not None and out is None:
        raise UserError("`--ray` should come with `--out DIR`: a folder for the answers.")
    if overwrite and (cluster is not None or out is None):
        raise UserError("`--overwrite` should come with `--out FILE` and without `--ray`, which goes on with a folder.")
    if cluster is None and out is not None:
        check_file(out, overwrite)
    _check_there(model)
    check_texts(file)
    classifier = _load(model, policy, threshold, depth, threads)
    if cluster is not None and classifier.tags_:
        raise UserError("`--ray` should be asked of a model that gives labels to texts. Found one that tags words.")
    if cluster is not None and out is not None:
        from offramp.cluster.cli import answer
        from offramp.cluster.predict import BLOCK, Job

        chosen = {"policy": policy, "threshold": threshold, "depth": depth}
        size = BLOCK if block is None else block
        job = Job(model, file, out, tuple(text or ()), chosen, keep_text, size, format)
        answer(job, classifier, cluster, as_json)
        return
    from offramp.data.sources import stream

    source = sys.stdin.buffer if file == "-" else Path(file)
    examples = stream(source, text=text or classifier.config_.data.text, tags=classifier.tags_, format=format)
    if out is not None:
        rows = write_answers(out, examples, classifier.stream)
        if as_json:
            _print_json({"out": str(out), "rows": rows})
        else:
            typer.echo(f"{rows} texts answered\nanswers {out}")
        return
    for found in classifier.stream(examples):
        if as_json:
            _print_json(asdict(found))
        else:
            typer.echo(f"{_answer(classifier, found)}\t{found.probability:.4f}\t{found.depth}")


@app.command()
def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Labelled texts to train on.")],
    out: Annotated[Path, typer.Option(help="Folder for the search; the same command goes on with it.")],
    validation: Annotated[str | None, typer.Option(help="Labelled texts that score; held out unless given.")] = None,
    space: Annotated[
        str, typer.Option(help="What is searched: auto, lacon-grid, acl-weights or a TOML file.")
    ] = "auto",
    trials: Annotated[int | None, typer.Option(help="Trials in all; 20, or the whole grid, unless given.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each trial; the mean of their scores counts.")] = 1,
    recipe: Annotated[str, typer.Option(help="Named configuration that is tuned.")] = DEFAULT_RECIPE,
    backbone: Annotated[str | None, typer.Option(help="minilm-l6, a Hugging Face name, or a folder.")] = None,
    text: TextColumns = None,
    label: LabelColumn = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the search and of the first run of each trial.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: optimise.epochs=3.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search in --out, as without this.")] = False,
    on_ray: OnRay = False,
    address: Address = None,
    workers: Workers = None,
    threads: Annotated[int | None, typer.Option(help="`--ray`: threads of each worker; 1 unless given.")] = None,
    as_json: Json = False,
) -> None:
    """Search for the settings that validate best; killed, the same command goes on."""
    from offramp.config import load_recipe, override
    from offramp.data.presence import check_data
    from offramp.spaces import space_of

    cluster = cluster_of(on_ray, address, workers, threads, {"--threads": threads})
    changed = [*(settings or []), *([f"encoder.backbone={backbone}"] if backbone else [])]
    changed += [f"data.text={json.dumps(text, ensure_ascii=False)}"] if text else []
    changed += [f"data.label={label}"] if label else []
    changed += [f"optimise.seed={seed}"] if seed is not None else []
    config = override(load_recipe(recipe), changed)
    searched = space_of(space, config)
    need("optuna", "tune")
    check_data(data)
    check_data(validation)

    from offramp.data.sources import columns, read
    from offramp.progress import ProgressBar
    from offramp.tuning import Plan, Trial
    from offramp.tuning import tune as search

    how = columns(config.data)
    held = read(validation, **how) if validation else None
    plan = Plan(config, searched, read(data, **how), held, trials, seeds)

    def told(trial: Trial, wanted: int) -> None:
        score = "broke off" if trial.score is None else f"{trial.score:.4f}"
        _say(f"trial {trial.number + 1} of {wanted}: {score}  {_settings(trial.settings)}")

    with ProgressBar(_console()) as bar:
        found = search(plan, out, bar, told, cluster)
    if as_json:
        _print_json({"out": str(out), **found.to_json()})
        return
    typer.echo(f"best of {len(found.trials)} trials: validation {found.metric} {found.best.score:.4f}")
    for key, value in found.best.settings.items():
        share = f"  importance {found.importance[key]:.2f}" if key in found.importance else ""
        typer.echo(f"--set {key}={value}{share}")
    typer.echo(f"settings {out / 'best.toml'}")


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show this recipe with every field written out.")] = None,
    as_json: Json = False,
) -> None:
    """List the named configurations, or show one."""
    from offramp.config import load_recipe, to_mapping, to_toml
    from offramp.config import recipes as known

    if name is not None:
        config = load_recipe(name)
        if as_json:
            _print_json(to_mapping(config))
        else:
            typer.echo(to_toml(config), nl=False)
        return
    found = known()
    if as_json:
        _print_json([{"name": key, "about": about} for key, about in found.items()])
        return
    width = max(len(key) for key in found)
    for key, about in found.items():
        typer.echo(f"{key:<{width}}  {about}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and its report.")] = Path("offramp-demo"),
    recipe: Annotated[str, typer.Option(help="Named configuration.")] = DEFAULT_RECIPE,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: optimise.epochs=3.")] = None,
    as_json: Json = False,
) -> None:
    """Train on the built-in support-desk messages, calibrate, leave early on unseen ones, and write the report."""
    from offramp.demo import MAX_DROP, QUESTIONS, data_file

    result, _ = _train(
        str(data_file("train")), out, str(data_file("validation")), recipe, None, None, None, None, settings or [],
        resume=False, overwrite=True,
    )  # fmt: skip
    classifier = _load(out)
    certificate = classifier.calibrate(_read(classifier, str(data_file("calibration")), None, None), MAX_DROP)
    classifier.save_certificate(out)
    test = _read(classifier, str(data_file("test")), None, None)
    evaluation = classifier.evaluate(test)
    report = out / "report.html"
    _write_report(report, "Support-desk routing: test messages", classifier, evaluation, out, test)
    answers = classifier.decide(list(QUESTIONS))
    if as_json:
        found = [{"text": q, **asdict(a)} for q, a in zip(QUESTIONS, answers, strict=True)]
        record = {"test": evaluation.to_json(), "certificate": json.loads(certificate.to_json()), "answers": found}
        _print_json({"out": str(out), "report": str(report), **record})
        return
    for question, answer in zip(QUESTIONS, answers, strict=True):
        told = _answer(classifier, answer)
        typer.echo(f"{told:<15} {answer.probability:.2f}  depth {answer.depth}  {question}")
    typer.echo("")
    _print_evaluation(evaluation)
    typer.echo(f"policy {certificate.policy}: {certificate.promises()}")
    typer.echo(f"\ntrained in {result.seconds:.0f} s; model {out}, report {report}")


def main() -> NoReturn:
    """The command line's entry: runs a verb and turns what goes wrong into a sentence and an exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        with as_process():
            app()
    except UserError as error:
        _say(f"error: {error}")
        sys.exit(2)
    except OfframpError as error:
        _say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


# --- what the verbs share


def _train(
    data: str,
    out: Path,
    validation: str | None,
    recipe: str,
    backbone: str | None,
    text: list[str] | None,
    label: str | None,
    seed: int | None,
    settings: list[str],
    resume: bool,
    overwrite: bool,
) -> tuple[Result, Evaluated]:
    """Train, save, validate, report."""
    from offramp.config import load_recipe, override
    from offramp.data.presence import check_data
    from offramp.exits.folder import vacant

    extra = [f"data.text={json.dumps(text, ensure_ascii=False)}"] if text else []
    extra += [f"data.label={label}"] if label else []
    config = override(load_recipe(recipe), [*settings, *extra])
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first one writes
        vacant(out, resume, overwrite)
    check_data(data)
    check_data(validation)

    from offramp.classifier import Classifier
    from offramp.data.label_sets import warn_of_sets
    from offramp.data.sources import columns, read
    from offramp.data.tokens import TruncationWarning
    from offramp.exits import checkpoint
    from offramp.optimise import processes
    from offramp.progress import ProgressBar

    first = processes.rank() == 0
    if not first:
        warnings.simplefilter("ignore")  # the first process warns
    how = columns(config.data)
    train_table = read(data, **how)
    if config.data.labels == "one":
        warn_of_sets(train_table.labels, config.data.label_separator)
    validation_table = read(validation, **how) if validation else None
    classifier = Classifier(recipe, backbone, [*settings, *extra], seed)
    before = resume and checkpoint.is_model(out)
    try:
        with ProgressBar(_console()) if first else nullcontext() as bar:
            result = classifier.fit_table(train_table, validation_table, out, resume, overwrite, bar)
    except Interrupted as error:
        if first:
            _say("Stopped. The run goes on from here with --resume.")
        raise typer.Exit(128 + error.signal) from error
    finally:
        processes.end()
    if not first:
        raise typer.Exit
    if before:
        _say(f"The model in `{out}` was finished before: nothing was trained.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # training has counted these texts
        validated = classifier.evaluate(classifier.held_out_)
    _write_report(
        out / "report.html", f"{out.name}: validation texts", classifier, validated, out, classifier.held_out_
    )
    return result, validated


def _settings(values: dict[str, Any]) -> str:
    return "  ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items()
    )


def _load(
    model: Path,
    policy: str | None = None,
    threshold: float | None = None,
    depth: int | None = None,
    threads: int | None = None,
    certificate: bool = True,
) -> Classifier:
    from offramp.classifier import Classifier

    classifier = Classifier.load(model, threads, certificate, policy=policy, threshold=threshold, depth=depth)
    chosen = classifier.policy_in_force()
    trained = classifier.engine_.trained
    # An exit that was not exported is refused later.
    if chosen["name"] == "fixed" and chosen["depth"] not in trained and chosen["depth"] in classifier.engine_.exits:
        _say(f"warning: the exit at depth {chosen['depth']} was not trained; trained: {', '.join(map(str, trained))}")
    return classifier


def _check_there(model: Path, data: str | None = None) -> None:
    """Refuse a model folder or labelled texts that are not there, before seconds go into loading what reads them."""
    from offramp.data.presence import check_data
    from offramp.runtime.onnx_folder import check_any

    check_any(model)
    check_data(data)


def _exits(classifier: Classifier, given: str | None) -> list[int] | None:
    """The depths that were named, or those that a certified policy reads, or all that were trained."""
    if given is not None:
        try:
            return [int(depth) for depth in given.split(",")]
        except ValueError as error:
            raise UserError(f"`--exits` should be depths such as 2,4,6. Found {given}.") from error
    certified = classifier.certified_
    return list(certified.certificate.exits) if certified and certified.certificate.thresholds else None


def _read(
    classifier: Classifier, data: str, text: list[str] | None, label: str | None, labels_required: bool = True
) -> Table:
    from offramp.data.sources import columns, read

    return read(data, **columns(classifier.config_.data, text, label), labels_required=labels_required)


def _write_report(
    file: Path,
    title: str,
    classifier: Classifier,
    evaluation: Evaluated,
    model: Path,
    data: Table,
    map_depth: int | None = None,
    curve: Curve | None = None,
) -> None:
    from offramp.config import to_mapping
    from offramp.report.captions import policy as in_words
    from offramp.report.history import read_history
    from offramp.report.page import render

    config = classifier.config_
    facts = {
        "recipe": config.recipe,
        "backbone": config.encoder.backbone,
        "layers": str(classifier.engine_.depth),
        "labels": str(len(classifier.labels_)),
        "policy": in_words(evaluation.policy),
    }
    if classifier.certificate is not None:
        facts["certificate"] = classifier.certificate.promises()
    history = read_history(model / "training" / "log.jsonl")
    page = render(title, evaluation, history, to_mapping(config), facts, _map(classifier, data, map_depth), curve)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, "utf-8")
    except OSError as error:
        raise UserError(f"The report should go to a file that can be written. Found `{file}`: {error}.") from error


def _answer(classifier: Classifier, found: Answered) -> str:
    """The label, all labels of a set with the separator between them, or the text with its spans marked."""
    from offramp.runtime.predictions import SetPrediction
    from offramp.runtime.tag_predictions import TagPrediction

    if isinstance(found, TagPrediction):
        return _marked(found)
    if isinstance(found, SetPrediction):
        return classifier.config_.data.label_separator.join(map(str, found.labels))
    return str(found.label)


def _marked(found: TagPrediction) -> str:
    """The text on one line, its spans as [words](label), and how many words were not read."""
    pieces, done = [], 0
    for span in found.spans:
        pieces += [found.text[done : span.start], f"[{span.text}]({span.label})"]
        done = span.end
    rest = found.text[done:]
    unread = found.tags.count(None)
    note = f" [{unread} words not read]" if unread else ""
    return " ".join("".join([*pieces, rest]).split()) + note


def _check_map(classifier: Classifier, depth: int | None, report: Path | None) -> None:
    trained = classifier.engine_.trained
    if depth is not None and (classifier.sets_ or classifier.tags_):
        found = "sets" if classifier.sets_ else "tags"
        raise UserError(
            f"`--map` should be asked of a model that gives one label, which colours a text. Found {found}."
        )
    if depth is not None and depth not in trained:
        possible = ", ".join(map(str, trained)) or "none"
        raise UserError(f"`--map` should be the depth of an exit that was trained: {possible}. Found {depth}.")
    if depth is not None and report is None:
        raise UserError("`--map` should come with `--report FILE`: the map is a part of the page.")


def _map(classifier: Classifier, data: Table, depth: int | None) -> ExitMap | None:
    """A map of what the chosen exit sees; None where nobody chose one and there are too few texts for it."""
    from offramp.report.exit_map import LEAST, chosen_depth, lay_out

    trained = classifier.engine_.trained
    if depth is None and (len(data.examples) < LEAST or not trained or classifier.sets_ or classifier.tags_):
        return None
    chosen = depth or chosen_depth(list(trained))
    vectors, anchors = classifier.representations(data, chosen)
    names = [str(name) for name in classifier.labels_.names]
    return lay_out(chosen, vectors.numpy(), anchors.numpy(), classifier.truth(data), names)


def _print_evaluation(evaluation: Evaluated) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    from offramp.report.tag_metrics import TagEvaluation

    shown = evaluation.shown
    typer.echo("  ".join(f"{heading} {getattr(evaluation, name):.4f}" for name, heading in shown.items()))
    typer.echo(f"{evaluation.n} texts, mean depth {evaluation.mean_depth:.2f} of {len(evaluation.depths)}")
    words = evaluation.word_depths if isinstance(evaluation, TagEvaluation) else {}
    if isinstance(evaluation, TagEvaluation):
        unread = f", {evaluation.unread} of them not read" if evaluation.unread else ""
        typer.echo(f"{evaluation.words} words{unread}, mean depth {evaluation.mean_word_depth:.2f}")
    columns = {name: shown[name] for name in ("accuracy", "span_f1")} if words else shown
    left = ["words that left", "texts that left"] if words else ["texts that left here"]
    table = RichTable("depth", *columns.values(), *left)
    for row in evaluation.by_exit:
        cells = [f"{getattr(row, name):.4f}" if row.trained else "untrained" for name in columns]
        cells += [str(words[row.depth])] if words else []
        table.add_row(str(row.depth), *cells, str(evaluation.depths[row.depth]))
    Console(highlight=False).print(table)
    if isinstance(evaluation, TagEvaluation):
        spans = RichTable("spans", "there are", "told", "precision", "recall", "F1")
        for each in evaluation.by_label:
            shares = (f"{share:.4f}" for share in (each.precision, each.recall, each.f1))
            spans.add_row(each.label, str(each.spans), str(each.given), *shares)
        Console(highlight=False).print(spans)


def _print_curve(curve: Curve) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    from offramp.report.curve import conditions, found

    points, judged = RichTable("policy", "threshold", "accuracy", "layers", "ms per text"), RichTable("depth", "AUROC")
    for point in curve.rows():
        points.add_row(*point)
    for exit in curve.judged():
        judged.add_row(*exit)
    typer.echo("")
    Console(highlight=False).print(points)
    typer.echo(f"{found(curve)}\n{conditions(curve)}\n\nHow well {curve.policy} tells right answers from wrong ones:")
    Console(highlight=False).print(judged)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """Warnings of ours are for the user; those of libraries are not."""
    if category.__module__.startswith("offramp"):
        _say(f"warning: {message}")


if __name__ == "__main__":
    main()

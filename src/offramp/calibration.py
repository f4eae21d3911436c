"""Calibration of a model: what its exits say of held-out texts becomes a policy with thresholds and a certificate."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.data.seen import unseen
from offramp.data.sources import Table
from offramp.data.tokens import Tokens
from offramp.errors import ConfigError, DataError, unknown_name
from offramp.policies import POLICIES, check_sets, check_words, policy
from offramp.policies.calibrate import FINALISTS, Calibration, calibrate_best
from offramp.policies.certificate import Certificate
from offramp.policies.evidence import (
    DISAGREEMENT,
    DROP,
    LABEL_DROP,
    WORD_DISAGREEMENT,
    WORD_DROP,
    Scores,
    differs,
    drops,
    evidence,
)
from offramp.policies.learned import Learned, fit_heads
from offramp.policies.patient_confidence import PATIENCE
from offramp.policies.prior import fit_prior
from offramp.policies.replay import Pooled, scores
from offramp.policies.scored import Scored
from offramp.policies.terms import Terms
from offramp.policies.terms import divide as divided
from offramp.reading import SET, answers
from offramp.runtime.certified import Certified, digest
from offramp.runtime.engine import Engine, pool
from offramp.types import Batch, ExitOutput

Truth = Sequence[int] | Sequence[Sequence[int]]
"""The class of each text, of sets of labels its row of 0 and 1, or of tags the class of each word that is read."""
AUTO = "auto"
SCORED = tuple(name for name, kind in POLICIES.items() if issubclass(kind, Scored))
REMEMBERING = ("patience", "patient-confidence", "vote")
"""Policies whose score depends on the exits that were read before."""
FOLDS = 5
"""Parts of the selection texts, each of which is scored by what was fitted to the others."""


@dataclass(frozen=True)
class Request:
    """What is asked of a policy."""

    risk: str
    terms: Terms
    policy: str = AUTO
    sets: bool = False  # whether each text has a set of labels
    tags: bool = False  # whether each word has a tag
    patience: int = PATIENCE  # of `patient-confidence`

    @classmethod
    def of(
        cls,
        max_drop: float | None,
        max_disagreement: float | None,
        confidence: float,
        budget_layers: float | None,
        policy: str,
        sets: bool = False,
        tags: bool = False,
        patience: int = PATIENCE,
    ) -> Request:
        """A checked request; with nothing asked, a drop of at most one point."""
        if max_drop is not None and max_disagreement is not None:
            raise ConfigError("There should be one risk, a drop in accuracy or a disagreement. Found both.")
        if policy != AUTO and policy not in SCORED:
            raise unknown_name("policy that can be calibrated", policy, (AUTO, *SCORED))
        if sets and policy != AUTO:
            check_sets(policy)
        if tags and policy != AUTO:
            check_words(policy)
        if not 0 < confidence < 1:
            raise ConfigError(f"`confidence` should be between 0 and 1, both excluded. Found {confidence:g}.")
        asked = max_drop if max_disagreement is None else max_disagreement
        if asked is None and budget_layers is None:
            asked = 0.01
        if asked is not None and not 0 < asked < 1:
            name = "max_drop" if max_disagreement is None else "max_disagreement"
            raise ConfigError(f"`{name}` should be between 0 and 1, both excluded. Found {asked:g}.")
        if budget_layers is not None and not 0 < budget_layers < math.inf:
            raise ConfigError(f"`budget_layers` should be above 0. Found {budget_layers:g}.")
        terms = Terms(epsilon=asked, delta=1 - confidence, budget=budget_layers)
        lost, other = (WORD_DROP, WORD_DISAGREEMENT) if tags else (LABEL_DROP if sets else DROP, DISAGREEMENT)
        return cls(lost if max_disagreement is None else other, terms, policy, sets, tags, patience)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that are tried."""
        if self.policy != AUTO:
            return (self.policy,)
        if self.tags:
            return tuple(name for name in SCORED if POLICIES[name].takes_words)
        if not self.sets:
            return SCORED
        # Of sets, `margin` says what `confidence` says: trying both would only share out the confidence.
        return tuple(name for name in SCORED if POLICIES[name].takes_sets and name != "margin")

    @property
    def needs_labels(self) -> bool:
        """Whether the texts must have labels."""
        return self.risk not in (DISAGREEMENT, WORD_DISAGREEMENT)


class LeftOut(UserWarning):
    """Some texts cannot be calibrated on."""


class NotKnown(UserWarning):
    """Which texts a model was trained on is not known, so none of them is left out."""


def evidential(seen: Tensor | None, data: Table) -> Table:
    """The texts that a promise can rest on: those the model was not trained on, each once.

    Those of the training are answered better than others, and a text that stands there again says nothing new: either
    would count as evidence that there is not. The first row of a text stays.
    """
    if seen is None:
        warnings.warn(
            f"Which texts the model was trained on is not known, so none of {data.name} is left out for it. Calibrate "
            "on others, or nothing is promised; `Classifier.of(model, tokenizer, seen=texts)` tells it those.",
            NotKnown,
            stacklevel=3,
        )
    rows, known = unseen(torch.empty(0) if seen is None else seen, data.examples)
    every = len(data.examples)
    if 2 * known > every:
        raise DataError(
            f"Calibration should have texts that the model was not trained on. Found {known} of {every} "
            f"in {data.name} that it was. Keep some texts apart before training."
        )
    if len(rows) == every:
        return data
    reasons = {"the model was trained on": known, "repeat others": every - known - len(rows)}
    told = " and ".join(f"{count} that {why}" for why, count in reasons.items() if count)
    warnings.warn(
        f"Of {every} texts in {data.name}, {told} are left out: what is promised is about different texts that are new "
        "to the model.",
        LeftOut,
        stacklevel=3,
    )
    return data.keep(rows)


def certify(
    engine: Engine,
    tokens: Tokens,
    truth: Truth | None,
    request: Request,
    data: str,
    batch_size: int,
    fingerprint: str,
) -> Certified:
    """The policy of a request, for the model of this fingerprint on this engine."""
    exits = tuple(depth for depth in engine.trained if depth < engine.depth)
    if not exits:
        raise ConfigError(
            "The model should have a trained exit below the last, or no text can leave early. Found none: train with "
            "a recipe that trains every exit, such as acl-multi-exit."
        )
    if truth is not None and len(truth) != tokens.answers:
        raise DataError(f"Every text should have a label. Found {len(truth)} labels of {tokens.answers} texts.")
    _selection(len(tokens), request)  # before the layers run, because too few texts are refused
    pooled = pool(engine, tokens, batch_size, [*exits, engine.depth])
    starts = None if tokens.words is None else tokens.words.offsets
    chosen, calibration, tensors = choose(pooled, truth, request, starts)
    settings: dict[str, int | float | str] = {"patience": request.patience} if chosen == "patient-confidence" else {}
    if request.sets:
        settings["labels"] = SET
    if tensors:
        settings["fitted"] = digest(tensors)
    certificate = Certificate.of(
        calibration,
        policy=chosen,
        layers=engine.depth,
        risk=request.risk,
        engine=engine.name,
        fingerprint=fingerprint,
        data=data,
        sha256=_sha256(tokens, truth),
        settings=settings,
    )
    return Certified(certificate, tensors, calibration.dial)


def choose(
    pooled: Pooled, truth: Truth | None, request: Request, starts: NDArray[np.int64] | None = None
) -> tuple[str, Calibration, dict[str, Tensor]]:
    """The policy of a request, its calibration and what was fitted for it, from what all exits say of the texts.

    Where words have tags, text i has the words from starts[i] to before starts[i + 1].
    """
    *below, last = sorted(pooled.outputs)
    exits, names = tuple(below), request.policies
    logits = [pooled.outputs[depth].logits for depth in (*exits, last)]
    given = np.stack([answers(each, request.sets).numpy() for each in logits])  # (E + 1, N) or (E + 1, N, C)
    told = None if truth is None else given == np.asarray(truth)  # decision by decision
    right = told if told is None or told.ndim == 2 else told.all(axis=2)  # (E + 1, N)
    harm: NDArray[np.bool_] = drops(_given(told)) if request.needs_labels else differs(given)
    if request.sets:
        # One label is enough for a set to be another one; right and wrong are told label by label.
        harm = np.any(harm, axis=2) if request.risk == DISAGREEMENT else np.moveaxis(harm, 2, 0)  # (E, N) or (C, E, N)
    known = evidence(harm, exits, last, right=right, starts=starts)
    # Where there are no labels, to be right is to say what the last exit says.
    wanted = torch.from_numpy(given[-1] if truth is None else np.asarray(truth))  # (N,)
    selection = _selection(known.texts, request)
    fitted = _fit(names, pooled, known.answers(selection), wanted, exits)
    scored = {name: _scores(name, pooled, exits, fitted.get(name), request) for name in names}
    parts = [known.answers(selection[fold::FOLDS]) for fold in range(FOLDS)]
    scored |= _crossed({name: scored[name] for name in fitted}, pooled, parts, wanted, exits, request)
    chosen, calibration = calibrate_best(scored, known, request.terms)
    return chosen, calibration, dict(fitted.get(chosen, {})) if calibration.thresholds else {}


def _selection(texts: int, request: Request) -> NDArray[np.int64]:
    """The texts on which policies are fitted and ranked; too few texts are refused."""
    return divided(texts, request.terms, min(FINALISTS, len(request.policies)))[0]


def _fit(
    names: Collection[str], pooled: Pooled, rows: NDArray[np.int64], wanted: Tensor, exits: Sequence[int]
) -> dict[str, Mapping[str, Tensor]]:
    """What is fitted to these of the selection texts, by policy: never to those that certify."""
    some, right = rows_of(pooled, rows), wanted[torch.from_numpy(rows)]
    found: dict[str, Mapping[str, Tensor]] = {}
    if "learned" in names:
        found["learned"] = Learned({}, fit_heads(some, right, exits)).state()
    if "prior" in names:
        found["prior"] = fit_prior(some, right, exits)
    return found


def _crossed(
    given: Mapping[str, Scores],
    pooled: Pooled,
    parts: Sequence[NDArray[np.int64]],
    wanted: Tensor,
    exits: tuple[int, ...],
    request: Request,
) -> dict[str, Scores]:
    """The scores of what was fitted, (E, N), in which each part of the selection has those of a fit to the others.

    Paths are made and policies ranked on the selection texts, where a fit that was made of them would flatter itself.
    Whoever certifies is scored by the fit that is kept.
    """
    found = {name: torch.as_tensor(scores).clone() for name, scores in given.items()}
    for fold, part in enumerate(parts if found else ()):
        others = np.concatenate([other for place, other in enumerate(parts) if place != fold])
        if len(part) and len(others):
            some = rows_of(pooled, part)
            for name, tensors in _fit(found, pooled, others, wanted, exits).items():
                found[name][:, torch.from_numpy(part)] = torch.as_tensor(_scores(name, some, exits, tensors, request))
    return dict(found)


def _scores(
    name: str, pooled: Pooled, exits: tuple[int, ...], tensors: Mapping[str, Tensor] | None, request: Request
) -> Scores:
    made = policy(name, {}, patience=request.patience, tensors=tensors, sets=request.sets)
    assert isinstance(made, Scored)
    return partial(scores, made, pooled) if name in REMEMBERING else scores(made, pooled, exits)


def rows_of(pooled: Pooled, rows: NDArray[np.int64]) -> Pooled:
    """Some of the texts; of words, what the exits say of them, and all texts."""
    chosen = torch.from_numpy(rows)
    batch = pooled.batch
    if batch.words is None:
        types = None if batch.token_types is None else batch.token_types[chosen]
        batch = Batch(batch.input_ids[chosen], batch.mask[chosen], types)
    return Pooled(
        batch,
        {
            depth: ExitOutput(output.representation[chosen], output.logits[chosen], output.label_embeddings)
            for depth, output in pooled.outputs.items()
        },
    )


def _given(right: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    if right is None:
        raise ConfigError("A drop in accuracy should be measured on labelled texts. Found texts without labels.")
    return right


def _sha256(tokens: Tokens, truth: Truth | None) -> str:
    """Of the texts as the model sees them, and of their labels."""
    found = hashlib.sha256(np.ascontiguousarray(tokens.ids).tobytes())
    found.update(np.ascontiguousarray(tokens.offsets).tobytes())
    if tokens.words is not None:
        found.update(tokens.words.marks.tobytes())
    found.update(np.asarray([] if truth is None else truth, dtype=np.int64).tobytes())
    return found.hexdigest()

"""MODEL -> PEOPLE: what the server tells of its model: labels, depths, what is promised, and what was measured before.

All of it was left in the model folder: by training the validation score of every exit, by calibration the certificate
and the dial.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from offramp.classifier import Classifier
from offramp.errors import ModelError
from offramp.optimise.run_folder import finished
from offramp.policies.bounds import upper_bound
from offramp.policies.certificate import Certificate
from offramp.policies.dial import Dial, DialPoint
from offramp.report.metrics import NAMES
from offramp.runtime.certified import VoidCertificate
from offramp.serve.settings import ServeSettings

ALL = "Every text runs all layers: nothing is lost against the full model."


def load(folder: Path, threads: int | None = None) -> tuple[Classifier, str]:
    """The model in a folder, and the state of its certificate: certified, measured, void or none."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", VoidCertificate)
        classifier = Classifier.load(folder, threads)
    for each in said:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if classifier.certified_ is not None:
        return classifier, "certified" if classifier.certified_.certificate.certified else "measured"
    return classifier, "void" if any(issubclass(each.category, VoidCertificate) for each in said) else "none"


def about(classifier: Classifier, state: str, settings: ServeSettings, folder: Path | None = None) -> dict[str, Any]:
    """The model as `/model` tells it."""
    engine, certified = classifier.engine_, classifier.certified_
    certificate = None if certified is None else certified.certificate
    dial = None if certified is None else certified.dial
    return {
        "name": "model" if folder is None else folder.resolve().name,
        "engine": engine.name,
        "layers": engine.depth,
        "exits": list(engine.exits),
        "trained": list(engine.trained),
        "labels": list(classifier.labels_.names),
        "label_sets": classifier.sets_,
        "word_tags": classifier.tags_,
        "text_pairs": classifier.pairs_,
        "max_tokens": classifier.max_tokens_,
        "policy": _plain(classifier.policy_in_force()),
        "promise": None if certificate is None else certificate.promises(),
        "certificate": None if certificate is None else json.loads(certificate.to_json()),
        "certificate_state": state,
        "dial": None if certificate is None or dial is None else _dial(certificate, dial),
        "scores": _scores(dial, folder),
        "limits": {name: getattr(settings, name) for name in ("max_texts", "max_characters", "max_bytes")},
        "allow_uncertified": settings.allow_uncertified,
    }


def promise(certificate: Certificate, point: DialPoint) -> str:
    """What is promised at a point of the dial, in a sentence."""
    if not point.thresholds:
        return ALL
    if not point.certified:
        measured = certificate.measurement(point.harms, point.mean_depth, point.accuracy)
        return f"Nothing is promised here; measured: {measured}."
    if point.thresholds == certificate.thresholds:
        return certificate.promises()
    level = (1 - certificate.confidence) / certificate.tried
    here = replace(
        certificate,
        thresholds=point.thresholds,
        exits=point.exits,
        harms=point.harms,
        measured=point.harms / certificate.certification,
        bound=upper_bound(point.harms, certificate.certification, level),
        accuracy_early=point.accuracy,
        mean_depth=point.mean_depth,
        budget=None,  # which was asked of the chosen point, and is not told of this one
        within_budget=None,
    )
    return here.promises()


def _dial(certificate: Certificate, dial: Dial) -> dict[str, Any]:
    points = [
        {
            "mean_depth": point.mean_depth,
            "accuracy": point.accuracy,
            "harms": point.harms,
            "certified": point.certified,
            "promise": promise(certificate, point),
        }
        for point in dial.points
    ]
    return {"points": points, "chosen": dial.chosen, "texts": dial.texts}


def _scores(dial: Dial | None, folder: Path | None) -> dict[str, Any] | None:
    """The score of every exit on texts it was not trained on; None where nobody measured it."""
    if dial is not None and dial.by_exit:
        source = f"{dial.texts:,} texts of the calibration"
        return {"metric": "accuracy", "source": source, "by_exit": _plain(dial.by_exit)}
    try:
        ended = None if folder is None else finished(folder / "training")
    except ModelError:  # of an older offramp, or damaged; the model answers without it
        ended = None
    if ended is None or not ended.by_exit:
        return None
    return {
        "metric": NAMES.get(ended.metric, ended.metric),
        "source": "the validation texts of the training",
        "by_exit": dict(ended.by_exit),
    }


def _plain(record: Any) -> dict[str, Any]:
    """A record with strings for keys, as JSON has them."""
    found: dict[str, Any] = json.loads(json.dumps(record))
    return found

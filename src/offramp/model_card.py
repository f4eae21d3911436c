"""The model card: what a model folder says of itself on a hub, with the scores it was given.

`README.md` with YAML in front, as the Hugging Face hub reads it. Every number comes from the run's own record, from the
certificate, or from texts that were evaluated for the card.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.config import changes
from offramp.disk import replace_file
from offramp.encoder.load import ALIASES
from offramp.errors import ModelError
from offramp.optimise.run_folder import finished
from offramp.report.curve import Curve, conditions
from offramp.report.metrics import NAMES
from offramp.report.tag_metrics import Evaluated, TagEvaluation

if TYPE_CHECKING:
    from offramp.classifier import Classifier

FILE = "README.md"
MARK = re.compile("<!-- offramp [0-9a-f]{64} -->")
OBJECTIVE_PAPERS = {
    "acl": """@article{li2026acl,
  title = {{ACL}: Aligned Contrastive Learning Improves {BERT} and Multi-exit {BERT} Fine-tuning},
  author = {Li, Liz and Zhu, Wei},
  journal = {arXiv preprint arXiv:2602.03563},
  year = {2026}
}""",
    "scl": """@inproceedings{gunel2021supervised,
  title = {Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning},
  author = {Gunel, Beliz and Du, Jingfei and Conneau, Alexis and Stoyanov, Ves},
  booktitle = {International Conference on Learning Representations},
  year = {2021}
}""",
    "lacon": """@inproceedings{zhang2022label,
  title = {Label Anchored Contrastive Learning for Language Understanding},
  author = {Zhang, Zhenyu and Zhao, Yuming and Chen, Meng and He, Xiaodong},
  booktitle = {North American Chapter of the Association for Computational Linguistics},
  year = {2022}
}""",
}
"""The papers that the methods are from."""


def write_card(
    folder: Path,
    classifier: Classifier,
    name: str = "",
    evaluation: Evaluated | None = None,
    curve: Curve | None = None,
) -> Path:
    """Write the card of a model folder; `evaluation` and `curve` are of texts called `name`."""
    try:
        replace_file(folder / FILE, card(folder, classifier, name, evaluation, curve))
    except OSError as error:
        raise ModelError(f"The model card cannot be written to `{folder}`: {error.strerror or error}.") from error
    return folder / FILE


def card(
    folder: Path,
    classifier: Classifier,
    name: str = "",
    evaluation: Evaluated | None = None,
    curve: Curve | None = None,
) -> str:
    """The card as Markdown with YAML in front."""
    parts = [
        f"---\n{_front(folder, classifier, name, evaluation)}\n---",
        f"# {folder.resolve().name}",
        *_use(classifier),
        *_made_of(classifier),
        *_exits(folder, name, evaluation),
        *_curve(curve),
        *_certificate(classifier),
        "## Citation",
        *(f"```bibtex\n{entry}\n```" for entry in OBJECTIVE_PAPERS.values()),
        _mark(classifier),
    ]
    return "\n\n".join(parts) + "\n"


def is_of_another(folder: Path, classifier: Classifier) -> bool:
    """Whether the card in a folder was written for another model than this, or for another certificate."""
    found = MARK.search((folder / FILE).read_text("utf-8"))
    return found is not None and found[0] != _mark(classifier)


def _mark(classifier: Classifier) -> str:
    """A comment that tells which model and which promise a card is about."""
    told = classifier.certificate
    facts = f"{classifier.fingerprint()} {'' if told is None else told.to_json()}"
    return f"<!-- offramp {hashlib.sha256(facts.encode()).hexdigest()} -->"


def _front(folder: Path, classifier: Classifier, name: str, evaluation: Evaluated | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    backbone = classifier.config_.encoder.backbone
    known = ALIASES[backbone].hub if backbone in ALIASES else "" if Path(backbone).exists() else backbone
    found = []
    if evaluation is not None:
        scores = {key: getattr(evaluation, key) for key in NAMES if getattr(evaluation, key, None) is not None}
        result = partial(EvalResult, _task(classifier), "text", name or "texts")
        found = [result(key, value, metric_name=NAMES[key]) for key, value in scores.items()]
    data = ModelCardData(
        base_model=known or None,
        library_name="offramp",
        pipeline_tag=_task(classifier),
        tags=["offramp", "early-exit", "multi-exit", "contrastive-learning"],
        metrics=["accuracy", "f1", *([] if classifier.tags_ else ["matthews_correlation"])],
        model_name=folder.resolve().name if found else None,
        eval_results=found or None,
    )
    return str(data.to_yaml()).rstrip()


def _task(classifier: Classifier) -> str:
    return "token-classification" if classifier.tags_ else "text-classification"


def _use(classifier: Classifier) -> Iterator[str]:
    depth, tags, exported = classifier.engine_.depth, classifier.tags_, classifier.engine_.name != "torch"
    what, leaves = ("tagger of words,", "word") if tags else ("text classifier", "text")
    yield (
        f"A {what} of {depth} layers with an exit after every layer, made with offramp: each {leaves} leaves at the "
        "first exit that its policy trusts."
    )
    if exported:
        yield "Its layers are ONNX segments, which onnxruntime runs and transformers does not read."
    elif not tags:
        yield (
            "```python\nimport offramp  # makes the model known to transformers\nfrom transformers import pipeline\n\n"
            'classify = pipeline("text-classification", model="THIS_MODEL")\n```'
        )
        yield "Or, from a folder, with the depth at which each text left:"
    yield '```python\nfrom offramp import Classifier\n\nClassifier.load("FOLDER").decide(["a text"])\n```'
    shown = ", ".join(f"`{label}`" for label in classifier.labels_.names)
    yield f"{'Tags' if tags else 'Labels'}: {shown}."


def _made_of(classifier: Classifier) -> Iterator[str]:
    config = classifier.config_
    yield "## Data and recipe"
    if classifier.seen_ is not None:
        texts, most = len(classifier.seen_), classifier.max_tokens_
        yield f"Trained and validated on {texts:,} different texts, each cut to {most} tokens."
    backbone = config.encoder.backbone
    told = {**changes(config), "encoder.backbone": Path(backbone).name if Path(backbone).exists() else backbone}
    rows = [("recipe", config.recipe), *sorted((key, str(value)) for key, value in told.items())]
    yield _table(("field", "value"), [(key, f"`{value}`") for key, value in rows])


def _exits(folder: Path, name: str, evaluation: Evaluated | None) -> Iterator[str]:
    yield "## Scores of the exits"
    result = finished(folder / "training")
    if result is not None:
        yield f"{NAMES[result.metric]} on the validation texts, had every text left there:"
        yield _table(("depth", NAMES[result.metric]), [(d, f"{score:.4f}") for d, score in result.by_exit.items()])
    if evaluation is not None:
        second = "span_f1" if isinstance(evaluation, TagEvaluation) else "macro_f1"
        yield (
            f"On {evaluation.n:,} texts of {name or 'a test set'}: {evaluation.shown['accuracy']} "
            f"{evaluation.accuracy:.4f}, {NAMES[second]} {getattr(evaluation, second):.4f}, "
            f"{evaluation.mean_depth:.2f} of {evaluation.layers} layers run on average."
        )
        trained = [exit for exit in evaluation.by_exit if exit.trained]
        rows = [
            (str(e.depth), *(f"{getattr(e, key):.4f}" for key in evaluation.shown), str(evaluation.depths[e.depth]))
            for e in trained
        ]
        yield _table(("depth", *evaluation.shown.values(), "texts that left here"), rows)
    if result is None and evaluation is None:
        yield "Not told."


def _curve(curve: Curve | None) -> Iterator[str]:
    if curve is not None:
        yield "## Speed and quality"
        yield _table(("policy", "threshold", "accuracy", "layers", "ms per text"), list(curve.rows()))
        yield conditions(curve)


def _certificate(classifier: Classifier) -> Iterator[str]:
    yield "## Certificate"
    told = classifier.certificate
    yield "None: how much leaving early costs was not certified." if told is None else told.promises()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)

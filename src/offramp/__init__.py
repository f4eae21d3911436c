"""offramp: text classifiers with an exit after every layer.

The public names are imported when first used, so that `import offramp` is cheap. Hugging Face's auto classes know the
model from now on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offramp.autoload import wait_for_transformers

if TYPE_CHECKING:
    from offramp.classifier import Classifier as Classifier
    from offramp.config import Config as Config
    from offramp.exits.model import MultiExitConfig as MultiExitConfig
    from offramp.exits.model import MultiExitModel as MultiExitModel

__version__ = "0.1.0"

_HOMES = {
    "Classifier": "offramp.classifier",
    "Config": "offramp.config",
    "MultiExitConfig": "offramp.exits.model",
    "MultiExitModel": "offramp.exits.model",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'offramp' has no attribute {name!r}")


wait_for_transformers()

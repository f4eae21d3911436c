"""Hugging Face's auto classes know our model once both are imported, in whichever order.

`import offramp` loads neither torch nor transformers. It leaves a finder that waits for transformers' auto classes, and
lets `offramp.hugging_face` register the model when they have been loaded.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

AUTO = "transformers.models.auto.modeling_auto"
OURS = "offramp.exits.model"
HOME = "offramp.hugging_face"


class _Announcing(Loader):
    """Loads as another loader does, and registers our model afterwards."""

    def __init__(self, inner: Loader) -> None:
        self.inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        # Where our model itself asks for transformers, it is not whole yet: its own end is waited for.
        if module.__name__ == OURS or OURS not in sys.modules:
            importlib.import_module(HOME)


class _Finder(MetaPathFinder):
    """Finds two modules where they always are, and has them announced."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in (AUTO, OURS) else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Announcing(spec.loader)
        return spec


def wait_for_transformers() -> None:
    """Register our model now, where transformers' auto classes are loaded, or as soon as they are."""
    if AUTO in sys.modules:
        importlib.import_module(HOME)
    else:
        sys.meta_path.insert(0, _Finder())

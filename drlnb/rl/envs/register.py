"""How do our environments become known to gymnasium without importing it for those who never use it?

A Dask worker imports drlnb but must not load gymnasium; a notebook may import the two in either order.  So a finder
waits for the first ``import gymnasium`` and registers right after it.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["register_environments"]


class _AfterGymnasium:
    """Stands in for gymnasium's finder once, and runs our registration after its module.

    Finder and loader by their methods alone: ``importlib.abc`` would load threads and sockets into every worker.
    """

    def __init__(self) -> None:
        self._loader: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return gymnasium's own spec with this loader around its loader; nothing for any other module."""
        if fullname != "gymnasium" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave the making of the module to gymnasium's loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run gymnasium, give it its own loader back, then register."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        register_environments()


def register_environments() -> None:
    """Register drlnb's environments now if gymnasium is loaded, else when it is."""
    if "gymnasium" in sys.modules:
        import_module("drlnb.rl.envs.catch")
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())  # type: ignore[arg-type]

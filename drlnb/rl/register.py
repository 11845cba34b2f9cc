"""How do our environments become known to gymnasium without importing it for those who never use it?

A Dask worker imports drlnb but must not load gymnasium; a notebook may import the two in either order.  So a finder
waits for the first ``import gymnasium`` and registers right after it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["register_environments"]


class _AfterGymnasium(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for gymnasium's finder once, and runs our registration after its module."""

    def __init__(self) -> None:
        self._loader: importlib.abc.Loader | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return gymnasium's own spec with this loader around its loader; nothing for any other module."""
        if fullname != "gymnasium" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Leave the making of the module to gymnasium's loader."""
        return self._loader.create_module(spec) if self._loader is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Run gymnasium, give it its own loader back, then register."""
        if self._loader is None:
            return
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        register_environments()


def register_environments() -> None:
    """Register drlnb's environments now if gymnasium is loaded, else when it is."""
    if "gymnasium" in sys.modules:
        importlib.import_module("drlnb.rl.catch")
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())

"""Register our environments with gymnasium without importing it for those who never use it.

A Dask worker imports drlnb but must not load gymnasium; a notebook may import the two in either order.  So a finder
waits for the first ``import gymnasium`` and registers right after it.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["register_environments"]

_CATCH = "drlnb.rl.envs.catch"


class _AfterGymnasium:
    """Stand in for gymnasium's finder once, and import our environments after its module.

    A finder by its method alone: ``importlib.abc`` would load threads and sockets into every worker.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return gymnasium's own spec, whose loader registers when it has run; nothing for any other module."""
        if fullname != "gymnasium" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            import_module(_CATCH)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register_environments() -> None:
    """Register drlnb's environments now if gymnasium is loaded, else when it is."""
    if "gymnasium" in sys.modules:
        import_module(_CATCH)
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())

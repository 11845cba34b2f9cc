"""Read the parameters that are published to a host: as arrays, or as those of a module of one's own."""

from typing import TYPE_CHECKING, Self

import numpy as np

from drlnb.distribution import flat
from drlnb.records.errors import ConfigError
from drlnb.runtime.ipc.host_store import StoreView

if TYPE_CHECKING:
    import torch

__all__ = ["HostView", "store_path"]


def store_path(task: str = "parameters") -> str:
    """Return where other processes of this host find what is published under a name; called in a Dask task.

    Raises
    ------
    ConfigError
        If nothing has been published to this worker under the name yet, or this is no Dask task.
    """
    from distributed import get_worker  # an actor that is given a path needs nothing of Dask

    from drlnb.runtime.distribution.relay import HostRelay

    try:
        worker = get_worker()
    except ValueError:
        raise ConfigError("this is no Dask task: have one return store_path(), and attach by that path") from None
    path = HostRelay.find_path(worker, "", task)
    if not path:
        raise ConfigError(f"nothing has been published to this worker as {task!r} yet")
    return path


class HostView(StoreView):
    """What an actor sees of its host's store; for one thread.

    Between two versions nothing is copied: tensors are views of memory that all actors of the host share.  They may be
    used inside of :meth:`pinned`, and after :meth:`refresh` until the next one or :meth:`release`; with ``copy=True``
    always.

    Examples
    --------
    An actor, where `module` is like the one that is published::

        view = HostView.attach(task="parameters")
        view.bind(module)
        while True:
            with view.pinned() as version:
                rollout(module)
    """

    _module: "torch.nn.Module | None" = None

    @classmethod
    def attach(cls, path: str = "", *, task: str = "parameters", copy: bool = False) -> Self:
        """Attach to a store.

        Parameters
        ----------
        path
            As :func:`store_path` returns it, for a process that a Dask worker has started; empty: this is a Dask task,
            and the store is its worker's.
        task
            Name under which the parameters are published.
        copy
            Whether tensors are copies that stay.

        Raises
        ------
        ConfigError
            If nothing has been published to this worker under the name yet, or no store is at the path.
        """
        if not isinstance(path, str):
            raise ConfigError(f"HostView.attach takes a path, as store_path() returns it, got {path!r:.80}")
        try:
            return cls(path or store_path(task), copy=copy)
        except (FileNotFoundError, ProcessLookupError):
            raise ConfigError(f"no store is at {path!r}: attach by what store_path() returns on this machine") from None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the tensors of the version by name, as views; see :func:`drlnb.distribution.flat.arrays`."""
        return flat.arrays(self.bytes)

    def bind(self, module: "torch.nn.Module") -> None:
        """Have a module's parameters be those of each version from the next :meth:`refresh` or :meth:`pinned` on.

        That one raises what :func:`drlnb.distribution.flat.bind` does if the module does not fit.
        """
        self._module, self._word = module, 0

    def _moved(self) -> None:
        if self._module is not None:
            flat.bind(self.bytes, self._module)

    def close(self) -> None:
        """Leave the store; a module that is bound stays at what it shows now, which may change."""
        self._module = None
        super().close()

    def __enter__(self) -> Self:
        """Return the view."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the store."""
        self.close()

"""Where does a fleet's cluster come from, if nobody names one?  The one that is there, or one of our own."""

import contextlib
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["current_client", "start_cluster", "sweep"]


def current_client() -> Any:
    """Return the Dask client of this process, None if there is none (or Dask is not even imported)."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    with contextlib.suppress(ValueError):
        return Client.current()
    return None


def start_cluster(n_workers: int) -> tuple[Any, Path]:
    """Start a cluster of our own; return its handle and its scratch folder.

    A thread starts it, so that Ctrl-C meanwhile cannot lose the handle of a process that is there already.
    """
    from drlnb.runtime.local import start_local

    root = Path(tempfile.mkdtemp(prefix="drlnb-"))
    with ThreadPoolExecutor(1, thread_name_prefix="drlnb-start") as starter:
        started = starter.submit(start_local, n_workers=n_workers, root=root)
        try:
            return started.result(), root
        except KeyboardInterrupt:
            started.result().kill()
            shutil.rmtree(root, ignore_errors=True)
            raise


def sweep(handle: Any, root: Path | None) -> None:
    """Stop an own cluster, if there is one, and remove its scratch folder."""
    if handle is not None:
        handle.stop()
    if root is not None:
        shutil.rmtree(root, ignore_errors=True)

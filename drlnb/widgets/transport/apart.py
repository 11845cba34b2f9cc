"""Publish beside the cells: what is published so belongs to no cell's request.

A runner of notebooks (``nbconvert --execute``, papermill) keeps the state of every widget that a cell opens, and
nbconvert then draws them by scripts from the network, an empty strip without it.  Pages hear of a widget whichever
request it is published under, so these are published under none.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

from drlnb.fleet import faces

__all__ = ["apart"]

_LOCK = threading.RLock()


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Publish under no request while the block runs; nothing changes without a kernel, or in Voila.

    Voila runs a notebook like the others, and then needs the state that it has kept: there a user looks at it.
    """
    kernel = faces.kernel()
    if kernel is None or os.environ.get("SERVER_SOFTWARE", "").startswith("voila"):
        yield
        return
    with _LOCK:
        outermost = "get_parent" not in vars(kernel)
        if outermost:
            kernel.get_parent = lambda channel=None: {}
        try:
            yield
        finally:
            if outermost:
                del kernel.get_parent

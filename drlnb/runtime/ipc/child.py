"""Run a module as a child whose life line begins before anything heavy is imported.

``python -m drlnb.runtime.ipc.child MODULE --fd N ...``: an import of torch takes seconds, and whoever started the child
may be gone before it ends.
"""

import gc
import sys
from importlib import import_module

from drlnb.runtime.ipc.lifeline import watch

__all__ = ["main"]


def main() -> None:
    """Watch the pair's end that is descriptor N, then run the module's `main` with the rest of the command line."""
    del sys.argv[0]
    watch(int(sys.argv[2]))
    # What is imported stays: to look through it for garbage, now and later, is a fifth of what importing torch takes.
    gc.disable()
    module = import_module(sys.argv[0])
    gc.freeze()
    gc.enable()
    module.main()


if __name__ == "__main__":
    main()

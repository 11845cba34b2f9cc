"""Run a module as a child whose life line begins before anything heavy is imported.

``python -m drlnb.runtime.ipc.child MODULE --fd N ...``: an import of torch takes seconds, and whoever started the child
may be gone before it ends.
"""

import runpy
import sys

from drlnb.runtime.ipc.lifeline import watch

__all__ = ["main"]


def main() -> None:
    """Watch the pair's end that is descriptor N, then run the module with the rest of the command line."""
    del sys.argv[0]
    watch(int(sys.argv[2]))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

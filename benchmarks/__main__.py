"""``python -m benchmarks NAME``, in a checkout: measure one group of claims against their baselines."""

import sys
from collections.abc import Sequence

from benchmarks.benches import BENCHES
from drlnb.records.errors import InputError, nearest

__all__ = ["main"]

_USAGE = f"usage: python -m benchmarks NAME [--help] [--json FILE] ...; NAME is one of {', '.join(BENCHES)}"


def main(argv: Sequence[str]) -> int:
    """Run one benchmark.

    Parameters
    ----------
    argv
        Its name, and its own options.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed; 2 for wrong input.
    """
    name, *words = argv or ["--help"]
    if name in {"-h", "--help"}:
        print(_USAGE)
        return 0
    try:
        if name not in BENCHES:
            raise InputError(f"unknown benchmark {name!r}{nearest(name, BENCHES)}; known are {', '.join(BENCHES)}")
        return BENCHES[name].main(words)
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

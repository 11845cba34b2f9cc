"""Search for plans of swapping, for a master: seconds of pure Python, which no event loop and no executor has to spare.

It imports numpy, never torch, never Dask.
"""

import socket
import sys

from drlnb.planning.swapping.heuristics import searched
from drlnb.records.columns.swapping import SearchSwapPlan
from drlnb.runtime.ipc.frames import FrameSocket, Reply, plain
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.protocol import Plain

__all__ = ["main"]


def _answer(header: Plain, _payload: memoryview) -> Reply:
    command = SearchSwapPlan(**{key: value for key, value in header.items() if key not in {"op", "id"}})
    return {"op": "found", "event": plain(searched(command))}, []


def main() -> None:
    """Run as ``search --fd N``."""
    become("drlnb search")
    FrameSocket(socket.socket(fileno=int(sys.argv[2]))).serve(_answer)


if __name__ == "__main__":
    main()

"""Serve the replay ring of one off-policy task from a process: fragments in, blocks of minibatches out.

It lives on the master's node and is started like a collector.  It imports numpy, never torch, never gymnasium's
environments, never Dask; the next lease may be on another node, the ring stays where it is.
"""

import os
import sys
from typing import TYPE_CHECKING

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import make_replay
from drlnb.rl.fragments import Fragment
from drlnb.runtime.ipc.frames import Reply, plain
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.protocol import Plain

if TYPE_CHECKING:
    from drlnb.rl.algorithms.replay import Replay

__all__ = ["ReplayChild"]


class ReplayChild:
    """Answers the agent's frames, one at a time; the first one is ``configure``."""

    def __init__(self) -> None:
        self._replay: Replay | None = None

    def answer(self, header: Plain, payload: memoryview) -> Reply:
        """Carry out one frame and return the answer's header and payloads.

        Raises
        ------
        ValueError
            If the frame is unknown, or the saved ring belongs to another task.
        """
        op = header["op"]
        if op == "configure":
            return self._configure(header, payload)
        assert self._replay is not None
        if op == "draw":
            return self._draw(header, payload, self._replay)
        if op == "state":
            state, buffer = self._replay.state().pack()
            return {"op": "state", "ring": plain(state)}, [buffer]
        raise ValueError(f"unknown frame {op!r}")

    def _configure(self, header: Plain, payload: memoryview) -> Reply:
        spec = TaskSpec.from_plain(header["spec"])
        become(f"drlnb replay {spec.name}")
        self._replay = make_replay(spec)
        if self._replay is None:
            raise ValueError(f"task {spec.name!r}: {spec.algo} has no replay ring")
        n_bytes_lost = 0
        if header["ring"] is not None:
            n_bytes_lost = self._replay.restore(Fragment.unpack(header["ring"], payload))
        answer = {"op": "ready", "pid": os.getpid(), "torch": "torch" in sys.modules}
        return {**answer, "n_transitions": self._replay.ring.size, "n_bytes_lost": n_bytes_lost}, []

    def _draw(self, header: Plain, payload: memoryview, ring: "Replay") -> Reply:
        fragments, start = [], 0
        for packed, size in zip(header["fragments"], header["sizes"], strict=True):
            fragments.append(Fragment.unpack(packed, payload[start : start + size]))
            start += size
        block = ring.take(fragments, round=header["round"], n_timesteps=header["n_timesteps"])
        packed, buffer = block.pack()
        names = ("n_gradient_steps", "n_samples", "metrics")
        return {"op": "drawn", "fragment": plain(packed), **{name: plain(packed[name]) for name in names}}, [buffer]

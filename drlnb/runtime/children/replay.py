"""Serve the replay ring of one off-policy task from a process: fragments in, blocks of minibatches out.

It lives on the master's node and is started like a collector.  It imports numpy, never torch, never gymnasium's
environments, never Dask; the next lease may be on another node, the ring stays where it is.
"""

from collections.abc import Callable

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_replay
from drlnb.rl.algorithms.replay import Replay
from drlnb.rl.fragments import Fragment
from drlnb.runtime.ipc.frames import Reply, plain, split
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.ipc.step_count import StepCount
from drlnb.runtime.protocol import Plain

__all__ = ["ReplayChild"]


class ReplayChild:
    """Answers the agent's frames, one at a time; the first one is ``configure``."""

    def __init__(self) -> None:
        self._replay: Replay
        self.frames: dict[str, Callable[[Plain, memoryview], Reply]] = {
            "configure": self._configure,
            "draw": self._draw,
            "state": self._state,
        }

    def _configure(self, header: Plain, payload: memoryview) -> Reply:
        """Make the ring, or restore it.

        Raises
        ------
        ValueError
            If the task has none, or the saved one belongs to another task.
        """
        StepCount.at(header["steps"]).rest()  # it has no environments
        spec = RlWork.from_plain(header["spec"])
        become(f"drlnb replay {spec.name}")
        replay = make_replay(spec)
        if replay is None:
            raise ValueError(f"task {spec.name!r}: {spec.algo} has no replay ring")
        n_bytes_lost = replay.restore(Fragment.unpack(header["ring"], payload)) if header["ring"] is not None else 0
        self._replay = replay
        return {"op": "ready", "event": {"n_transitions": replay.ring.size, "n_bytes_lost": n_bytes_lost}}, []

    def _draw(self, header: Plain, payload: memoryview) -> Reply:
        parts = zip(header["fragments"], split(payload, header["sizes"]), strict=True)
        fragments = [Fragment.unpack(packed, part) for packed, part in parts]
        block = self._replay.take(fragments, round=header["round"], n_timesteps=header["n_timesteps"])
        packed, buffer = block.pack()
        return {"op": "drawn", "fragment": plain(packed)}, [buffer]

    def _state(self, header: Plain, _payload: memoryview) -> Reply:
        state, buffer = self._replay.state(header["since"]).pack()
        return {"op": "state", "ring": plain(state)}, [buffer]

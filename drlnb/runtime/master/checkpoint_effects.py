"""Keep a running task's state, write it as a checkpoint, read the newest one back, and begin with it."""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from drlnb.planning.leasing.fence import StoreGate
from drlnb.records import round as words
from drlnb.records.base import Facts
from drlnb.records.errors import CheckpointError
from drlnb.records.spec import WorkSpec
from drlnb.rl.checkpoints.files import REPLAY, pack, unpack
from drlnb.rl.checkpoints.trained import State, Trained, joined
from drlnb.rl.fragments import Fragment
from drlnb.runtime.files import checkpoint
from drlnb.runtime.protocol import Plain

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["AGAIN", "CheckpointEffects", "Committed", "envs_for", "read_newest", "taken_over", "write_trained"]

#: Longest wait for the states of environments of a task that is stopped, in seconds: one may hang.
_ANSWER_S = 3.0
#: How :meth:`Master.run_to_end` ends when another attempt must follow here.
AGAIN = "again"


@dataclass(slots=True, kw_only=True)
class Committed:
    """The newest version in host memory."""

    published: bytes | memoryview = b""
    #: Training state: plain facts and one flat buffer.
    facts: Facts = field(default_factory=dict)
    state: bytes | memoryview = b""


class CheckpointEffects:
    """Writes the checkpoints of one master, one after the other.

    Parameters
    ----------
    master
        Whose.
    ask
        ``(collector, node, op=...)`` -> its answer, ``refused`` if it or its node is gone.
    found
        ``version`` -> states of environments as the round that acts with it found them, as far as they are known.
    ring
        Returns the replay ring, or what it has got since its `put` was so; None if the task has none; raises
        ConnectionError if its process is gone.
    """

    def __init__(
        self,
        master: "Master",
        ask: Callable[..., Awaitable[Plain]],
        found: Callable[[int], list[Facts]],
        ring: Callable[[list[int] | None], Awaitable[Fragment | None]],
    ) -> None:
        self.m, self._ask, self._found, self._ring = master, ask, found, ring
        #: Checkpoints whose files of the ring make it up: rounds, and the ring's `put` at that time.
        self._parts: list[tuple[int, list[int]]] = []
        #: Such parts since the first of them, those counted that a later one has taken in.
        self._n_parts = 0
        #: Two of the same round (a periodic one, and the best one) would be written into the same folder.
        self._in_order = asyncio.Lock()

    async def write(self, command: words.WriteCheckpoint) -> None:
        """Gather the state of the task and write it."""
        m, started = self.m, time.perf_counter()
        committed = m.committed
        more = {"eval_best": command.eval_best, "settings": dict(command.settings), "swapping": command.swapping}
        more["memories"] = dict(command.memories)
        try:
            trained = Trained(
                state=State(
                    published=np.frombuffer(committed.published, np.uint8),
                    facts=dict(committed.facts),
                    buffer=np.frombuffer(committed.state, np.uint8),
                ),
                **{name: getattr(command, name) for name in ("n_rounds", "n_timesteps", "elapsed_s", "episodes")},
                envs=await self._envs(command),
                replay=await self._replay(command.n_rounds),
            )
        except ConnectionError:
            return  # the ring is gone: there is no whole state, and ReplayLost ends this attempt
        m.host.feed(words.CheckpointGathered, version=command.version)
        failure, n_bytes = "", 0
        try:
            async with self._in_order:
                if await m.rows.is_superseded() or await m.renew_lock():
                    return  # the folder is the later attempt's
                folder, best = m.out / "checkpoints" / m.task, command.reason == "best"
                n_bytes = await asyncio.to_thread(
                    write_trained, folder, m.spec, trained, more, best=best, attempt=m.attempt
                )
        except checkpoint.SupersededError as error:  # it began while we wrote
            m.link.keep(m.finish("failed", str(error), superseded=True))
            return
        except OSError as error:
            failure = error.strerror or str(error)
            self._parts.clear()
        m.host.feed(
            words.CheckpointWritten,
            version=command.version,
            elapsed_s=time.perf_counter() - started,
            n_bytes=n_bytes,
            failure=failure,
        )

    async def _replay(self, n_rounds: int) -> Fragment | None:
        """Return what a checkpoint writes of the ring: what is new, and what some of the latest parts held before it.

        As in a binary counter: a part takes in those that are no larger, so there are few, and each row is written
        again only a few times.
        """
        number = self._n_parts + 1
        before = self._parts[: max(0, len(self._parts) + 1 - (number & -number).bit_length())]
        while before and before[-1][0] == n_rounds:  # its folder is written again
            before.pop()
        ring = await self._ring(before[-1][1] if before else None)
        if ring is None or "put" not in ring.arrays:
            return ring
        put = ring.arrays["put"]
        if not ring.header["part"]:
            before, number = [], 0
        # What has been overwritten in every environment is needed no more.
        before = [part for part in before if np.any(put - np.array(part[1]) < ring.header["n_rows"])]
        self._parts, self._n_parts = [*before, (n_rounds, put.tolist())], number
        return Fragment({**ring.header, "before": [f"../{n}/{REPLAY}" for n, _ in before]}, ring.arrays)

    async def _envs(self, command: words.WriteCheckpoint) -> Facts | None:
        """Return the environments' states: of collectors that rest as they are, else as the version's round found them.

        Those of which nothing is known begin anew, which is counted then.  None: nobody has acted yet.
        """
        asks = {asyncio.ensure_future(self._ask(i, node, op="state")) for i, node in command.collectors}
        if asks:
            _, late = await asyncio.wait(asks, timeout=_ANSWER_S if command.reason == "stop" else None)
            for ask in late:
                ask.cancel()
            asks -= late
        replies = [ask.result() for ask in asks]
        states = [pickle.loads(reply["payload"]) for reply in replies if reply.get("op") == "state"]
        states = [*self._found(command.version), *states]
        if not states and not self.m.acted:
            return self.m.envs
        return joined(states) if states else {"round": command.version, "envs": {}}


def write_trained(
    folder: Path,
    spec: WorkSpec,
    trained: Trained,
    more: Facts | None = None,
    *,
    best: bool = False,
    attempt: int | None = None,
) -> int:
    """Write a state, and `more` facts, as :func:`drlnb.runtime.files.checkpoint.write` does."""
    facts, blobs = pack(spec, trained)
    return checkpoint.write(
        folder,
        n_rounds=trained.n_rounds,
        facts={**facts, **(more or {})},
        blobs=blobs,
        best=best,
        attempt=attempt,
        earlier=trained.replay.header.get("before", ()) if trained.replay is not None else (),
    )


def read_newest(folder: Path, spec: WorkSpec) -> tuple[Trained, Facts] | None:
    """Return the state in the newest whole checkpoint of a task, and its facts; None if there is none at all.

    Raises
    ------
    CheckpointError
        If there are checkpoints but none is whole, or the newest belongs to another task.
    """
    newest = checkpoint.latest(folder)
    if newest is None:
        return None
    old, new = newest.facts.get("spec", {}), spec.to_plain()
    for name in ("work", "env", "n_envs", "observation_space", "action_space"):
        if old.get(name) != new.get(name):
            raise CheckpointError(f"{newest.path}: its {name} is {old.get(name)}, this task's is {new.get(name)}")
    return unpack(newest.facts, newest.blobs, str(newest.path), spec)[1], newest.facts


def envs_for(envs: Facts, env_indices: Sequence[int]) -> bytes:
    """Return what one collector restores its environments from; those that the checkpoint lacks begin anew."""
    saved = envs["envs"]
    mine = {str(i): saved.get(str(i), {"snapshot": None}) for i in env_indices}
    return pickle.dumps({"round": envs["round"], "envs": mine}, protocol=5)


def taken_over(master: "Master", restored: tuple[Trained, Facts] | None) -> Plain:
    """Give a checkpoint to a master; return the fields of TaskOpened.

    Parameters
    ----------
    master
        The master, whose machine is not up yet.
    restored
        What was read, and its other facts; None: the task begins.
    """
    if restored is None:
        nothing = dict.fromkeys(("version", "n_rounds", "n_timesteps", "n_bytes"), 0)
        return {**nothing, "elapsed_s": 0.0, "episodes": (), "settings": master.live}
    trained, facts = restored
    published, buffer = trained.state.published.tobytes(), trained.state.buffer.tobytes()
    master.committed = Committed(published=published, facts=dict(trained.state.facts), state=buffer)
    master.gate = StoreGate(version=trained.n_rounds + 1)
    master.envs, master.ring_state = trained.envs, trained.replay
    return {
        "version": master.gate.version,
        **{name: getattr(trained, name) for name in ("n_rounds", "n_timesteps", "elapsed_s", "episodes")},
        "n_bytes": len(published),
        "eval_best": facts.get("eval_best"),
        "swapping": facts.get("swapping"),
        "memories": facts.get("memories", {}),
        "settings": {**facts.get("settings", {}), **master.live},
    }

"""Write a running task's state as a checkpoint, and read the newest one back."""

import asyncio
import pickle
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drlnb.records import round as words
from drlnb.records.base import Command
from drlnb.records.errors import CheckpointError
from drlnb.records.spec import TaskSpec
from drlnb.rl.checkpoints.files import pack, unpack
from drlnb.rl.checkpoints.trained import State, Trained, joined
from drlnb.rl.fragments import Fragment
from drlnb.runtime.files import checkpoint

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["CheckpointEffects", "envs_for", "read_newest", "write_trained"]


class CheckpointEffects:
    """Writes the checkpoints of one master, one after the other.

    Parameters
    ----------
    master
        Whose.
    ask_collector
        ``(collector, node, op=...)`` -> its answer, ``op`` is ``gone`` if it or its node is.
    ring
        Returns the replay ring, None if the task has none; raises ConnectionError if its process is gone.
    """

    def __init__(
        self,
        master: "Master",
        ask_collector: Callable[..., Coroutine[Any, Any, dict[str, Any]]],
        ring: Callable[[], Coroutine[Any, Any, Fragment | None]],
    ) -> None:
        self.m, self._ask_collector, self._ring = master, ask_collector, ring
        #: Two of the same round (a periodic one, and the best one) would be written into the same folder.
        self._in_order = asyncio.Lock()
        self.table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            words.WriteCheckpoint: self._write
        }

    async def _write(self, command: words.WriteCheckpoint) -> None:
        m, started = self.m, time.perf_counter()
        committed = m.committed
        more = {"eval_best": command.eval_best, "settings": dict(command.settings)}
        try:
            trained = Trained(
                state=State(
                    published=np.frombuffer(committed.published, np.uint8),
                    facts=dict(committed.facts),
                    buffer=np.frombuffer(committed.state, np.uint8),
                ),
                n_rounds=command.n_rounds,
                n_timesteps=command.n_timesteps,
                elapsed_s=command.elapsed_s,
                episodes=command.episodes,
                envs=await self._envs(command.collectors),
                replay=await self._ring(),
            )
        except ConnectionError:
            return  # the ring is gone: there is no whole state, and ReplayLost ends this attempt
        m.host.feed(words.CheckpointGathered, version=command.version)
        failure, n_bytes = "", 0
        try:
            async with self._in_order:
                if await m.rows.is_superseded():
                    return  # the folder is the later attempt's
                n_bytes = await asyncio.to_thread(
                    write_trained,
                    m.out / "checkpoints" / m.task,
                    m.spec,
                    trained,
                    more,
                    best=command.reason == "best",
                    attempt=m.attempt,
                )
        except checkpoint.SupersededError:
            return  # it began while we wrote
        except OSError as error:
            failure = error.strerror or str(error)
        m.host.feed(
            words.CheckpointWritten,
            version=command.version,
            elapsed_s=time.perf_counter() - started,
            n_bytes=n_bytes,
            failure=failure,
        )

    async def _envs(self, collectors: Sequence[tuple[int, str]]) -> Mapping[str, Any] | None:
        """Return the joined state of the collectors that are there."""
        asks = [self._ask_collector(i, node, op="state") for i, node in collectors]
        states = [pickle.loads(reply["payload"]) for reply in await asyncio.gather(*asks) if reply["op"] == "state"]
        return joined(states) if states else None


def write_trained(
    folder: Path,
    spec: TaskSpec,
    trained: Trained,
    more: Mapping[str, Any] | None = None,
    *,
    best: bool = False,
    attempt: int | None = None,
) -> int:
    """Write a state as a checkpoint of a task; return its bytes.

    Parameters
    ----------
    folder
        ``OUT/checkpoints/<task>``.
    spec
        The task, with its spaces.
    trained
        Its state.
    more
        Other facts.
    best
        It is the best one so far.
    attempt
        Whose; None: no master writes there yet.

    Raises
    ------
    OSError
        If the disk refuses; what was there before is whole.
    SupersededError
        If a later attempt has begun.
    """
    facts, blobs = pack(spec, trained)
    return checkpoint.write(
        folder, n_rounds=trained.n_rounds, facts={**facts, **(more or {})}, blobs=blobs, best=best, attempt=attempt
    )


def read_newest(folder: Path, spec: TaskSpec) -> tuple[Trained, Mapping[str, Any]] | None:
    """Return the state in the newest whole checkpoint of a task, and its facts; None if there is none at all.

    Raises
    ------
    CheckpointError
        If there are checkpoints but none is whole, or the newest belongs to another task.
    """
    newest = checkpoint.latest(folder)
    if newest is None:
        return None
    old = newest.facts.get("spec", {})
    for name in ("env", "n_envs", "observation_space", "action_space"):
        wanted = spec.to_plain()[name]
        if old.get(name) != wanted:
            raise CheckpointError(f"{newest.path}: its {name} is {old.get(name)}, this task's is {wanted}")
    return unpack(newest.facts, newest.blobs, str(newest.path), spec)[1], newest.facts


def envs_for(envs: Mapping[str, Any], env_indices: Sequence[int]) -> bytes:
    """Return what one collector restores its environments from; those that the checkpoint lacks begin anew."""
    saved = envs["envs"]
    mine = {str(i): saved.get(str(i), {"snapshot": None}) for i in env_indices}
    return pickle.dumps({"round": envs["round"], "envs": mine}, protocol=5)

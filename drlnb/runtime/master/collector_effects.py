"""Start a collector's process, have it act, end it between two rounds, and start it again."""

import asyncio
import pickle
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from drlnb.planning.round.state import RING
from drlnb.records import round as words
from drlnb.records.base import Facts, from_plain
from drlnb.records.columns import warmup
from drlnb.rl.fragments import Fragment
from drlnb.runtime.master.checkpoint_effects import envs_for
from drlnb.runtime.protocol import Plain, fields_of

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["CollectorEffects"]

#: Time for starting a collector's process beside making its environments, in seconds.
_START_S = 60.0
#: So many times that is waited for a start: its node starts a few at a time, and sees to it that each is in time.
_TURNS = 10


class CollectorEffects:
    """Carries out the commands about collectors: starts, stops and revocations of each in their order.

    Parameters
    ----------
    master
        Whose.
    """

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Collector -> number of the newest command about its start.
        self._starts: Counter[int] = Counter()
        #: Collector -> round that it was started for last.
        self._begun: dict[int, int] = {}
        #: Collector -> latest round that it was woken for.
        self._woken: dict[int, int] = {}
        #: Collector -> state of its environments after some round, and the actions of the rounds since.
        self._states: dict[int, tuple[bytes, list[np.ndarray]]] = {}
        #: Collector -> the state before the newest one.
        self._former: dict[int, bytes] = {}
        #: Keeps a collector's start and its end apart.
        self._lives: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: Fragments so far: a second copy from a restarted collector has a key of its own.
        self._n_fragments = 0

    async def call(self, collector: int, node: str, op: str, /, **message: Any) -> Plain:
        """Ask a node about a collector of ours, or the master's own node about the replay ring."""
        m = self.m
        address = m.link.address if collector == RING else m.addresses.get(node, "")
        message = {"timeout_s": None, "key": (m.run, m.task, collector), **message}
        return await m.link.call(address, op, **message)

    async def ask(self, collector: int, node: str, /, **header: object) -> Plain:
        """Send a frame to a collector and return its answer; ``refused`` if it, its node or the way there is gone."""
        return await self.call(collector, node, "drlnb_collector_ask", header=header, quiet_s=self.m.quiet_s)

    def start_of(self, node: str, name: str) -> Plain:
        """Return what the start of a process on a node has in common with others; `name` is that of its log."""
        m = self.m
        log = str(m.out / "logs" / node / f"{m.task}-{name}.log")
        return {"attempt": m.attempt, "master": m.link.address, "log": log}

    # ------------------------------------------------------------------ starts and ends
    async def start(self, command: warmup.StartCollector) -> None:
        """Start a collector when its time has come."""
        if command.round and self._begun.get(command.collector) == command.round:
            return  # it was started for this round: another time changes nothing
        self._starts[command.collector] += 1
        number = self._starts[command.collector]
        if command.after_s > 0:
            await asyncio.sleep(command.after_s)
            if self._starts[command.collector] != number:
                return  # another time was set, or the start was taken back
        self._begun[command.collector] = command.round
        async with self._lives[command.collector]:
            await self._start_now(command, number)

    async def _start_now(self, command: warmup.StartCollector, number: int) -> None:
        m, collector = self.m, command.collector
        begun = m.losses.begins(collector)
        how = {"mode": command.start_mode, "round": command.round, "number": begun, "quiet_s": m.quiet_s}
        reply = await self.call(
            collector,
            command.node,
            "drlnb_collector_start",
            # One that is started for a round may wait long for a CPU slot before.
            timeout_s=None if m.quiet_s is None or command.round else _TURNS * (m.quiet_s + _START_S),
            payload=self._env_states(command),
            configuration={"spec": m.spec_plain, "collector": collector, "env_indices": command.env_indices},
            **how,
            **self.start_of(command.node, str(collector)),
        )
        if "refused" not in reply:
            self._ready(command, number, reply)
        elif self._starts[collector] == number:
            m.process_lost(collector, command.node, reply, number=begun)

    def _ready(self, command: warmup.StartCollector, number: int, reply: Plain) -> None:
        if self._starts[command.collector] == number:  # not taken back meanwhile: then its end is on the way
            which = {"collector": command.collector, "node": command.node, "round": command.round}
            self.m.host.feed(warmup.CollectorReady, **which, **reply["event"])

    async def stop(self, command: warmup.StopCollector) -> None:
        """End a process; its environments' states stay at its node, for the next one (the leasing patent, claim 2)."""
        self._begun.pop(command.collector, None)
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def revoke_start(self, command: warmup.RevokeStart) -> None:
        """Revoke a start: what waits for its time never happens, what has happened ends again."""
        self._starts[command.collector] += 1
        self._begun.pop(command.collector, None)
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def _end_process(self, collector: int, node: str) -> None:
        m = self.m
        more = {"timeout_s": None if m.quiet_s is None else m.quiet_s + _START_S, "quiet_s": m.quiet_s}
        await self.call(collector, node, "drlnb_collector_stop", attempt=m.attempt, **more)

    def _env_states(self, command: warmup.StartCollector) -> bytes:
        """Return what a collector's environments go on from: where its last experience left them, else a checkpoint.

        Nothing where they are at its node (mode ``respawn``), or the task begins.
        """
        m, collector = self.m, command.collector
        if collector not in m.acted:
            return b"" if m.envs is None else envs_for(m.envs, command.env_indices)
        if command.round:
            return b""
        if command.anew or collector not in self._states:
            return envs_for({"round": self._woken[collector], "envs": {}}, command.env_indices)
        state, actions = self._states[collector]
        return pickle.dumps({**pickle.loads(state), "actions": actions}, protocol=5)

    def found(self, version: int) -> list[Facts]:
        """Return states of environments as the round that acts with a version found them, as far as they are known."""
        kept = [*self._former.values(), *(state for state, _ in self._states.values())]
        known = [*([self.m.envs] if self.m.envs is not None else []), *map(pickle.loads, kept)]
        return [state for state in known if state["round"] == version]

    # ------------------------------------------------------------------ acting
    async def wake(self, command: warmup.WakeCollector) -> None:
        """Have a collector act with the parameters of a round."""
        m, collector = self.m, command.collector
        self._woken[collector] = command.round
        reply = await self._act("wake", command)
        if reply is None:
            return
        m.acted.add(collector)
        self._n_fragments += 1
        key = f"{collector}/{command.round}/{self._n_fragments}"
        fragment = reply["fragment"]
        m.experience[key] = (fragment, reply["payload"])
        if "state" in reply:
            if collector in self._states:
                self._former[collector] = self._states[collector][0]
            self._states[collector] = (reply["state"], [])
        elif collector in self._states:
            self._states[collector][1].append(Fragment.unpack(fragment, reply["payload"]).arrays["action"].copy())
        m.host.feed(
            words.ExperienceArrived,
            collector=collector,
            attempt=m.attempt,
            n_bytes=len(reply["payload"]),
            key=key,
            episodes=from_plain(fragment["episodes"]),
            queued_s=reply["queued_s"],
            **{name: fragment[name] for name in ("round", "version", "n_samples", "collect_s")},
        )

    async def evaluate(self, command: words.Evaluate) -> None:
        """Have a collector play episodes."""
        reply = await self._act("evaluate", command)
        if reply is not None:
            which = {name: getattr(command, name) for name in ("version", "n_episodes", "deterministic")}
            self.m.host.feed(words.EvaluationFinished, **which, failure="", **from_plain(reply["event"]))

    async def _act(self, op: str, command: warmup.WakeCollector | words.Evaluate) -> Plain | None:
        """Have a collector act; without an answer wait for word of its loss, or report that none has come."""
        losses = self.m.losses
        question = losses.asks(command.collector)
        reply = await self.ask(command.collector, command.node, op=op, **fields_of(command))
        if "refused" in reply:
            why: Plain = {"reason": f"did not answer: {reply['refused']}", "detail": ""}
        elif reply["op"] == "error":  # its environment raised
            why = {"reason": reply["message"], "detail": reply["detail"]}
        else:
            return reply
        which: Plain = {name: getattr(command, name) for name in ("collector", "node", "version")}
        await losses.unanswered(question, **which, evaluates=op == "evaluate", **why)
        return None

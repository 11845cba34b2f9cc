"""A machine that plays a script of commands, for both drivers: it asks what each of them answers.

A step names its commands and the events that they must end in; the next step begins when all of these are here.  What
comes beside them is kept, too: the test compares everything that the two drivers have said.
"""

import os
import signal

from drlnb.planning.round.state import ROUND_DEFAULTS
from drlnb.records import round as words
from drlnb.records.columns import distribution, warmup

__all__ = ["GONE", "RelayDies", "Scripted", "answers", "install", "install_death", "is_deadly", "reached"]

#: A host that is no node any more.
GONE = "gone"
N_COLLECTORS = 3


def install():
    """Put the script in the place of the round machine, in the process of a master."""
    from drlnb.runtime.master import master

    master.RoundMachine = Scripted


def install_death(dask_worker):
    """Put the script in which a relay dies in the place of the round machine, and have it die by its own SIGKILL."""
    from drlnb.planning.distribution import RelayAssembly
    from drlnb.runtime.master import master

    take = RelayAssembly.take

    def dying(self, chunk):
        if is_deadly(chunk.version, chunk.children):
            os.kill(os.getpid(), signal.SIGKILL)
        return take(self, chunk)

    RelayAssembly.take = dying
    RelayDies.master_node = str(dask_worker.name)
    master.RoundMachine = RelayDies


class Scripted:
    """Plays the steps of :meth:`_script`."""

    def __init__(self, config, planners=None):
        self.config = {**ROUND_DEFAULTS, **config}
        self._steps = self._script()
        self._missing = []
        self._out = []
        # what the events have brought
        self.nodes, self.fence, self.slot, self.n_bytes, self.made = (), None, "", 0, ""
        self.fragments = {}

    def snapshot(self):
        """Have no state that anybody goes on from."""
        return {}

    def check(self):
        """Have no invariants."""

    def handle(self, event):
        if isinstance(event, words.PlacementReceived):
            self.nodes = event.collector_nodes
        elif isinstance(event, words.LeaseReceived):
            self.fence, self.slot = event.fence, event.slots[0]
        elif isinstance(event, words.ParametersReady):
            self.n_bytes, self.made = event.n_bytes, event.key
        elif isinstance(event, words.ExperienceArrived):
            self.fragments[event.collector] = event.key
        self._out = []
        if isinstance(event, words.TaskOpened):
            self._missing = next(self._steps)
        elif (answer := _answer(event)) in self._missing:
            self._missing.remove(answer)
            while not self._missing and (step := next(self._steps, None)) is not None:
                self._missing = step
        return tuple(self._out)

    # ------------------------------------------------------------------ the script
    def _script(self):
        """Yield, step by step, the events that must come; the step's commands are in the answer by then."""
        self._out.append(words.RequestSlot(request_id="a/1/0-1", round=0))
        yield [("PlacementReceived",), ("LeaseReceived",)]
        self._out.append(words.InitialiseParameters(fence=self.fence, slot=self.slot))
        yield [("ParametersReady",)]
        yield self._commit(0)
        self._out += [
            warmup.StartCollector(collector=i, node=node, env_indices=(i,), after_s=0.0, start_mode="zygote")
            for i, node in enumerate(self.nodes)
        ]
        yield [("CollectorReady", i, node) for i, node in enumerate(self.nodes)]
        self._out += [self._send(1, node) for node in self.nodes]
        yield [("HostCompleted", node, 1) for node in self.nodes]
        yield self._wake(1)
        self._out.append(words.RequestSlot(request_id="a/1/1-2", round=1))
        yield [("LeaseReceived",)]
        self._out += [
            words.ComputeGradient(
                collector=i, round=1, key=key, fence=self.fence, slot=self.slot, version=1, after_timesteps=96,
                swap_plan_key=None,
            )
            for i, key in sorted(self.fragments.items())
        ]  # fmt: skip
        yield [("GradientComputed", i) for i in range(N_COLLECTORS)]
        self._out.append(words.FinishRound(round=1, fence=self.fence, slot=self.slot))
        yield [("ParametersReady",)]
        yield self._commit(1)
        first, second, third = self.nodes
        self._out.append(self._send(2, first, ((second, ((third, ()),)),)))
        yield [("HostCompleted", node, 2) for node in self.nodes]
        yield self._wake(2)
        rest = tuple(enumerate(self.nodes))
        self._out.append(words.WriteCheckpoint(version=2, n_rounds=1, n_timesteps=96, reason="end", collectors=rest))
        yield [("CheckpointGathered",), ("CheckpointWritten", "")]
        self._out.append(words.Evaluate(collector=0, node=first, version=2, n_episodes=1))
        yield [("EvaluationFinished", "")]
        self._out.append(self._send(3, first, ((GONE, ((third, ()),)),)))
        yield [("HostCompleted", first, 3), ("HostUnreachable", GONE, ""), ("HostUnreachable", third, GONE)]
        self._out.append(words.EndTask(state="done", reason="the script is over"))

    def _commit(self, round_):
        self._out.append(
            words.CommitParameters(version=round_ + 1, round=round_, fence=self.fence, key=self.made),
        )
        self._out.append(words.ReturnLease(fence=self.fence, clean=True, computed_s=0.0))
        return [("ParametersCommitted",), ("LeaseClosed",)]

    def _send(self, version, host, children=()):
        return distribution.SendChunk(version=version, start=0, stop=self.n_bytes, host=host, children=children)

    def _wake(self, version):
        self._out += [
            warmup.WakeCollector(collector=i, node=node, round=version, version=version, n_steps=32)
            for i, node in enumerate(self.nodes)
        ]
        return [("ExperienceArrived", i, version) for i in range(N_COLLECTORS)]


def is_deadly(version, children):
    """Return whether a message of :class:`RelayDies` kills the host that it reaches: the middle one of the chain."""
    return version == 2 and bool(children) and not children[0][1]


class RelayDies(Scripted):
    """Sends a second version along a chain of three hosts, whose middle one dies when it has the bytes."""

    #: The master's own node, which must not be the one that dies.
    master_node = ""

    def _script(self):
        start = super()._script()
        for _ in range(4):  # lease, first parameters, their commit, the collectors' starts
            yield next(start)
        first, second, third = self.nodes = sorted(self.nodes, key=lambda node: node != self.master_node)
        self._out += [self._send(1, node) for node in self.nodes]
        yield [("HostCompleted", node, 1) for node in self.nodes]
        self._out.append(self._send(2, first, ((second, ((third, ()),)),)))
        yield [("HostCompleted", first, 2), ("HostUnreachable", second, ""), ("HostUnreachable", third, second)]
        self._out.append(words.EndTask(state="done", reason="the script is over"))


#: Event -> the fields that say whose it is and whether it is good news.
_FIELDS = {
    "CollectorReady": ("collector", "node"),
    "HostCompleted": ("host", "version"),
    "HostUnreachable": ("host", "relay"),
    "ExperienceArrived": ("collector", "version"),
    "GradientComputed": ("collector",),
    "CheckpointWritten": ("failure",),
    "EvaluationFinished": ("failure",),
}


def _answer(event):
    name = type(event).__name__
    return (name, *[getattr(event, field) for field in _FIELDS.get(name, ())])


def answers(stream, nodes):
    """Return what a driver has answered, sorted: kinds and whose, nodes by the number of their collector."""
    numbers = {node: f"host {i}" for i, node in enumerate(nodes)}
    events = [_answer(event) for event, _ in stream.answers() if type(event).__name__ != "ClockRelated"]
    return sorted([tuple(str(numbers.get(part, part)) for part in answer) for answer in events])


def reached(stream):
    """Return what became of each version at each host: hosts by their place in the chain."""
    chain = next(command for command in stream.of(distribution.SendChunk) if command.children)
    ((second, ((third, _),)),) = chain.children
    numbers = {chain.host: "first", second: "second", third: "third", "": ""}
    events = stream.of(distribution.HostCompleted, distribution.HostUnreachable)
    return sorted((type(e).__name__, e.version, numbers[e.host], numbers[getattr(e, "relay", "")]) for e in events)

"""A machine that plays a script of commands, for both drivers: it asks what each of them answers.

A step names its commands and the events that they must end in; the next step begins when all of these are here.  What
comes beside them is kept, too: the test compares everything that the two drivers have said.
"""

import os
import signal

from drlnb.planning.round.state import RING, ROUND_DEFAULTS
from drlnb.planning.swapping import SwapPlan, facts
from drlnb.records import round as words
from drlnb.records.columns import batching, distribution, swapping, warmup

__all__ = [
    "FIT",
    "GONE",
    "JoinsRound",
    "RelayDies",
    "Scripted",
    "SharesSteps",
    "answers",
    "install",
    "install_death",
    "reached",
]

#: A host that is no node any more.
GONE = "gone"
N_COLLECTORS = 3
#: What a gradient step may use.
BUDGET = 1 << 40
#: Supervised work: three steps of 16 samples, two slots.
FIT = {"n_learners": 2, "n_samples": 48, "batch_size": 16, "total_timesteps": 3}


def install(script=None):
    """Put a script in the place of the round machine, in the process of a master."""
    from drlnb.runtime.master import master

    master.RoundMachine = script or Scripted


def install_death(dask_worker):
    """Put the script in which a relay dies in the place of the round machine, and have it die by its own SIGKILL."""
    from drlnb.runtime.distribution import relay
    from drlnb.runtime.master import master

    next_ways = relay.next_ways

    def dying(hosts, edges):
        onward = next_ways(hosts, edges)
        if [len(way.names) for way in onward] == [1]:  # the middle one of the chain
            os.kill(os.getpid(), signal.SIGKILL)
        return onward

    relay.next_ways = dying
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
        self.nodes, self.fence, self.slot, self.slots, self.n_bytes, self.made = (), None, "", (), 0, ""
        self.shares, self.parameters = {}, ""
        self.fragments, self.profile = {}, {}

    @property
    def state(self):
        """Return what has its configuration."""
        return self

    def snapshot(self):
        """Have no state that anybody goes on from."""
        return {}

    def check(self):
        """Have no invariants."""

    def _step(self, event):
        """Note what a step that slots share has brought."""
        if isinstance(event, batching.ShareComputed):
            self.shares[event.first] = (event.key, event.denominator)
        elif isinstance(event, batching.GradientsApplied):
            self.parameters = event.key

    def handle(self, event):
        self._step(event)
        if isinstance(event, words.PlacementReceived):
            self.nodes = event.collector_nodes
        elif isinstance(event, words.LeaseReceived):
            self.fence, self.slots, self.slot = event.fence, event.slots, event.slots[0]
        elif isinstance(event, words.ParametersReady):
            self.n_bytes, self.made = event.n_bytes, event.key
        elif isinstance(event, swapping.SwapProfileTaken):
            self.profile = event.profile
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
        self._out.append(swapping.ApplySwapPlan(plan_key="kept", plan=facts(SwapPlan())))
        self._out += [
            words.ComputeGradient(
                collector=i, round=1, key=key, fence=self.fence, slot=self.slot, version=1, after_timesteps=96,
                swap=swapping.SwapOrder("kept", BUDGET, "median"),
            )
            for i, key in sorted(self.fragments.items())
        ]  # fmt: skip
        yield [("GradientComputed", i) for i in range(N_COLLECTORS)]
        work = {"round": 1, "fence": self.fence, "slot": self.slot, "collectors": tuple(range(N_COLLECTORS))}
        self._out.append(words.FinishRound(**work, swap=swapping.SwapOrder("all", BUDGET, "profile")))
        yield [("SwapStepMeasured", "all"), ("SwapProfileTaken",), ("ParametersReady",)]
        self._out.append(
            swapping.SearchSwapPlan(
                planner="auto", profile=self.profile, n_samples=24, memory_budget_bytes=BUDGET, seed=0, pins={}
            )
        )
        yield [("SwapPlanFound", BUDGET)]
        yield self._commit(1)
        first, second, third = self.nodes
        self._out.append(self._send(2, first, second, third))
        yield [("HostCompleted", node, 2) for node in self.nodes]
        yield self._wake(2)
        rest = tuple(enumerate(self.nodes))
        self._out.append(words.WriteCheckpoint(version=2, n_rounds=1, n_timesteps=96, reason="end", collectors=rest))
        yield [("CheckpointGathered",), ("CheckpointWritten", "")]
        self._out.append(words.Evaluate(collector=0, node=first, version=2, n_episodes=1))
        yield [("EvaluationFinished", "")]
        self._out.append(self._send(3, first, GONE, third))
        yield [("HostCompleted", first, 3), ("MessageLost", first, GONE, (third,))]
        self._out.append(distribution.AskMissing(version=3, hosts=(third, GONE)))
        yield [("RangesMissing", third), ("HostUnreachable", GONE)]
        self._out.append(self._send(3, third, source=GONE))
        yield [("HostUnreachable", GONE)]
        self._out.append(self._send(3, third, source=first))
        yield [("HostCompleted", third, 3)]
        self._out.append(distribution.MeasureLink(hosts=(third,)))
        yield [("LinkMeasured", (third,))]
        self._out.append(words.EndTask(state="done", reason="the script is over"))

    def _commit(self, round_):
        self._out.append(
            words.CommitParameters(version=round_ + 1, round=round_, fence=self.fence, key=self.made),
        )
        self._out.append(words.ReturnLease(fence=self.fence, clean=True, computed_s=(0.0,) * len(self.slots)))
        return [("ParametersCommitted",), ("LeaseClosed",)]

    def _send(self, version, *hosts, source=""):
        """Return the command that sends a version along a chain of hosts."""
        return distribution.SendParameters(
            version=version, source=source, hosts=hosts, routes=(tuple((i - 1, i) for i in range(len(hosts))),),
            sends=((0, self.n_bytes, 0),), n_in_flight=4, deadline_s=30.0,
        )  # fmt: skip

    def _wake(self, version):
        self._out += [
            warmup.WakeCollector(collector=i, node=node, round=version, version=version, n_steps=32)
            for i, node in enumerate(self.nodes)
        ]
        return [("ExperienceArrived", i, version) for i in range(N_COLLECTORS)]


class SharesSteps(Scripted):
    """Has two slots share steps of supervised work, the lead go on from the last one, or from one that it has not."""

    def _script(self):
        self._out.append(words.RequestSlot(request_id="a/1/0-1", round=0))
        yield [("PlacementReceived",), ("LeaseReceived",)]
        self._out.append(words.InitialiseParameters(fence=self.fence, slot=self.slot))
        yield [("ParametersReady",)]
        yield self._commit(0)
        self._out.append(words.RequestSlot(request_id="a/1/1-2", round=1, n_slots=2, n_least=2))
        yield [("LeaseReceived",)]
        lead, other = self.slots
        for step in range(2):
            split, self.shares = step + 1, {}
            for slot, first, n in ((lead, 0, 10), (other, 10, 6)):
                sizes = {"split": split, "step": step, "first": first, "n": n, "chunk": 4}
                of_round = {"round": 1, "version": 1, "after_timesteps": 3, "parameters": self.parameters}
                self._out.append(
                    batching.ComputeShare(fence=self.fence, slot=slot, **sizes, **of_round, lead=lead)
                )  # fmt: skip
            yield [("ShareComputed", split, 0, 10), ("ShareComputed", split, 10, 6)]
            self._out.append(batching.CutShare(fence=self.fence, slot=other, split=split))  # it is done: nothing comes
            yield self._apply(split, step)
        made, n_steps = self.parameters, 2
        for parameters in (made, "1/7/made/1"):
            yield self._apply(0, n_steps - 1, bool(parameters == made), parameters)
        self._out.append(words.FinishRound(round=1, fence=self.fence, slot=lead, collectors=(RING,)))
        yield [("ParametersReady",)]
        yield self._commit(1)
        self._out.append(words.EndTask(state="done", reason="the script is over"))

    def _apply(self, split, step, is_there=True, parameters=""):
        keys, denominators = zip(*[self.shares[first] for first in sorted(self.shares)], strict=True)
        self._out.append(
            batching.ApplyGradients(
                fence=self.fence, slot=self.slot, round=1, split=split, step=step, keys=keys if split else (),
                denominators=denominators if split else (), others=self.slots[1:], parameters=parameters,
            )
        )  # fmt: skip
        return [("GradientsApplied", split, is_there)]


class JoinsRound(Scripted):
    """Has two slots compute each minibatch of a round together."""

    def _script(self):
        start = super()._script()
        for _ in range(4):  # lease, first parameters, their commit, the collectors' starts
            yield next(start)
        node = self.nodes[0]  # there is one
        self._out.append(self._send(1, node))
        yield [("HostCompleted", node, 1)]
        yield self._wake(1)
        self._out.append(words.RequestSlot(request_id="a/1/1-2", round=1, n_slots=2, n_least=2))
        yield [("LeaseReceived",)]
        work = {"round": 1, "version": 1, "after_timesteps": 96, "fence": self.fence}
        batches = sorted(self.fragments.items())
        self._out += [words.ComputeGradient(**work, slot=self.slot, collector=i, key=key) for i, key in batches]
        yield [("GradientComputed", i) for i, _ in batches]
        collectors, keys = zip(*batches, strict=True)
        gang = {"members": self.slots, "sizes": (64, 32)}
        self._out.append(batching.JoinRound(**work, **gang, slot=self.slots[1], keys=keys, collectors=collectors))
        self._out.append(
            words.FinishRound(round=1, fence=self.fence, slot=self.slot, collectors=collectors, **gang)
        )  # fmt: skip
        yield [("RoundJoined", 1), ("ParametersReady",)]
        yield self._commit(1)
        self._out.append(words.EndTask(state="done", reason="the script is over"))


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
        self._out.append(self._send(2, first, second, third))
        yield [("HostCompleted", first, 2), ("MessageLost", first, second, (third,))]
        self._out.append(words.EndTask(state="done", reason="the script is over"))


#: Event -> the fields that say whose it is and whether it is good news.
_FIELDS = {
    "CollectorReady": ("collector", "node"),
    "HostCompleted": ("host", "version"),
    "HostUnreachable": ("host",),
    "LinkMeasured": ("hosts",),
    "MessageLost": ("sender", "host", "orphans"),
    "RangesMissing": ("host",),
    "ExperienceArrived": ("collector", "version"),
    "SwapStepMeasured": ("plan_key",),
    "SwapPlanFound": ("memory_budget_bytes",),
    "GradientComputed": ("collector",),
    "ShareComputed": ("split", "first", "n_done"),
    "GradientsApplied": ("split", "key"),
    "RoundJoined": ("round",),
    "CheckpointWritten": ("failure",),
    "EvaluationFinished": ("failure",),
}


def _answer(event):
    name = type(event).__name__
    said = [getattr(event, field) for field in _FIELDS.get(name, ())]
    return (name, *[bool(value) if name == "GradientsApplied" and type(value) is str else value for value in said])


def answers(stream, nodes):
    """Return what a driver has answered, sorted: kinds and whose, nodes by the number of their collector."""
    numbers = {node: f"host {i}" for i, node in enumerate(nodes)}
    events = [_answer(event) for event, _ in stream.answers() if type(event).__name__ != "ClockRelated"]

    def known(part):
        return str(tuple(map(known, part)) if isinstance(part, tuple) else numbers.get(part, part))

    return sorted([tuple(map(known, answer)) for answer in events])


def reached(stream):
    """Return what became of each version at each host: hosts by their place in the chain."""
    chain = next(command for command in stream.of(distribution.SendParameters) if len(command.hosts) == 3)
    names = {**dict(zip(chain.hosts, ("first", "second", "third"), strict=True)), "": ""}
    held = [("HostCompleted", e.version, names[e.host]) for e in stream.of(distribution.HostCompleted)]
    lost = [
        ("MessageLost", e.version, names[e.sender], names[e.host], *(names[host] for host in e.orphans))
        for e in stream.of(distribution.MessageLost)
    ]
    return sorted(held) + lost

"""Laws of the round machine under messages that are lost, doubled, delayed and overtaken, and under deaths."""

import random
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from round_words import N_STEPS, fence, round_config

from drlnb.planning.leasing.fence import StoreGate
from drlnb.planning.registry import Planners
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.warmup import WARMUP
from drlnb.planning.warmup.settings import COLLECTOR_MODES
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted, HostUnreachable, MessageLost, RangesMissing
from drlnb.records.columns.leasing import GradientKept, GradientsRestored, YieldAsked
from drlnb.records.columns.placement import NodeLost
from drlnb.records.columns.warmup import CollectorLost, CollectorReady, StartCollector, WakeCollector
from drlnb.records.common import DeadlinePassed, SettingChanged
from tests.learners import InTurn

NODES = ("n0", "n1", "n2")
SLOTS = ("s0", "s1", "s2")


class Peer:
    """A world that is as unkind as its seed, and then kind: each command is answered in the end, or its failure told.

    It knows nothing of the machine's state but its commands, and keeps books of its own to check the laws.
    """

    def __init__(self, seed, *, hold="round", n_rounds=4, n_collectors=3):
        self.rng = random.Random(seed)
        planners, streams = {"hold": hold, "distribution": "chain" if seed % 2 else "star"}, seed % 4 > 0
        if streams:  # their gradients can be computed by one, two or three learners
            planners["collect"] = "own:in-turn"
        self.machine = RoundMachine(
            round_config(
                can_respawn=True,
                warmup={
                    "collector_mode": self.rng.choice(COLLECTOR_MODES),
                    "planner": self.rng.choice(WARMUP.names),
                    "min_rounds": 2,
                },
                n_rounds=n_rounds,
                n_collectors=n_collectors,
                hold=hold,
                checkpoint_every=2,
                checkpoint_min_s=0.0,
                max_collector_restarts=10_000,
                max_executor_deaths=10_000,
                eval_freq=n_collectors * self.rng.choice([0, 8, 12]),
                eval_keep_best=True,
                streams=streams,
                n_learners=max(1, seed % 4),
                switch_limit_frac=0.2 if seed % 3 else 1e6,  # switches here are dear, and who yields must not mind
                planners=planners,
            ),
            Planners({"collect": InTurn(seed % 4)}),
        )
        self.kind = False
        #: Whether slots are wanted when they are granted, now and then; else always, and only once they are held.
        self.crowd = seed % 9 != 3
        self.t = 0.0
        #: Messages on their way to the machine.
        self.wire = []
        self.end = None
        # books
        self.token = 0
        self.live_fences = set()
        #: Fence -> slots of its lease; the most of them that computed under one.
        self.slots = {}
        self.n_together = 0
        self.returned = set()
        self.finished = set()
        self.open_requests = set()
        self.store = StoreGate()
        self.hosts = {}
        self.used = set()
        self.freed = set()
        self.settings = {}
        self.staged = {}
        self.kept = {}
        self.n_yields = self.n_fetched = 0
        self.alive = {}
        #: Collectors whose process was ended between two rounds and is not up again.
        self.stopped = set()
        #: Collector -> round that it was started for last.
        self.fired = {}
        self.n_stops = 0
        self.version = 0
        self.asked_to_stop = self.hangs = False

    # ------------------------------------------------------------------ the wire
    def send(self, kind, **values):
        """Put a message on the wire, sometimes twice."""
        self.wire += [partial(self.feed, kind, **values)] * self.copies()

    def copies(self):
        return 2 if not self.kind and self.rng.random() < 0.1 else 1

    def later(self, call):
        self.wire.append(call)

    def feed(self, kind, **values):
        self.t += self.rng.random()
        out = self.machine.handle(kind(t=self.t, **values))
        self.machine.check()
        for record in out:
            law = getattr(self, f"on_{type(record).__name__}", None)
            if law:
                law(record)

    def step(self):
        """Deliver any one message: whichever order is possible happens."""
        if self.wire:
            self.wire.pop(self.rng.randrange(len(self.wire)))()

    def fault(self):
        """Do one unkind thing."""
        faults = [self.kill_collector, self.kill_node, self.lose_lease, self.kill_executor, self.wish, self.demand]
        self.rng.choice(faults)()

    def demand(self):
        """Somebody else waits: whoever holds is asked, and so is one that has returned its lease already."""
        for token in [*self.live_fences, self.token]:
            self.send(YieldAsked, fence=fence(token))

    def kill_collector(self):
        i = self.rng.choice(list(self.machine.state.crew.members))
        node, number = self.alive.get(i, (None, 0))
        if node:
            self.alive[i] = (None, number + 1)
            self.send(CollectorLost, collector=i, node=node, reason="killed", detail="")

    def kill_node(self):
        node = self.rng.choice(NODES)
        for i, (at, number) in list(self.alive.items()):
            if at == node:
                self.alive[i] = (None, number + 1)
        self.send(NodeLost, node=node, reason="killed")

    def lose_lease(self):
        for token in list(self.live_fences):
            self.live_fences.discard(token)
            self.send(words.LeaseLost, fence=fence(token), reason="expired")

    def kill_executor(self):
        for token in list(self.live_fences):
            self.send(words.ExecutorDied, fence=fence(token), slot=self.slots[fence(token)][-1], reason="killed")

    def wish(self):
        kind = self.rng.choice([words.PauseAsked, words.ResumeAsked, words.CheckpointAsked, SettingChanged])
        if kind is SettingChanged:
            self.send(kind, key="leasing.hold", value=self.rng.choice(["round", "yield", "last", "never"]), task="a")
            self.send(kind, key="rl.ent_coef", value=self.rng.random(), task="a")
            self.send(kind, key="warmup.planner", value=self.rng.choice(WARMUP.names), task="a")
            self.send(kind, key="warmup.collector_mode", value=self.rng.choice(COLLECTOR_MODES), task="a")
        else:
            self.send(kind)

    # ------------------------------------------------------------------ commands, and the laws that they keep
    def on_RequestSlot(self, command):
        assert command.request_id not in self.open_requests, "a request id is used once"
        self.open_requests.add(command.request_id)
        n_slots = command.n_slots
        if command.n_least and self.rng.random() < 0.2:  # no more are up
            n_slots = self.rng.randint(command.n_least, n_slots)
        self.later(partial(self.grant, command.request_id, n_slots))

    def grant(self, request_id, n_slots):
        self.token += 1
        self.slots[fence(self.token)] = tuple(self.rng.sample(SLOTS, n_slots))
        self.live_fences.add(self.token)
        self.send(
            words.LeaseReceived,
            request_id=request_id,
            fence=fence(self.token),
            slots=self.slots[fence(self.token)],
            waited_s=self.crowd * self.rng.choice([0.0, 0.1]),
            demand=self.crowd * self.rng.random() > 0.5,
        )
        if not self.crowd:
            self.send(YieldAsked, fence=fence(self.token))

    def on_ReturnLease(self, command):
        self.live_fences.discard(command.fence.token)
        self.returned.add(command.fence)
        self.n_yields += command.yielded
        if command.yielded:
            assert command.fence not in self.finished, "nothing is given away while it is being finished"

    def under(self, command):
        """Check that the machine has not given this lease away."""
        assert command.fence not in self.returned, "nothing is done under a lease that was returned"

    def on_AskPlacement(self, command):
        nodes = tuple(self.rng.choice(NODES) for _ in range(command.n_collectors))
        self.send(words.PlacementReceived, collector_nodes=nodes)

    def on_StopCollector(self, command):
        assert command.collector not in self.stopped, "a process is ended once"
        assert command.round == self.version, "it ends after the round that it has acted in"
        self.n_stops += 1
        self.gone(command.collector)

    def on_RevokeStart(self, command):
        assert command.round in {self.version, self.version + 1}, "what is taken back is a start of the next round"
        self.gone(command.collector)

    def gone(self, collector):
        _, number = self.alive[collector]
        self.alive[collector] = (None, number + 1)
        self.stopped.add(collector)
        self.fired.pop(collector, None)

    def on_StartCollector(self, command):
        if command.round and self.fired.get(command.collector) == command.round:
            return  # it has been started for this round: another time changes nothing
        assert command.round == 0 or command.collector in self.stopped, "never two processes"
        if self.asked_to_stop:
            assert command.round <= self.version, "O5: no start for a round that does not come"
        assert command.round == 0 or command.round == self.version + 1 or self.hosts.get(command.node) == command.round
        _, number = self.alive.get(command.collector, (None, 0))
        self.alive[command.collector] = (command.node, number + 1)
        self.later(partial(self.started, command, number + 1))

    def lives(self, command, number):
        return self.alive[command.collector] == (command.node, number)

    def started(self, command: StartCollector, number):
        if self.lives(command, number) and not self.hangs:
            self.stopped.discard(command.collector)
            self.fired[command.collector] = command.round
            ready = partial(
                self.feed, CollectorReady, collector=command.collector, node=command.node, start_s=0.1, n_starting=1,
                start_mode="spawn", round=command.round,
            )  # fmt: skip
            self.wire += [partial(self.answered, command.collector, ready)] * self.copies()

    def answered(self, collector, ready):
        """Deliver the answer to a start, late perhaps, but not after that to the stop of the same process."""
        if collector not in self.stopped:
            ready()

    def on_WakeCollector(self, command: WakeCollector):
        assert command.version == command.round == self.version, "nobody acts but on the round's version"
        assert self.hosts.get(command.node) == command.version, "nobody acts below the version of the round"
        assert command.collector not in self.stopped, "who was stopped is started first"
        self.later(partial(self.acted, command, self.alive[command.collector][1]))

    def acted(self, command, number):
        if self.hangs or not self.lives(command, number):
            return
        if not self.kind and self.rng.random() < 0.1:
            self.alive[command.collector] = (None, number + 1)
            self.send(CollectorLost, collector=command.collector, node=command.node, reason="send failed", detail="")
            return
        self.send(
            words.ExperienceArrived, collector=command.collector, round=command.round, attempt=1,
            version=command.version, n_samples=N_STEPS, n_bytes=1, key=f"{command.round}/{command.collector}/{number}",
            collect_s=0.5, episodes=((1.0, 1),),
        )  # fmt: skip

    def on_ComputeGradient(self, command):
        self.under(command)
        self.store.learn(command.fence, 1)
        assert command.key not in self.freed, "a batch that is sent has not been freed"
        assert command.version == self.version, "gradients start from the committed version"
        settings = self.settings.setdefault(command.round, dict(command.settings))
        assert settings == command.settings, "a round has one set of settings, whoever computes it"
        assert command.slot in self.slots[command.fence], "work goes to slots of the lease"
        self.stage(command, command.collector)
        key = f"g/{command.key}/{command.fence}" if command.keep else ""
        self.kept[key] = (command.round, command.collector)
        self.computing(
            command,
            words.GradientComputed,
            collector=command.collector, round=command.round, fence=command.fence, slot=command.slot, elapsed_s=0.1,
            key=key,
        )  # fmt: skip

    def stage(self, work, collector):
        there = self.staged.setdefault((work.fence, work.slot), set())
        assert collector not in there, "I11: a collector's gradient enters a round once"
        there.add(collector)

    def on_KeepGradient(self, command):
        self.n_fetched += 1
        self.under(command)
        assert command.collector in self.staged[command.fence, command.slot], "it was computed there, under this lease"
        key = f"g/{command.round}/{command.collector}/{command.fence}"
        self.kept[key] = (command.round, command.collector)
        which = {"collector": command.collector, "round": command.round, "fence": command.fence}
        self.computing(command, GradientKept, **which, key=key)

    def on_RestoreGradients(self, command):
        self.under(command)
        self.store.learn(command.fence, 1)
        assert command.version == self.version, "gradients belong to the committed version"
        for collector, key in zip(command.collectors, command.keys, strict=True):
            assert self.kept[key] == (command.round, collector), "a gradient is that of its batch"
            self.stage(command, collector)
        self.computing(command, GradientsRestored, round=command.round, fence=command.fence, elapsed_s=0.1)

    def on_InitialiseParameters(self, command):
        self.store.learn(command.fence, 1)
        self.ready(command, 0)

    def on_FinishRound(self, command):
        self.under(command)
        assert command.fence not in self.finished, "a round is finished once per lease"
        self.finished.add(command.fence)
        lead, *others = self.slots[command.fence]
        made_of = self.staged[command.fence, lead]
        assert command.slot == lead, "the first slot makes the parameters"
        assert made_of == set(command.collectors), "it is told whose gradients make the update"
        assert made_of == set(self.machine.state.crew.members), "S5: all gradients make the update"
        assert all(self.staged.get((command.fence, slot)) for slot in others), "every slot of a lease was given work"
        self.n_together = max(self.n_together, 1 + len(others))
        self.ready(command, command.round)

    def ready(self, command, k):
        self.computing(
            command, words.ParametersReady, round=k, fence=command.fence, elapsed_s=0.1, n_bytes=64, key="k", metrics={}
        )

    def computing(self, command, kind, **values):
        if not self.kind and self.rng.random() < 0.05:
            self.send(words.ExecutorDied, fence=command.fence, slot=command.slot, reason="crash")
        else:
            self.send(kind, **values)

    def on_CommitParameters(self, command):
        self.under(command)
        if self.store.admit(command.fence, 1, command.version) is None:
            self.send(words.ParametersCommitted, version=command.version, fence=command.fence)

    def on_MetricsRecorded(self, record):
        assert record.n_timesteps == record.round * len(self.machine.state.crew.members) * N_STEPS

    def on_DropExperience(self, command):
        assert command.key not in self.freed or command.reason != "used", "a batch is used once"
        self.freed.add(command.key)
        if command.reason == "used":
            assert (command.collector, command.round) not in self.used, "each share is used once"
            self.used.add((command.collector, command.round))

    def on_DistributionPlanned(self, record):
        assert record.version in {self.version, self.version + 1}, "versions grow by one"
        self.version = record.version

    def on_SendParameters(self, command):
        for start, stop, number in command.sends:
            route, lost = command.routes[number], set()
            for i, (sender, receiver) in enumerate(route):
                if sender in lost:
                    lost.add(receiver)
                elif not self.kind and self.rng.random() < 0.1:
                    behind = {receiver: None}
                    for by, to in route[i:]:  # a sender comes before those that it sends to
                        behind |= {to: None} if by in behind else {}
                    lost |= behind.keys()
                    names = [command.hosts[each] for each in behind]
                    self.send(
                        MessageLost, version=command.version, sender=command.source, host=names[0], start=start,
                        stop=stop, orphans=tuple(names[1:]), again=command.again, reason="timed out",
                    )  # fmt: skip
                else:
                    self.later(partial(self.stored, command.hosts[receiver], command.version))

    def on_AskMissing(self, command):
        for host in command.hosts:
            if not self.kind and self.rng.random() < 0.3:
                self.send(HostUnreachable, host=host, version=command.version, reason="it does not answer")
            else:
                self.send(RangesMissing, host=host, version=command.version, missing=((0, 100),))

    def stored(self, host, version):
        self.hosts[host] = max(self.hosts.get(host, 0), version)
        self.send(HostCompleted, host=host, version=version, n_bytes=100, publish_s=0.1)

    def on_WriteCheckpoint(self, command):
        self.version = max(self.version, command.version)  # a stop publishes nothing
        failed = not self.kind and command.reason == "periodic" and self.rng.random() < 0.3
        if not failed:
            self.send(words.CheckpointGathered, version=command.version)
        failure = "disk full" if failed else ""
        self.send(words.CheckpointWritten, version=command.version, elapsed_s=0.1, n_bytes=1, failure=failure)

    def on_Evaluate(self, command):
        assert command.collector not in self.stopped, "who was stopped plays nothing"
        self.later(partial(self.evaluated, command, self.alive[command.collector][1]))

    def evaluated(self, command, number):
        if self.lives(command, number) and not self.hangs:
            self.send(
                words.EvaluationFinished, version=command.version, mean_reward=0.0, std_reward=0.0, n_episodes=1,
                failure="",
            )  # fmt: skip

    def on_EndTask(self, command):
        assert self.end is None, "a task ends once"
        self.end = command

    def on_SetDeadline(self, command):
        if command.name in {"stop", "checkpoint"}:
            self.send(DeadlinePassed, name=command.name)

    # ------------------------------------------------------------------ a life
    def live(self, n_unkind, *, stops=False, hangs=False):
        """Open the task, be unkind for some steps, stop it if it is to be stopped, then be kind until it ends.

        `hangs`: once it is to be stopped, no collector answers any more.
        """
        self.feed(
            words.TaskOpened, attempt=1, version=0, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0
        )
        self.on_AskPlacement(words.AskPlacement(n_collectors=len(self.machine.state.crew.members)))
        for _ in range(n_unkind):
            if self.rng.random() < 0.08:
                self.fault()
            self.step()
        self.kind = True
        if stops:
            self.hangs = hangs
            self.feed(words.StopAsked, reason="enough")
            self.asked_to_stop = True
        elif self.rng.random() < 0.5:  # else a round that was begun must end without a person's help
            self.send(words.ResumeAsked)
        for _ in range(5_000):
            if self.end and not self.wire:
                return
            if not self.wire:
                # Nothing is under way: the machine must not be waiting for anything but a person.
                assert not stops, f"a stop waits for a person in phase {self.machine.state.phase}"
                assert self.machine.state.phase == "paused", f"hangs in phase {self.machine.state.phase}"
                self.send(words.ResumeAsked)
            self.step()
        raise AssertionError(f"did not end: {self.machine.snapshot()}")


def keep_the_laws(seed, n_unkind, hold, n_collectors):
    peer = Peer(seed, hold=hold, n_collectors=n_collectors)
    peer.live(n_unkind)
    assert peer.end.state == "done"
    assert len(peer.used) == 4 * n_collectors, "each share of each round is used"
    assert peer.machine.state.hold.fence is None
    assert peer.machine.state.hold.request_id is None
    assert not peer.live_fences, "every lease has come back"
    return peer


LIVES = (st.integers(0, 2**32), st.integers(0, 300), st.sampled_from(["round", "yield", "last"]), st.integers(1, 3))


@settings(max_examples=40)
@example(77932, 66, "last", 2)  # a start is measured once its node is gone
@example(187681, 45, "yield", 2)  # a collector moves to another node while others of its round are being started
@given(*LIVES)
def test_a_task_ends_and_keeps_its_laws_whatever_happens(seed, n_unkind, hold, n_collectors):
    """Versions grow by one, each share counts once, nobody acts below the version; when faults stop, it ends."""
    keep_the_laws(seed, n_unkind, hold, n_collectors)


@settings(max_examples=30)
@example(78, 78, "last", 3, True)  # a user who has stopped a task that rests asks it to go on
@example(0, 78, "round", 3, False)  # a collector of the present round is being started when the stop comes
@given(*LIVES, st.booleans())
def test_a_task_that_is_stopped_ends_and_starts_nobody_for_another_round(seed, n_unkind, hold, n_collectors, hangs):
    """O5: wherever the stop comes, the task ends, without a person's or a collector's help, and no round follows."""
    keep_the_laws_of_stops(seed, n_unkind, hold, n_collectors, hangs)


def keep_the_laws_of_stops(seed, n_unkind, hold, n_collectors, hangs):
    peer = Peer(seed, hold=hold, n_collectors=n_collectors)
    peer.live(n_unkind, stops=True, hangs=hangs)
    assert peer.end.state in {"stopped", "done"}
    assert not peer.live_fences, "every lease has come back"
    version = peer.machine.state.version
    assert peer.machine.state.saved in {0, version}, "what was committed is on disk, if there are parameters"


def test_several_slots_compute_under_one_lease():
    """The laws of gangs are put to the test: two and three learners do work together, in kind lives and unkind ones."""
    assert {keep_the_laws(seed, n_unkind, "yield", 3).n_together for seed in range(1, 8) for n_unkind in (0, 150)} == {
        1, 2, 3,
    }  # fmt: skip


def test_slots_are_given_away_in_the_midst_of_a_round():
    """The laws of yields are put to the test, those of gradients among them that were not kept when they were made."""
    streams = [seed for seed in range(0, 90, 3) if seed % 4]
    peers = [keep_the_laws(seed, n_unkind, "yield", 3) for seed in streams for n_unkind in (0, 150)]
    assert sum(peer.n_yields for peer in peers) > 20
    assert sum(peer.n_fetched for peer in peers) > 5


def test_processes_are_ended_between_rounds():
    """The laws of stops and starts are put to the test: processes do end, in kind lives and in unkind ones."""
    assert sum(keep_the_laws(seed, n_unkind, "yield", 3).n_stops for seed in range(20) for n_unkind in (0, 150)) > 50


@pytest.mark.slow
@settings(max_examples=3_000)
@given(*LIVES)
def test_a_task_keeps_its_laws_in_thousands_of_lives(seed, n_unkind, hold, n_collectors):
    """The same, longer."""
    keep_the_laws(seed, n_unkind, hold, n_collectors)


@pytest.mark.slow
@settings(max_examples=3_000)
@given(*LIVES, st.booleans())
def test_thousands_of_tasks_are_stopped(seed, n_unkind, hold, n_collectors, hangs):
    """The same, longer."""
    keep_the_laws_of_stops(seed, n_unkind, hold, n_collectors, hangs)

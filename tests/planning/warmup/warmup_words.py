"""One task's warm-up machine as a test speaks to it."""

import json

from copies import is_copied

from drlnb.planning.warmup import WarmupMachine
from drlnb.records import round as words
from drlnb.records.base import from_plain
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import CollectorLost, CollectorReady
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence

FENCE = Fence(epoch=1, token=1)


def of(kind, records):
    """Return the records of one kind."""
    return [record for record in records if type(record) is kind]


def only(kind, records):
    """Return the one record of a kind."""
    (record,) = of(kind, records)
    return record


def kinds(records):
    """Return the class names of an answer, in order."""
    return [type(record).__name__ for record in records]


def config(n=2, *, can_respawn=True, **settings):
    settings = {"collector_mode": "respawn", "start_mode": "spawn", "planner": "saa", **settings}
    shares = [[i] for i in range(n)]
    return {
        "task": "a", "env_shares": shares, "settings": settings, "can_respawn": can_respawn,
    }  # fmt: skip


class Starts:
    """A warm-up machine; some events are also given to a copy that was restored just before from JSON."""

    def __init__(self, n=2, *, nodes=None, **more):
        self.config = config(n, **more)
        self.machine = WarmupMachine(self.config)
        self.n, self.t, self.round = n, 0.0, 1
        self.nodes = tuple(nodes or ["n0"] * n)
        self.records = []
        #: Whether events are given to copies.
        self.copied = True

    def feed(self, kind, *, at=None, **values):
        """Feed an event at a time, by default the present one."""
        self.t = self.t if at is None else at
        event = kind(t=self.t, **values)
        copied = self.copied and is_copied(kind, self.situation)
        before = json.dumps(self.machine.snapshot()) if copied else ""
        out = self.machine.handle(event)
        self.machine.check()
        if copied:
            copy = WarmupMachine(self.config)
            copy.restore(from_plain(json.loads(before)))
            assert copy.handle(event) == out
            assert copy.snapshot() == self.machine.snapshot()
        self.records += out
        return out

    @property
    def situation(self):
        """What tells the states apart in which an event means something else."""
        state = self.machine.state
        statuses = frozenset(member.status for member in state.members)
        return state.phase, state.settings.planner, statuses

    # ------------------------------------------------------------------ short words
    def placed(self, *nodes, at=None):
        self.nodes = nodes or self.nodes
        return self.feed(words.PlacementReceived, at=at, collector_nodes=self.nodes)

    def ready(self, i, at=None, *, start_s=1.0, n_starting=1, mode="spawn", node=None, round=0):
        return self.feed(
            CollectorReady, at=at, collector=i, node=node or self.nodes[i], start_s=start_s, n_starting=n_starting,
            start_mode=mode, round=round,
        )  # fmt: skip

    def arrived(self, i, at=None, *, round=None, n_samples=8):
        return self.feed(
            words.ExperienceArrived, at=at, collector=i, round=round or self.round, attempt=1,
            version=round or self.round, n_samples=n_samples, n_bytes=1, key=f"{self.round}/{i}", collect_s=1.0,
            episodes=(),
        )  # fmt: skip

    def granted(self, at=None, *, n_slots=0):
        return self.feed(
            words.LeaseReceived, at=at, request_id="r", fence=FENCE, slots=("s",), waited_s=0.0, n_slots=n_slots
        )

    def computed(self, i, at=None, elapsed_s=0.5):
        return self.feed(
            words.GradientComputed, at=at, collector=i, round=self.round, fence=FENCE, slot="s", elapsed_s=elapsed_s
        )

    def made(self, at=None):
        return self.feed(
            words.ParametersReady, at=at, round=self.round, fence=FENCE, elapsed_s=0.1, n_bytes=1, key="k", metrics={}
        )

    def completed(self, host="n0", at=None, *, version=None):
        return self.feed(HostCompleted, at=at, host=host, version=version or self.round + 1, n_bytes=100, publish_s=0.0)

    def lost(self, i, at=None):
        return self.feed(CollectorLost, at=at, collector=i, node=self.nodes[i], reason="killed", detail="")

    def dropped(self, node):
        """Drop a node, as the machine of rounds does once it is lost or cannot be reached."""
        self.machine.drop(node)
        self.machine.check()

    def lease_lost(self, at=None):
        return self.feed(words.LeaseLost, at=at, fence=FENCE, reason="expired")

    def set(self, key, value):
        return self.feed(SettingChanged, key=key, value=value, task="a")

    def pause(self, at=None):
        return self.feed(words.PauseAsked, at=at)

    def resume(self, at=None):
        return self.feed(words.ResumeAsked, at=at)

    def stop(self, at=None):
        return self.feed(words.StopAsked, at=at, reason="enough")

    # ------------------------------------------------------------------ whole rounds
    def open(self, start_s=1.0):
        """Place the collectors, all up, with version 1 at t = 0."""
        self.placed()
        for i in range(self.n):
            self.ready(i, start_s=start_s, n_starting=self.n)
        for node in sorted(set(self.nodes)):
            self.completed(node, version=1)
        return self

    def send(self, at=None, **more):
        """Send all experience at once; return all answers."""
        return sum((self.arrived(i, at, **more) for i in range(self.n)), ())

    def publish(self, at=None):
        """Let the next parameters reach all nodes."""
        return sum((self.completed(node, at) for node in sorted(set(self.nodes))), ())

    def whole_round(self, gap_s=6.0, *, collect_s=2.0, start_s=1.0, mode="spawn", n_slots=0):
        """Make a round whose collectors are ready `start_s` after they were started; return all answers."""
        began = self.t
        out = self.send(began + collect_s)
        t0 = self.t
        out += self.granted(t0 + 0.1 * gap_s, n_slots=n_slots)
        for i in range(self.n):
            out += self.computed(i, t0 + gap_s * (0.1 + 0.6 * (i + 1) / self.n), elapsed_s=0.6 * gap_s / self.n)
        out += self.made(t0 + 0.9 * gap_s)
        out += self.publish(t0 + gap_s)
        for i in range(self.n):
            if self.machine.state.members[i].status in {"starting", "resting"}:
                out += self.ready(i, max(self.t, t0 + gap_s + start_s), start_s=start_s, n_starting=i + 1, mode=mode)
        self.round += 1
        return out

"""One task's master as a test speaks to it: short words for its events, and picks from its answers."""

import json

from copies import is_copied

from drlnb.planning.distribution.publication import DEADLINE
from drlnb.planning.registry import Planners
from drlnb.planning.round.machine import RoundMachine
from drlnb.records import round as words
from drlnb.records.base import from_plain
from drlnb.records.columns.distribution import HostCompleted, HostUnreachable
from drlnb.records.columns.leasing import GradientKept, GradientsRestored, YieldAsked
from drlnb.records.columns.placement import NodeLost
from drlnb.records.columns.warmup import CollectorLost, CollectorReady
from drlnb.records.common import DeadlinePassed, SettingChanged
from drlnb.records.ids import Fence

N_STEPS = 8


def fence(token, epoch=1):
    return Fence(epoch=epoch, token=token)


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


def round_config(*, n_collectors=2, n_rounds=3, hold="round", **more):
    """Return the configuration of a task with one environment per collector and no periodic checkpoints."""
    return {
        "checkpoint_min_s": 1e9,
        "checkpoint_max_s": 1e9,
        "task": "a",
        "n_envs": n_collectors,
        "n_collectors": n_collectors,
        "n_steps": N_STEPS,
        "total_timesteps": n_rounds * n_collectors * N_STEPS,
        "planners": {"hold": hold},
        **more,
    }


class Master:
    """A round machine; each event comes a second after the one before, some are also given to a restored copy."""

    def __init__(self, own=None, **config):
        self.config, self.own = round_config(**config), own
        self.machine = RoundMachine(self.config, Planners(own))
        self.t = 0.0
        self.token = 0
        self.records = []

    @property
    def version(self):
        return self.machine.state.progress.version

    @property
    def phase(self):
        return self.machine.state.phase

    def feed(self, kind, **values):
        """Feed an event; check the machine, and now and then that a copy restored from JSON answers alike."""
        event = kind(t=self.t, **values)
        self.t += 1.0
        state = self.machine.state
        copy = None
        if is_copied(kind, (state.phase, state.hold.held, bool(state.warmup.state.trace))):
            copy = RoundMachine(self.config, Planners(self.own))
            copy.restore(from_plain(json.loads(json.dumps(self.machine.snapshot()))))
        out = self.machine.handle(event)
        self.machine.check()
        if copy is not None:
            assert copy.handle(event) == out
            assert copy.snapshot() == self.machine.snapshot()
        self.records += [event, *out]
        return out

    # ------------------------------------------------------------------ words
    def opened(
        self, *, attempt=1, version=0, n_rounds=None, n_timesteps=None, elapsed_s=0.0, episodes=(), n_bytes=None
    ):
        done = max(0, version - 1) if n_rounds is None else n_rounds
        return self.feed(
            words.TaskOpened,
            attempt=attempt,
            version=version,
            n_rounds=done,
            n_timesteps=done * self.config["n_collectors"] * N_STEPS if n_timesteps is None else n_timesteps,
            elapsed_s=elapsed_s,
            episodes=episodes,
            n_bytes=(100 if version else 0) if n_bytes is None else n_bytes,
        )

    def placed(self, *nodes):
        return self.feed(words.PlacementReceived, collector_nodes=nodes)

    def ready(self, i, node="n0"):
        return self.feed(CollectorReady, collector=i, node=node, start_s=0.1, n_starting=1, start_mode="zygote")

    def lost(self, i, node="n0", reason="killed", detail="", where=""):
        return self.feed(CollectorLost, collector=i, node=node, reason=reason, detail=detail, where=where)

    def granted(self, *, token=None, request_id=None, waited_s=0.0, demand=False, resident=None, slots=("n0/cpu0",)):
        self.token = token or self.token + 1
        return self.feed(
            words.LeaseReceived,
            request_id=request_id or self.machine.state.hold.request_id or "none",
            fence=fence(self.token),
            slots=slots,
            waited_s=waited_s,
            demand=demand,
            resident=resident,
        )

    def yield_asked(self, token=None):
        return self.feed(YieldAsked, fence=fence(token or self.token))

    def kept(self, i, key, *, token=None):
        return self.feed(GradientKept, collector=i, round=self.version, fence=fence(token or self.token), key=key)

    def restored(self, *, token=None, elapsed_s=0.01, moved_bytes=0):
        return self.feed(
            GradientsRestored,
            round=self.version,
            fence=fence(token or self.token),
            elapsed_s=elapsed_s,
            moved_bytes=moved_bytes,
        )

    def lease_lost(self, token=None, reason="expired"):
        return self.feed(words.LeaseLost, fence=fence(token or self.token), reason=reason)

    def executor_died(self, token=None):
        return self.feed(words.ExecutorDied, fence=fence(token or self.token), slot="n0/cpu0", reason="signal 9")

    def arrived(self, i, *, round=None, attempt=1, version=None, key=None, collect_s=2.0, episodes=(), **queue):
        k = self.version if round is None else round
        return self.feed(
            words.ExperienceArrived,
            collector=i,
            round=k,
            attempt=attempt,
            version=k if version is None else version,
            n_samples=N_STEPS,
            n_bytes=64,
            key=key or f"r{k}/c{i}",
            collect_s=collect_s,
            episodes=episodes,
            **queue,
        )

    def computed(self, i, *, token=None, elapsed_s=0.5, key="", moved_bytes=0, slot="n0/cpu0"):
        return self.feed(
            words.GradientComputed,
            collector=i,
            round=self.version,
            fence=fence(token or self.token),
            slot=slot,
            elapsed_s=elapsed_s,
            key=key,
            moved_bytes=moved_bytes,
        )

    def made(self, *, token=None, elapsed_s=0.25, n_bytes=100, metrics=None):
        return self.feed(
            words.ParametersReady,
            round=self.machine.state.round,
            fence=fence(token or self.token),
            elapsed_s=elapsed_s,
            n_bytes=n_bytes,
            key=f"v{self.machine.state.round + 1}",
            metrics=metrics or {},
        )

    def committed(self, *, version=None, token=None):
        return self.feed(
            words.ParametersCommitted,
            version=self.machine.state.round + 1 if version is None else version,
            fence=fence(token or self.token),
        )

    def completed(self, host="n0", *, version=None, publish_s=0.5):
        return self.feed(HostCompleted, host=host, version=version or self.version, n_bytes=100, publish_s=publish_s)

    def late(self):
        return self.feed(DeadlinePassed, name=DEADLINE)

    def unreachable(self, host, *, version=None):
        """Let all hosts that wait be late, and one of them not answer when it is asked what it misses."""
        self.late()
        return self.feed(HostUnreachable, host=host, version=version or self.version, reason="timed out")

    def node_lost(self, node):
        return self.feed(NodeLost, node=node, reason="killed")

    def gathered(self, version=None):
        return self.feed(words.CheckpointGathered, version=version or self.version)

    def written(self, version=None, failure=""):
        return self.feed(
            words.CheckpointWritten, version=version or self.version, elapsed_s=0.1, n_bytes=300, failure=failure
        )

    def evaluated(self, failure=""):
        return self.feed(
            words.EvaluationFinished,
            version=self.version,
            mean_reward=1.0,
            std_reward=0.0,
            n_episodes=20,
            failure=failure,
        )

    def set(self, key, value):
        return self.feed(SettingChanged, key=key, value=value, task="a")

    def say(self, kind, **values):
        return self.feed(kind, **values)

    def deadline(self, name):
        return self.feed(DeadlinePassed, name=name)

    # ------------------------------------------------------------------ chapters
    def at_version_1(self, *nodes):
        """Open the task and bring it to where its collectors have been woken for the first round; return that."""
        nodes = nodes or ("n0",) * self.config["n_collectors"]
        self.opened()
        self.placed(*nodes)
        self.granted()
        self.made()
        self.committed()
        for i, node in enumerate(nodes):
            self.ready(i, node)
        return [record for node in dict.fromkeys(nodes) for record in self.completed(node)]

    def to_commit(self):
        """Make the present round from the first arrival to the commit; return the commit's answer."""
        n = self.config["n_collectors"]
        for i in range(n):
            self.arrived(i)
        if not self.machine.state.hold.held:
            self.granted()
        for i in range(n):
            self.computed(i)
        self.made()
        return self.committed()

    def to_end(self):
        """Go on from the end of the last round to the end of the task, without another fault."""
        self.gathered()
        self.written()
        if self.phase != "ended":
            self.completed()
        return self.evaluated()

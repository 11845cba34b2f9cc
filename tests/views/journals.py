"""Small journals for the views: written record by record, or drawn by hypothesis."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from drlnb.records import round
from drlnb.records.columns import distribution, leasing, warmup
from drlnb.records.common import ClockRelated, DeadlinePassed, SettingChanged
from drlnb.records.effect import NEXT_ROUND
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened

EPOCH = 1_000_000_000


@dataclass
class Run:
    """Writes the streams of one pool and its tasks; every time is on the pool's clock."""

    origin: str = "measured"
    #: What a task's clock shows when the pool's shows 0.
    shift: dict = field(default_factory=dict)
    start: float = 0.0
    streams: dict = field(default_factory=dict)
    token: int = 0

    def __post_init__(self):
        self.pool = f"broker-e{EPOCH}"
        self.open(self.pool, "pool", {"epoch": EPOCH})

    def open(self, name, machine, config):
        header = StreamOpened(stream=name, machine=machine, config=config, origin=self.origin, version="0")
        self.streams[name] = (header, [])

    def say(self, stream, *records):
        self.streams[stream][1].extend(records)

    def slot(self, name="n0/cpu0", t=0.0):
        self.say(
            self.pool,
            leasing.SlotAdded(t=self.start + t, slot=name, node=name.split("/")[0], device="cpu", executor_epoch=1),
        )
        return self

    def task(self, name, attempt=1, n_rounds=0, total=1000, **config):
        stream = f"task-{name}-a{attempt}"
        self.open(stream, "round", {"task": name, "n_envs": 2, "n_steps": 5, "total_timesteps": total, **config})
        self.say(stream, round.TaskOpened(
            t=self.own(name, 0.0), attempt=attempt, version=0, n_rounds=n_rounds, n_timesteps=0, elapsed_s=0.0,
            episodes=(), n_bytes=0,
        ))  # fmt: skip
        if name in self.shift:
            self.say(stream, ClockRelated(
                t=self.own(name, 0.0), clock=self.pool, offset_s=-self.shift[name], error_s=0.0
            ))  # fmt: skip
        return self

    def own(self, task, t):
        return self.start + t + self.shift.get(task, 0.0)

    def ask(self, task, t, n=0):
        request = f"{task}/1/{n}-{n}"
        if f"task-{task}-a1" in self.streams:
            self.say(f"task-{task}-a1", leasing.HoldPlanned(round=n, action="request", planner="round", reason=""))
            self.say(f"task-{task}-a1", round.RequestSlot(request_id=request, round=n))
        self.say(
            self.pool,
            leasing.SlotRequested(
                t=self.start + t, request_id=request, task=f"run/{task}", attempt=1, round=n, node="n0"
            ),
        )
        return request

    def grant(self, task, t, asked, request, slot="n0/cpu0"):
        """Grant at `t`, in answer to a tick of the pool."""
        self.token += 1
        fence = Fence(epoch=EPOCH, token=self.token)
        if t > asked:
            self.say(self.pool, DeadlinePassed(t=self.start + t, name="tick"))
        self.say(self.pool, leasing.LeaseGranted(
            fence=fence, request_id=request, task=f"run/{task}", attempt=1, round=0, slots=(slot,), waited_s=t - asked
        ))  # fmt: skip
        if f"task-{task}-a1" in self.streams:
            self.say(f"task-{task}-a1", round.LeaseReceived(
                t=self.own(task, t), request_id=request, fence=fence, slots=(slot,), waited_s=t - asked
            ))  # fmt: skip
        return fence

    def work(self, task, fence, stop, elapsed, slot="n0/cpu0"):
        self.say(
            f"task-{task}-a1",
            round.GradientComputed(
                t=self.own(task, stop), collector=0, round=0, fence=fence, slot=slot, elapsed_s=elapsed
            ),
        )

    def give_back(self, task, fence, t, granted, computed, slot="n0/cpu0"):
        if f"task-{task}-a1" in self.streams:
            self.say(f"task-{task}-a1", round.ParametersCommitted(t=self.own(task, t), version=1, fence=fence))
            self.say(f"task-{task}-a1", round.ReturnLease(fence=fence, clean=True, computed_s=(computed,)))
        self.say(self.pool, leasing.LeaseReturned(t=self.start + t, fence=fence, clean=True, computed_s=(computed,)))
        self.say(self.pool, leasing.LeaseReleased(
            fence=fence, task=f"run/{task}", slots=(slot,), held_s=t - granted, computed_s=(computed,),
            reason="returned",
        ))  # fmt: skip

    def lease(self, task, asked, granted, returned, computed=0.0, slot="n0/cpu0", n=0):
        fence = self.grant(task, granted, asked, self.ask(task, asked, n), slot)
        if computed:
            self.work(task, fence, returned, computed)
        self.give_back(task, fence, returned, granted, computed, slot)
        return self

    def metrics(self, task, t, n, timesteps, attempt=1, **values):
        stream = f"task-{task}-a{attempt}"
        self.say(stream, round.ParametersCommitted(t=self.own(task, t), version=n, fence=Fence(epoch=EPOCH, token=0)))
        named = {name.replace("__", "/"): value for name, value in values.items()}
        self.say(stream, round.MetricsRecorded(round=n, n_timesteps=timesteps, metrics=named))
        return self

    def sent(self, task, n, t, collector=0, collect=0.5, stream="", **plan):
        """Say that a collector has sent round `n` at `t`, and what was planned; ended unless ``end=None``."""
        stream = stream or f"task-{task}-a1"
        end = plan.pop("end", warmup.StopCollector)
        planned = {"action": "cold", "planner": "saa", "reason": "because", "start_after_s": None, **plan}
        self.say(stream, round.ExperienceArrived(
            t=self.own(task, t), collector=collector, round=n, attempt=1, version=n, n_samples=5, n_bytes=40,
            key=f"{n}/{collector}", collect_s=collect, episodes=(),
        ))  # fmt: skip
        self.say(stream, warmup.WarmupPlanned(round=n, collector=collector, **planned))
        if end is not None:
            self.say(stream, end(collector=collector, node="n0", round=n))
        if planned["start_after_s"] is not None:
            self.starts(task, n, planned["start_after_s"], collector, stream)
        return self

    def starts(self, task, n, after_s, collector=0, stream=""):
        """Command the start for what follows round `n`, `after_s` after the latest event."""
        self.say(stream or f"task-{task}-a1", warmup.StartCollector(
            collector=collector, node="n0", env_indices=(collector,), after_s=after_s, round=n + 1
        ))  # fmt: skip

    def ready(self, task, t, start_s, collector=0, stream=""):
        """Say that a collector's process is up."""
        self.say(stream or f"task-{task}-a1", warmup.CollectorReady(
            t=self.own(task, t), collector=collector, node="n0", start_s=start_s, n_starting=1, start_mode="spawn"
        ))  # fmt: skip
        return self

    def arrived(self, task, t, version, stream=""):
        """Say that parameters are at the node."""
        self.say(
            stream or f"task-{task}-a1",
            distribution.HostCompleted(t=self.own(task, t), host="n0", version=version, n_bytes=100, publish_s=0.0),
        )
        return self

    def journal(self, torn=False):
        return Journal(streams={
            name: Stream(header=header, records=tuple(records), torn=torn, source=name)
            for name, (header, records) in self.streams.items()
        })  # fmt: skip


def two_tasks():
    """One slot for 10 s: a holds 0..2 and computes 1 of it, b asks at 1, holds 2..8, computes 3."""
    run = Run().slot().task("a").task("b")
    run.lease("a", 0.0, 0.0, 2.0, computed=1.0)
    run.lease("b", 1.0, 2.0, 8.0, computed=3.0)
    run.say(run.pool, SettingChanged(t=10.0, key="leasing.hold", value="yield", task=None, counts=NEXT_ROUND))
    return run


@st.composite
def runs(draw):
    """Return a run: some tasks hold one or two slots after each other, for random times."""
    run = Run(origin=draw(st.sampled_from(["measured", "simulated"])), start=draw(st.sampled_from([0.0, 1e6])))
    names = draw(st.lists(st.sampled_from(["a", "b", "<img src=x onerror=alert(1)>", "c,=1"]), min_size=1, unique=True))
    run.shift = {name: draw(st.floats(-5, 5)) for name in names}
    slots = draw(st.sampled_from([["n0/cpu0"], ["n0/cpu0", "n1/cpu0"]]))
    for slot in slots:
        run.slot(slot)
    for name in names:
        run.task(name)
    t = dict.fromkeys(slots, 0.0)
    for n in range(draw(st.integers(0, 12))):
        task, slot = draw(st.sampled_from(names)), draw(st.sampled_from(slots))
        wait, hold, share = draw(st.floats(0, 3)), draw(st.floats(0.001, 2)), draw(st.floats(0, 1))
        run.lease(task, t[slot], t[slot] + wait, t[slot] + wait + hold, computed=share * hold, slot=slot, n=n)
        t[slot] += wait + hold
        run.metrics(
            task,
            t[slot],
            n + 1,
            10 * (n + 1),
            rollout__ep_rew_mean=draw(st.floats(-9, 9)),
            round__time_s=hold + wait,
            round__wait_lease_s=wait,
            round__collect_s=wait,
            round__update_s=hold,
            round__push_s=0.0,
            round__control_s=0.0,
        )
        if draw(st.booleans()):
            _draw_rest(draw, run, task, t[slot], n + 1)
            t[slot] += 3.0
    if draw(st.booleans()):
        run.say(run.pool, leasing.LoadEstimated(
            n_tasks=2, n_slots=1, d_mean=0.25, bound_frac=0.5, expected_utilisation_frac=0.4, expected_inflation=1.25
        ))  # fmt: skip
    return run


def _draw_rest(draw, run, task, t, n):
    """Say what became of a collector between two rounds: ended or not, planned or not, early or late."""
    after = draw(st.sampled_from([None, 0.0, 0.25, 1.0]))
    run.sent(
        task, n, t + 0.5, start_after_s=after, action="cold" if after is None else "start",
        end=draw(st.sampled_from([warmup.StopCollector, None])),
        candidates=draw(st.sampled_from([(), ((0.5, 0.25, 0.5), (None, 1.0, 0.0))])),
        candidate_errors=draw(st.sampled_from([(), ((0.125, 0.25, 0.5), (0.0, 0.0, 0.0))])),
        filtered=draw(st.sampled_from([None, (3, 0.5, 2.0)])),
    )  # fmt: skip
    run.arrived(task, t + 1.5, n + 1)
    if after is None:
        run.starts(task, n, 0.0)
    run.ready(task, t + 2.0, 0.25)
    if draw(st.booleans()):
        run.say(f"task-{task}-a1", warmup.WarmupRegimeEnded(round=n, n_kept=1, reason="moved"))

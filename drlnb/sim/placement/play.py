"""Play the jobs of a window on slots that fail, under any planner: one fast loop over a heap of events.

Slots fail busy or not, by a path that was drawn before; the first failure of a member frees the others, and its job
waits again at its place in the queue, to go on from its last checkpoint.  All events of an instant are taken in before
anybody is planned: jobs that end, then slots that fail or are back, then jobs that are submitted.
"""

import heapq
from bisect import insort
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.learned.placement.planner import ended
from drlnb.planning.placement import GANGS, Cluster, ClusterView, JobView, Pick, Terms
from drlnb.planning.placement.cluster import SlotState, attempt_s
from drlnb.planning.placement.order import job_window, order_of, unreserved
from drlnb.planning.placement.rules import rate_of
from drlnb.planning.registry import Planner, PlannerFailed
from drlnb.records.errors import ConfigError
from drlnb.sim.placement.attempts import Attempt, Conditions, Outcome, kept_s, outcome_of, paced_s
from drlnb.sim.placement.faults import FaultPath
from drlnb.sim.placement.traces import TraceJob

__all__ = ["play", "simulate"]

#: What is taken in first where events fall into one instant.
_ENDS, _SLOT, _SUBMITTED = range(3)
_DAY_S = 86_400.0
#: Seconds of work that a job has at least while it is not over.
_LEAST_S = 1.0
#: Broken attempts of a window, beside so many of each job, after which one more job is held not to end at all.
_MOST_BROKEN = 5_000
#: Moments at which slots went or came while jobs waited and none ran, after which they are held not to start at all.
_MOST_IDLE = 100_000


def simulate(
    cluster: Cluster,
    jobs: Iterable[TraceJob],
    planner: str | Planner[ClusterView, Pick | None],
    path: FaultPath,
    **how: object,
) -> Outcome:
    """Play jobs under a planner, and return what they came to.

    Parameters
    ----------
    cluster
        Slots, and where they are.
    jobs
        As of :meth:`~drlnb.sim.placement.traces.Trace.window`.
    planner
        A planner, or the name of one of :data:`~drlnb.planning.placement.gangs.GANGS`.
    path
        When slots fail; the same one for all who are compared.
    how
        Fields of :class:`~drlnb.sim.placement.attempts.Conditions`, such as ``checkpoint_s=None``.

    Raises
    ------
    ConfigError
        If an argument is wrong, or a job needs more slots than there are.
    ValueError
        If there is no such planner.
    PlannerFailed
        If the planner raises, or returns a plan that does not fit.
    """
    asked = GANGS.build(planner) if isinstance(planner, str) else planner
    shown = {trait: GANGS.trait(asked, trait) for trait in ("window", "history")}
    game = play(cluster, jobs, path, Conditions.from_mapping(how), **shown)
    return ended(game, partial(GANGS.ask, asked))


def play(
    cluster: Cluster,
    jobs: Iterable[TraceJob],
    path: FaultPath,
    conditions: Conditions | None = None,
    *,
    window: bool = False,
    history: bool = False,
) -> Generator[ClusterView, Pick | None, Outcome]:
    """Yield the cluster whenever a job could start, be sent which one does and where, and return what came out.

    None instead of a :class:`~drlnb.planning.placement.cluster.Pick` waits for the next event.

    Parameters
    ----------
    cluster, jobs, path
        As of :func:`simulate`.
    conditions
        None: the defaults.
    window
        Show several jobs of the queue to choose from; else the next one.
    history
        Show what has become of each slot.

    Raises
    ------
    ConfigError
        If there is no job, an id stands twice, or a job needs more slots than there are.
    PlannerFailed
        If what is sent does not fit, or waits where nothing can change.
    """
    known = sorted(jobs, key=lambda job: job.submitted_s)
    problems = []
    if not known or len({job.job for job in known}) < len(known):
        problems.append("jobs must be at least one, each with an id of its own")
    elif (widest := max(known, key=lambda job: job.n_slots)).n_slots > cluster.n_slots:
        problems.append(f"job {widest.job} needs {widest.n_slots} slots, the cluster has {cluster.n_slots}")
    if len(path.rate_hz) != cluster.n_slots:
        problems.append(f"path must be of the cluster's {cluster.n_slots} slots, it is of {len(path.rate_hz)}")
    if problems:
        raise ConfigError(problems)
    return _Game(cluster, known, path, conditions or Conditions(), window, history).play()


class _Gang(NamedTuple):
    """A gang that computes."""

    job: JobView
    slots: tuple[int, ...]
    nodes: frozenset[int]
    terms: Terms
    slowdown: float
    started_s: float
    #: When it would have had to start to be where it is, had it always been as slow as it is now.
    begun_s: float
    ends_s: float

    @property
    def wide(self) -> frozenset[int]:
        """Its nodes, if they are several."""
        return self.nodes if len(self.nodes) > 1 else frozenset()


class _Game:
    """The state of a window that is played."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[TraceJob],
        path: FaultPath,
        conditions: Conditions,
        window: bool,
        history: bool,
    ) -> None:
        self.cluster, self.jobs, self.path = cluster, jobs, path
        self.terms, self.reserves = conditions.terms, conditions.backfill == "reserve"
        self.interference_frac = conditions.interference_frac
        #: Failures per second of so many slots that fail most, by their number.
        self.most_hz = [0.0, *accumulate(sorted(path.rate_hz, reverse=True))]
        self.window, self.history = window, history
        self.t, self.n_plans, self.n_ends = 0.0, 0, 0
        self.state: list[SlotState] = ["free"] * cluster.n_slots
        self.n_free = cluster.n_slots
        #: Gang of each slot, and failures that each has had.
        self.gang_of: list[_Gang | None] = [None] * cluster.n_slots
        self.failed_s: list[list[float]] = [[] for _ in self.state]
        self.n_wide = [0] * (max(cluster.node_of) + 1)
        self.gangs: dict[str, _Gang] = {}
        self.attempts: list[Attempt] = []
        views = [JobView(job=job.job, n_slots=job.n_slots, work_s=job.work_s) for job in jobs]
        self.ranks = {view.job: rank for rank, view in enumerate(order_of(conditions.order)(views))}
        #: Jobs that wait, by their ranks.
        self.queue: list[tuple[int, JobView]] = []
        #: Time, kind, number of a job or slot, number of a gang; a gang that ends may have been broken before.
        self.events: list[tuple[float, int, int, int, JobView | _Gang | None]] = [
            (job.submitted_s, _SUBMITTED, i, 0, view) for i, (job, view) in enumerate(zip(jobs, views, strict=True))
        ]
        self.events += [(path.outage(slot, 0)[0], _SLOT, slot, 0, None) for slot in range(cluster.n_slots)]
        self.n_to_come = len(jobs)
        heapq.heapify(self.events)

    def play(self) -> Generator[ClusterView, Pick | None, Outcome]:
        """Yield views and take plans until all jobs are over."""
        n_idle = 0
        while self.n_to_come or self.queue or self.gangs:
            n_idle = 0 if self.gangs or self.n_to_come else n_idle + 1
            if n_idle > _MOST_IDLE:
                raise ConfigError(self._never())
            self._take_in()
            while jobs := self._startable():
                self.n_plans += 1
                pick = yield self._view(jobs)
                if pick is None:
                    if not self.gangs and not self.n_to_come and "failed" not in self.state:
                        raise PlannerFailed("a planner of gangs waits while all slots are free and no job is to come")
                    break
                self._start(pick)
        return outcome_of(self.attempts, self.jobs, self.cluster.n_slots, self.n_plans)

    def _take_in(self) -> None:
        """Go on to the next instant at which anything happens, and take in all of it."""
        self.t = self.events[0][0]
        while self.events[0][0] == self.t:
            _, kind, number, _, what = heapq.heappop(self.events)
            if kind == _SLOT:
                self._slot_changes(number)
            elif isinstance(what, _Gang):
                if self.gangs.get(what.job.job) is what:
                    self._stop(what, what.job.work_s, finished=True)
            elif what is not None:
                self.n_to_come -= 1
                self._queue(what)

    def _never(self) -> str:
        """Say that the next job of the queue hardly ever starts."""
        _, job = self.queue[0]
        since_s = max((each.ended_s for each in self.attempts), default=0.0)
        days = (self.t - since_s) / _DAY_S
        return (
            f"job {job.job} of {job.n_slots} slots did not start in {days:.0f} days in which nothing ran: "
            "slots fail too often, or stay away too long"
        )

    # -------------------------------------------------------------- events
    def _slot_changes(self, slot: int) -> None:
        """Let a slot fail, or come back."""
        n_failures = len(self.failed_s[slot])
        if self.state[slot] == "failed":
            self.state[slot] = "free"
            self.n_free += 1
            comes_s = self.path.outage(slot, n_failures)[0]
        else:
            if gang := self.gang_of[slot]:
                self._break(gang)
            self.state[slot] = "failed"
            self.n_free -= 1
            self.failed_s[slot].append(self.t)
            comes_s = self.path.outage(slot, n_failures)[1]
        heapq.heappush(self.events, (comes_s, _SLOT, slot, 0, None))

    def _break(self, gang: _Gang) -> None:
        """Stop a gang of which a member has failed; its job waits again."""
        job = gang.job
        kept = kept_s(gang.terms, job, gang.slowdown, self.t - gang.begun_s)
        self._stop(gang, kept, finished=False)
        if len(self.attempts) > _MOST_BROKEN + 100 * len(self.jobs):
            n = sum(each.job == job.job for each in self.attempts)
            raise ConfigError(
                f"job {job.job} was broken {n} times and would hardly ever end: {job.n_slots} slots fail too often for "
                f"{job.work_s:g} s of work with checkpoint_s={gang.terms.checkpoint_s}"
            )
        self._queue(replace(job, work_s=max(_LEAST_S, job.work_s - kept), started=True))

    def _stop(self, gang: _Gang, kept: float, *, finished: bool) -> None:
        """Free the slots of a gang."""
        del self.gangs[gang.job.job]
        self.attempts.append(Attempt(gang.job.job, gang.slots, gang.started_s, self.t, kept, finished))
        for slot in gang.slots:
            self.state[slot], self.gang_of[slot] = "free", None
        self.n_free += len(gang.slots)
        for node in gang.wide:
            self.n_wide[node] -= 1
        self._paces_change(gang)

    def _queue(self, job: JobView) -> None:
        insort(self.queue, (self.ranks[job.job], job))

    # -------------------------------------------------------------- plans
    def _startable(self) -> tuple[JobView, ...]:
        """Return the jobs that a planner may start now."""
        if not self.queue or not self.n_free:
            return ()
        fitting = self._unreserved() if self.reserves else (job for _, job in self.queue if job.n_slots <= self.n_free)
        if self.window:
            return job_window(list(fitting))
        first = next(fitting, None)
        return () if first is None else (first,)

    def _unreserved(self) -> Iterator[JobView]:
        """Yield the jobs that start now without delaying the next of the queue, as far as nothing fails or slows down.

        That one starts, at the latest, when gangs that compute have ended and slots that failed are back.
        """
        ends = [(gang.ends_s, len(gang.slots)) for gang in self.gangs.values()]
        ends += [(self.t + self.path.mttr_s, self.state.count("failed"))]
        return unreserved([job for _, job in self.queue], self.n_free, self.t, ends, self._most_s)

    def _most_s(self, job: JobView) -> float:
        """Return how long a job takes on as many nodes as there are."""
        slowdown = self.terms.slowdown(len(self.n_wide), self.cluster.least_nodes(job.n_slots))
        return attempt_s(self.terms.of(self.most_hz[job.n_slots]), job, slowdown)

    def _view(self, jobs: tuple[JobView, ...]) -> ClusterView:
        view = ClusterView(
            cluster=self.cluster,
            state=tuple(self.state),
            rate_hz=self.path.rate_hz,
            window=jobs,
            terms=self.terms,
            t=self.t,
            n_wide=tuple(self.n_wide),
        )
        return self._with_history(view) if self.history else view

    def _with_history(self, view: ClusterView) -> ClusterView:
        """Return a view that says what has become of each slot."""
        t, mttr_s = self.t, self.path.mttr_s
        up, busy = list[float](), list[float]()
        for slot, (state, gang) in enumerate(zip(self.state, self.gang_of, strict=True)):
            n = len(self.failed_s[slot])
            back_s = self.path.outage(slot, n - 1)[1] if n else 0.0
            up.append(max(0.0, t - back_s))
            busy.append(gang.ends_s - t if gang else mttr_s * (state == "failed"))
        return replace(
            view,
            busy_for_s=tuple(busy),
            up_for_s=tuple(up),
            n_failures_24h=tuple(sum(t - at <= _DAY_S for at in some) for some in self.failed_s),
            n_failures_30d=tuple(sum(t - at <= 30 * _DAY_S for at in some) for some in self.failed_s),
        )

    def _start(self, pick: Pick) -> None:
        """Start a gang; PlannerFailed if the plan does not fit."""
        at = next((i for i, (_, job) in enumerate(self.queue) if job.job == pick.job), None)
        if at is None:
            raise PlannerFailed(f"job {pick.job!r} does not wait")
        _, job = self.queue[at]
        states = [self.state[slot] for slot in pick.slots]
        if len(set(pick.slots)) != job.n_slots or states != ["free"] * job.n_slots:
            raise PlannerFailed(
                f"job {job.job} needs {job.n_slots} different free slots, got {list(pick.slots)}: {', '.join(states)}"
            )
        del self.queue[at]
        nodes = frozenset(self.cluster.node_of[slot] for slot in pick.slots)
        terms = self.terms.of(rate_of(self.path.rate_hz, pick.slots)) if self.terms.young else self.terms
        slowdown = self._slowdown(job, nodes)
        ends_s = self.t + attempt_s(terms, job, slowdown)
        gang = _Gang(job, pick.slots, nodes, terms, slowdown, self.t, self.t, ends_s)
        self.n_free -= job.n_slots
        for node in gang.wide:
            self.n_wide[node] += 1
        self._computes(gang)
        self._paces_change(gang)

    def _computes(self, gang: _Gang) -> None:
        """Hold a gang, in place of what it was, and expect its end."""
        self.gangs[gang.job.job] = gang
        for slot in gang.slots:
            self.state[slot], self.gang_of[slot] = "busy", gang
        self.n_ends += 1
        heapq.heappush(self.events, (gang.ends_s, _ENDS, self.ranks[gang.job.job], self.n_ends, gang))

    # -------------------------------------------------------------- interference
    def _slowdown(self, job: JobView, nodes: frozenset[int]) -> float:
        """Return how many times as long a gang takes on nodes, beside the others that are there now."""
        far = self.terms.slowdown(len(nodes), self.cluster.least_nodes(job.n_slots))
        if not self.interference_frac:
            return far
        others = [name for name, gang in self.gangs.items() if name != job.job and gang.wide & nodes]
        return far * (1.0 + self.interference_frac * len(others))

    def _paces_change(self, cause: _Gang) -> None:
        """Let the gangs on the nodes of one that starts or stops go on faster or slower, from where they are."""
        if not self.interference_frac or not cause.wide:
            return
        for gang in [each for name, each in self.gangs.items() if name != cause.job.job and each.nodes & cause.nodes]:
            slowdown = self._slowdown(gang.job, gang.nodes)
            ran_s = paced_s(gang.terms, gang.job, gang.slowdown, self.t - gang.begun_s, slowdown)
            ends_s = max(self.t, self.t - ran_s + attempt_s(gang.terms, gang.job, slowdown))
            self._computes(gang._replace(slowdown=slowdown, begun_s=self.t - ran_s, ends_s=ends_s))

"""What becomes of a collector that has sent, and what do progress and a person change about it?"""

from dataclasses import replace
from typing import Any

from drlnb.planning.warmup.measuring import PARK, Measuring
from drlnb.planning.warmup.newsvendor import best_lead
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WarmupView, planner_named
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records import round as words
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.warmup import ParkCollector, StopCollector, WarmupPlanned, WarmupRegimeEnded
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError

__all__ = ["Planning"]

#: A revision that moves a start by less than this share of the lead is not worth a message.
_REVISE_FRAC = 0.05
_DIGITS = 6


class Planning(Measuring):
    """The part of the warm-up machine that plans starts."""

    def _experience_arrived(self, event: words.ExperienceArrived) -> None:
        i, trace = event.collector, self.trace
        if not 0 <= i < len(self.members):
            return
        if trace is not None and (event.round < trace.round or (event.round == trace.round and i in trace.sent_t)):
            return  # an old round's, or told twice
        if event.n_cpu_slots:
            self.cpu[self.members[i].node] = (event.n_cpu_slots, event.n_sharing)
        self._queue_told(event)
        if trace is None or event.round > trace.round:
            trace = self._open_round(event.round)
        trace.sent_t[i], trace.n_samples[i] = event.t, event.n_samples
        if (member := self.members[i]).status != "absent":  # it has acted
            member.status, member.ended, member.parked, member.planned_t = "up", False, False, None
        if self.ended:
            self._say(i, WarmupPlan(action="end", reason=self.ended), None)
        elif event.round == self.last_round:
            self._say(i, WarmupPlan(action="end", reason="no round follows this one: nobody rests"), None)
        elif self.members[i].status == "absent":
            trace.broken = True
            self._say(i, WarmupPlan(action="cold", reason="its process was lost and is started anew at once"), None)
        else:
            self._rest(i, event.t, keeps=event.keeps_cpu or not (self.queued and event.n_cpu_slots))
            self._revise(event.t)

    def _open_round(self, round_: int) -> RoundTrace:
        """Begin to watch a round; what a person changed counts from here on."""
        start_t = self.version_t if self.version == round_ else None
        self.former = self.trace
        self.queued = bool(self.config["queued"]) or self._shares()
        self.trace = RoundTrace(round=round_, n_workers=len(self.members), start_t=start_t)
        self.plan = None
        self._unsee()
        for member in self.members:
            # Where a host is slow, others have acted already: who waits for it is still to be started for this round.
            if member.status != "absent" and not member.ended:
                member.status, member.planned_t, member.due = "up", None, False
        self._apply_changes(round_)
        return self.trace

    def _shares(self) -> bool:
        """Whether some node of ours lends fewer CPU slots than collectors share them."""
        known = (self.cpu.get(member.node, (0, 0)) for member in self.members)
        return any(n_sharing > n_slots for n_slots, n_sharing in known)

    def _apply_changes(self, round_: int) -> None:
        former = self.settings
        self.settings, self.changed = replace(former, **self.changed), {}
        settings, history = self.settings, self.history
        history.window, history.filter_window = settings.window, settings.filter_window
        history.min_rounds = settings.min_rounds
        reasons = [
            f"{name} changed from {getattr(former, name)} to {getattr(settings, name)}"
            for name in ("collector_mode", "start_mode")
            if getattr(former, name) != getattr(settings, name)
        ]
        if reasons:
            for member in self.members:
                member.mode = ""
        if history.rows and history.rows[-1].key["hold"] != self.hold:
            reasons.append(f"hold changed from {history.rows[-1].key['hold']} to {self.hold}")
        if reasons and history.rows:
            history.end()
            if self.plans_starts:
                self._out.append(WarmupRegimeEnded(round=round_, n_kept=0, reason="; ".join(reasons)))

    # ------------------------------------------------------------------ plan
    def _view(self) -> WarmupView:
        if self.seen is not None:
            return self.seen
        rows = self.history.latest
        self.seen = WarmupView(
            settings=self.settings,
            gap_s=[row.gap_s for row in rows],
            start_s=self.history.starts(),
            round_s=[row.round_s for row in rows],
            pools_s=[self._pool(i) for i in range(len(self.members))],
        )
        return self.seen

    def _pool(self, i: int) -> tuple[float, ...]:
        """Return the starts that are a guide to one collector's: as many at once as the task has on its node."""
        member = self.members[i]
        at_once = sum(other.node == member.node for other in self.members)
        parks = self.settings.collector_mode == PARK
        mode = PARK if parks else member.mode or self.settings.start_mode
        return self.starts.samples(member.node, mode, at_once)

    def _make_plan(self) -> WarmupPlan:
        settings = self.settings
        if settings.collector_mode == "keep":
            return WarmupPlan(action="keep", reason="collector mode keep: not stopped")
        if settings.planner in ("cold", "keep"):  # they look at nothing
            return planner_named(settings.planner)(WarmupView(settings=settings))
        if not self.starts_needed:
            return WarmupPlan(action="cold", reason="parked collectors wake with the parameters: nothing to start")
        if self.resting:
            return WarmupPlan(action="cold", reason="the task rests after this round: no start is planned")
        plan = planner_named(settings.planner)(self._view())
        if plan.action == "keep" and settings.collector_mode == PARK:
            # It has given its slot back as it sent: to keep one is to ask for it at once.
            reason = f"{plan.reason}, but in the queue again at once"
            return replace(plan, action="start", reason=reason, start_after_s=0.0, lead_s=plan.expected_idle_s)
        return plan

    def _rest(self, i: int, t: float, *, keeps: bool) -> None:
        """Let a collector rest, and command its start if it is planned.  `keeps`: it has its CPU slot if it is kept."""
        assert self.trace is not None
        first = self.plan is None
        if self.plan is None:
            self.plan = self._make_plan()
        plan, member = self.plan, self.members[i]
        downgraded = plan.action == "keep" and self.keeps_cpu and not keeps
        if downgraded:
            reason = f"{plan.reason}, but {member.node} has no CPU slot left to keep: parked"
            plan = replace(plan, action="cold", reason=reason)
        after_s = None if self.resting else plan.start_s(i)
        if after_s is not None and plan.since == "round":
            after_s = None if self.trace.start_t is None else max(0.0, self.trace.start_t + after_s - t)
        self._say(i, plan if first else plan.repeated(), after_s)
        if plan.action == "keep":
            self.trace.kept.append(i)
            return
        member.parked = self.queued and (downgraded or self.settings.collector_mode == PARK)
        if member.parked:
            self.trace.parked.append(i)
        if member.parked or self.starts_needed:  # else it waits for the next parameters as it is: nothing to be done
            kind = ParkCollector if member.parked else StopCollector
            self._out.append(kind(collector=i, node=member.node, round=self.trace.round))
            member.ended = True
        member.status, member.planned_t = "resting", None
        if after_s is not None:
            self._start(i, after_s, t)

    def _say(self, i: int, plan: WarmupPlan, after_s: float | None, planner: str = "") -> None:
        assert self.trace is not None
        planned = after_s is not None
        self._out.append(
            WarmupPlanned(
                round=self.trace.round,
                collector=i,
                action="cold" if plan.action == "start" and not planned else plan.action,
                planner=planner or self.settings.planner,
                reason=plan.reason,
                start_after_s=None if after_s is None else round(after_s, _DIGITS),
                lead_s=round(plan.lead_s, _DIGITS) if planned and plan.lead_s is not None else None,
                candidates=plan.candidates,
                filtered=plan.filter_of(i),
                candidate_errors=plan.candidate_errors,
                saved_s=plan.saved_s,
                saved_error_s=plan.saved_error_s,
                newsvendor=plan.newsvendor,
            )
        )

    # ------------------------------------------------------------------ progress
    def _lease_received(self, event: words.LeaseReceived) -> None:
        self.n_slots = event.n_slots or self.n_slots
        if self.trace is not None and self.trace.granted_t is None:
            self.trace.granted_t = event.t
            self._revise(event.t)

    def _gradient_computed(self, event: words.GradientComputed) -> None:
        if self.trace is not None and event.round == self.trace.round:
            self.trace.gradient_s.append(event.elapsed_s)
            self.trace.last_gradient_t = event.t
            self._revise(event.t)

    def _parameters_ready(self, event: words.ParametersReady) -> None:
        if self.trace is not None and event.round == self.trace.round:
            self.trace.made_t = event.t
            self._revise(event.t)

    def _work_voided(self, event: words.LeaseLost | words.ExecutorDied) -> None:
        """Count this round's gradients from 0 again, and let its times be no guide."""
        if self.trace is not None and not self.trace.closed:
            self.trace.void()
            self.trace.broken = True
            self._revise(event.t)

    def _revise(self, t: float) -> None:
        """Plan anew from what is left of the round; until something has happened, history has the word."""
        trace, plan = self.trace, self.plan
        if self.settings.planner != "progress" or trace is None or plan is None or plan.action == "keep":
            return
        waiting = [i for i, member in enumerate(self.members) if member.status == "resting" and i in trace.sent_t]
        if not waiting or not trace.has_begun or self.resting or self.ended or not self.starts_needed:
            return
        view = self._view()
        if view.lack():
            return
        if self.paced is None:
            self.paced = self.history.pace(), best_lead(view.pools_s, self.settings.rho)[1]
        pace, lead_s = self.paced
        left_s = trace.remaining_s(pace, t)
        after_s = max(0.0, left_s - lead_s)
        done = f"{len(trace.gradient_s)} of {pace.n_gradients} gradients done, {left_s:.3g} s left"
        revised = WarmupPlan(action="start", reason=done, lead_s=lead_s)
        for i in waiting:
            planned_t = self.members[i].planned_t
            if planned_t is None or abs(t + after_s - planned_t) > _REVISE_FRAC * lead_s:
                self._say(i, revised, after_s)
                self._start(i, after_s, t)

    # ------------------------------------------------------------------ a person
    def _setting_changed(self, event: SettingChanged) -> None:
        if event.key == "leasing.hold":
            self.hold = str(event.value)
            return
        room, _, name = event.key.partition(".")
        if room != "warmup":
            return
        try:
            wanted: dict[str, Any] = {**self.changed, name: event.value}
            problem = self._mode_problem(replace(self.settings, **wanted))
        except (ConfigError, TypeError) as error:
            problem = f"unknown setting {event.key!r}" if isinstance(error, TypeError) else str(error)
        if problem:
            self._out.append(RequestRefused(subject=event.key, reason=problem))
        else:
            self.changed = wanted

    def _pause_asked(self, event: words.PauseAsked) -> None:
        del event
        self.resting = True
        for i, member in enumerate(self.members):
            if member.status == "resting":
                self._revoke(i, "the task is paused")

    def _resume_asked(self, event: words.ResumeAsked) -> None:
        self._go_on(event.t)

    def _go_on(self, t: float) -> None:
        self.resting = False
        for i, member in enumerate(self.members):
            if member.due:
                member.due = False
                self._start(i, 0.0, t, round_=self.version)

    def _stop_asked(self, event: words.StopAsked) -> None:
        self._end(f"stop: {event.reason}")

    def _task_failed(self, event: words.TaskFailed) -> None:
        self._end(f"failed: {event.reason}")

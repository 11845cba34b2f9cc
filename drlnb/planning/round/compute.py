"""What happens on the slot?  Requests, batches to the executor, the commit under the lease, the return."""

from collections.abc import Mapping
from typing import Any

from drlnb.planning.leasing.hold import Batch
from drlnb.planning.round.state import RoundState
from drlnb.planning.swapping import SwapView
from drlnb.records import round as words
from drlnb.records.columns import leasing, swapping
from drlnb.records.ids import Fence

__all__ = ["Computing"]


class Computing(RoundState):
    """The part of the round machine that holds the lease and speaks to the executor."""

    # ------------------------------------------------------------------ request
    def _plan_hold(self) -> None:
        plan = self.hold.planner.plan(self.hold.view(self.n_batches))
        if plan.action == "keep":
            self._send_batches()
        elif plan.action == "request":
            self._ask_for_slot(plan.reason)
        elif plan.action == "return":
            self._give_way(plan.reason)
        else:
            self._say_hold(plan.action, plan.reason)

    def _yield_asked(self, event: leasing.YieldAsked) -> None:
        if event.fence != self.hold.fence:
            return  # it has been returned meanwhile
        self.hold.wanted()
        self._consider()

    def _consider(self) -> None:
        """Ask the hold planner whether the slot is still worth holding, where it may give way at all."""
        if self.hold.held and self.n_bytes and self.hold.planner.yields and not self.hold.finishing:
            self._plan_hold()

    def _give_way(self, reason: str) -> None:
        """Return the slot in the midst of the round; gradients that were kept stay, what else was staged is void."""
        self._say_hold("return", reason)
        fence, computed_s = self.hold.yielded()
        self.scalars.ended(self.last_t)
        self._out.append(words.ReturnLease(fence=fence, clean=True, computed_s=computed_s, yielded=True))

    def _say_hold(self, action: str, reason: str) -> None:
        self._out.append(
            leasing.HoldPlanned(round=self.round, action=action, planner=self.hold.planner.name, reason=reason)
        )

    def _ask_for_slot(self, reason: str) -> None:
        self._say_hold("request", reason)
        request_id = self.hold.request(f"{self.task}/{self.attempt}/{self.round}")
        yields = self.hold.planner.yields and self.n_bytes > 0
        self._out.append(words.RequestSlot(request_id=request_id, round=self.round, yields=yields))
        if self.is_complete or not self.n_bytes:
            self._enter("waiting")

    def _lease_received(self, event: words.LeaseReceived) -> None:
        if event.fence == self.hold.fence:
            return  # the answer came twice: refusing it would return the lease that we hold
        if event.request_id != self.hold.request_id:
            self._refuse_lease(event)
            return
        self.hold.granted(event.fence, event.slots[0], event.waited_s, demand=event.demand, t=event.t)
        self.scalars.granted(event.t, waited_s=event.waited_s, resident=event.resident)
        if self.n_bytes:
            self._restore_gradients(event.fence, event.slots[0])
            self._send_batches()
        else:
            self._enter("computing")
            self._out.append(words.InitialiseParameters(fence=event.fence, slot=event.slots[0]))

    def _refuse_lease(self, event: words.LeaseReceived) -> None:
        self._out.append(words.ReturnLease(fence=event.fence, clean=True, computed_s=0.0))

    # ------------------------------------------------------------------ compute
    def _restore_gradients(self, fence: Fence, slot: str) -> None:
        """Let the executor have what was computed in this round under former leases."""
        if self.hold.done:
            self._out.append(
                leasing.RestoreGradients(
                    round=self.round,
                    fence=fence,
                    slot=slot,
                    version=self.progress.version,
                    n_timesteps=self.progress.n_timesteps,
                    collectors=tuple(self.hold.done),
                    keys=tuple(self.hold.done.values()),
                    settings=self.in_force,
                )
            )

    def _gradients_restored(self, event: leasing.GradientsRestored) -> None:
        if event.fence == self.hold.fence and not self.hold.finishing:
            self.hold.restored(event.t)
            self.scalars.moved_bytes += event.moved_bytes
            self._finish_if_all_in(event.fence)
            self._consider()

    def _send_batches(self) -> None:
        fresh = self.hold.to_send()
        if not fresh or self.hold.fence is None or self.hold.slot is None:
            return
        plan_key = self.swapping.plan(SwapView(round=self.round)).key
        if len(self.hold.sent) == len(fresh):  # the round's first
            self._out.append(swapping.SwapPlanned(round=self.round, planner=self.swapping.name, plan_key=plan_key))
        for batch in fresh:
            self._out.append(
                words.ComputeGradient(
                    collector=batch.collector,
                    round=self.round,
                    key=batch.key,
                    fence=self.hold.fence,
                    slot=self.hold.slot,
                    version=self.progress.version,
                    n_timesteps=self.progress.n_timesteps,
                    swap_plan_key=plan_key,
                    settings=self.in_force,
                    keep=self.hold.keeps,
                )
            )
        if self.is_complete:
            self._enter("computing")

    def _gradient_computed(self, event: words.GradientComputed) -> None:
        if event.fence != self.hold.fence or self.hold.slot is None or event.collector in self.hold.staged:
            return  # made under a lease that was lost: void; or told twice
        self.hold.computed(event.collector, event.elapsed_s, t=event.t, key=event.key)
        self.progress.update_s += event.elapsed_s
        self.scalars.moved_bytes += event.moved_bytes
        self._finish_if_all_in(event.fence)
        self._consider()

    def _finish_if_all_in(self, fence: Fence) -> None:
        if len(self.hold.staged) < self.n_batches or self.hold.slot is None:
            return
        self.hold.finishing = True
        n_samples = sum(batch.n_samples for batch in self.hold.batches.values())
        weights = {str(c): b.n_samples / n_samples for c, b in sorted(self.hold.batches.items())}
        self._out.append(words.FinishRound(round=self.round, fence=fence, slot=self.hold.slot, weights=weights))

    # ------------------------------------------------------------------ faults
    def _lease_lost(self, event: words.LeaseLost) -> None:
        if event.fence == self.hold.fence:
            self._void(f"lease {event.fence} lost: {event.reason}")

    def _executor_died(self, event: words.ExecutorDied) -> None:
        if event.fence != self.hold.fence:
            return
        self.n_executor_deaths += 1
        if self.n_executor_deaths >= self.config["max_executor_deaths"]:
            self._end("failed", f"the executor died {self.n_executor_deaths} times in one round: {event.reason}")
            return
        fence, computed_s = self.hold.returned()
        self._out.append(words.ReturnLease(fence=fence, clean=False, computed_s=computed_s))
        self._void(f"executor of {event.slot} died: {event.reason}")

    def _void(self, reason: str) -> None:
        self.hold.lost()
        self.scalars.ended(self.last_t)
        if not self.hold.done:
            self.progress.update_s = 0.0
        self._ask_for_slot(reason)

    # ------------------------------------------------------------------ commit
    def _parameters_ready(self, event: words.ParametersReady) -> None:
        if event.fence != self.hold.fence or self.hold.committing:
            return
        self.hold.committing = True
        self.hold.computed_s += event.elapsed_s
        self.progress.update_s += event.elapsed_s
        self.n_bytes_next = event.n_bytes
        self.metrics = dict(event.metrics)
        self._out.append(
            words.CommitParameters(version=event.round + 1, round=event.round, fence=event.fence, key=event.key)
        )

    def _parameters_committed(self, event: words.ParametersCommitted) -> None:
        # Not compared by fence: the lease may have been lost while the store, which checks fences, admitted it.
        if event.version != self.round + 1:
            return
        waited_s = self.hold.waited_s
        self.scalars.ended(event.t)
        if self.hold.held:
            clean = event.fence == self.hold.fence  # else the round is being computed once more: work in flight
            fence, computed_s = self.hold.returned()
            self._out.append(words.ReturnLease(fence=fence, clean=clean, computed_s=computed_s))
        self.hold.request_id = None  # its grant, if it comes, is returned
        self.n_executor_deaths = 0
        made_round, self.n_bytes = self.n_bytes > 0, self.n_bytes_next
        self._next_round(event.t, waited_s, made_round=made_round)

    def _next_round(self, t: float, waited_s: float, *, made_round: bool = True) -> None:
        n_samples = sum(batch.n_samples for batch in self.arrived.values())
        used = self.hold.next_round()
        self.fragments.clear()
        scalars = self.scalars.close(self.progress.version if made_round else 0)
        if made_round:
            self._close_round(t, n_samples, used, waited_s, scalars)
        self.progress.began(t)
        self.crew.next_round()
        self._boundary(t)

    def _close_round(
        self, t: float, n_samples: int, used: tuple[Batch, ...], waited_s: float, told: Mapping[str, Any]
    ) -> None:
        round_ = self.progress.version
        self.progress.finished(n_samples)
        metrics = self.progress.metrics(t, waited_s=waited_s, train={**told, **self.metrics})
        self._out.append(words.MetricsRecorded(round=round_, n_timesteps=self.progress.n_timesteps, metrics=metrics))
        for batch in used:
            self._drop(batch.key, batch.collector, round_, "used")

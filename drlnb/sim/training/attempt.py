"""Play the master of one attempt at a task: its messages to the pool, its work on executors.

The master is a process: it may be killed, then nothing reaches or leaves it any more, or stand still for a while.  What
its collectors and executors do goes on meanwhile; their answers reach a dead one never, a frozen one when it wakes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.leasing.fence import StoreGate
from drlnb.planning.round.machine import RoundMachine
from drlnb.records import round as words
from drlnb.records.base import Command, Event, Record, Row, shared
from drlnb.records.columns import leasing
from drlnb.records.columns.placement import NodeLost, PlacementAsked, SendPlacement, TaskStopped
from drlnb.records.ids import Fence
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Clock, Effect, Hosted
from drlnb.sim.training.nodes import Checkpoint, NodesSide
from drlnb.sim.training.pool import Pool

__all__ = ["Attempt"]

#: Pause before a request that was refused is made anew, in seconds: that of the real master.
_RETRY_S = 0.2
#: What an executor answers.
_ANSWERS = (words.GradientComputed, leasing.GradientKept, leasing.GradientsRestored, words.ParametersReady)


class Attempt:
    """The machine of one attempt at a task, and what it commands.

    Parameters
    ----------
    config
        Constructor arguments of the round machine.
    node
        Node of the master; it must stay up.
    attempt
        Its number, from 1.
    opening
        Where it begins: fields of :class:`~drlnb.records.round.TaskOpened` but for time and attempt.
    saved
        Called with those fields of each checkpoint that was written.
    """

    def __init__(
        self,
        clock: Clock,
        pool: Pool,
        workload: Durations,
        *,
        config: Mapping[str, Any],
        node: str,
        attempt: int,
        opening: Checkpoint,
        saved: Callable[[Checkpoint], None],
        validate: bool = False,
    ) -> None:
        machine = RoundMachine(config)
        self.attempt = attempt
        self.dead = False
        self.name, self.n_collectors = str(config["task"]), int(config["n_collectors"])
        self._placement = str(config.get("planners", {}).get("placement", ""))
        self._n_learners = int(config.get("n_learners", 1))
        #: The lease that the master holds for its own, and its request that has not been answered.
        self.fence: Fence | None = None
        self._open_request = ""
        #: Round whose small messages are sent now.
        self._round = 0
        #: The command that ended the task.
        self.end: words.EndTask | None = None
        self._clock, self._pool, self._workload = clock, pool, workload
        self._me: Row = {"task": self.name, "attempt": attempt, "node": node}
        pool.masters[self.name] = self
        self._opening = opening
        #: The newest request, and how often it was made anew under another id.
        self._wanted: words.RequestSlot
        self._n_again = 0
        effects: dict[type[Command], Effect] = {}
        self.host = Hosted(
            clock,
            machine,
            kind="round",
            config=machine.config,
            stream=f"task-{self.name}-a{self.attempt}",
            effects=effects,
            watch=self._watch,
            validate=validate,
        )
        store = StoreGate(version=opening["version"])
        self.nodes = NodesSide(pool, workload, self.host, self.name, attempt, clock, lambda: self._rpc_s, saved, store)
        effects |= self.nodes.effects  # their answers go to the host, so it was there first
        effects |= {
            words.RequestSlot: self._request,
            words.AskPlacement: self._ask_placement,
            words.ReturnLease: self._return,
            words.EndTask: self._end_task,
        }

    @property
    def _rpc_s(self) -> float:
        return self._workload.round(self._round).rpc_s

    def open(self) -> None:
        """Start the master."""
        self.host.feed(words.TaskOpened, attempt=self.attempt, **self._opening)
        self._ask_placement(words.AskPlacement(n_collectors=self.n_collectors, planner=self._placement))

    def _watch(self, record: Record) -> None:
        """Follow in the journal the lease, the request and the round of the master's process."""
        if isinstance(record, words.TaskOpened | words.ParametersCommitted):
            self._round = max(self._round, record.version)
        elif isinstance(record, words.RequestSlot):
            self._open_request = record.request_id
        elif isinstance(record, words.LeaseReceived) and record.request_id == self._open_request:
            self.fence, self._open_request = record.fence, ""
        elif isinstance(record, words.ReturnLease | words.LeaseLost) and record.fence == self.fence:
            self.fence = None

    # ------------------------------------------------------------------ deaths and pauses
    def kill(self) -> None:
        """End the master's process; what it has sent is under way, nothing reaches it any more."""
        self.dead = True
        self.host.close()
        self._pool.forget_holder(self.name)

    def freeze(self) -> None:
        """Stop the master's process, as SIGSTOP does."""
        self.host.frozen = True

    def thaw(self) -> None:
        """Resume a stopped process.

        It wakes with its executor's answers before its timers, and with no word of the pool: where an answer is there
        its own clock tells that the lease may be another's, else its overdue renewal asks the pool.
        """
        if self.dead:
            return
        self._pool.speaks(self.name)
        fence = self.fence
        lost = ""
        if fence is not None and self._pool.is_overdue(fence) and self.host.has_waiting(_ANSWERS):
            self._pool.let_go(fence)
            lost = f"no renewal for {self._pool.settings.holder_ttl_s:g} s: this process stood still"
        elif fence is not None and fence not in self._pool.held:
            self._pool.renew(fence)  # it renews what it took for its own
        self.host.thaw(*(((words.LeaseLost, {"fence": fence, "reason": lost}),) if lost else ()))

    # ------------------------------------------------------------------ what others say
    def granted(self, command: leasing.SendGrant) -> None:
        """Deliver the pool's answer to the master; to one that is gone it is lost."""
        if not self.dead:
            self._pool.hold(command.fence, self.name, command.slots)
            self._clock.after(self._rpc_s, self.host.when_up, self._receive, command, self._clock.now)

    def _receive(self, command: leasing.SendGrant, sent_t: float) -> None:
        request_id, again = _split(command.request_id)
        late = self._clock.now - sent_t > self._pool.settings.renew_s
        if late and not self._pool.renew(command.fence):  # granted long ago: it asks before it uses that
            self._ask_again(request_id, again + 1)
            return
        self.host.feed(words.LeaseReceived, **shared(command, words.LeaseReceived) | {"request_id": request_id})

    def report(self, kind: type[Event], **values: object) -> None:
        """Send the master an event: it arrives a small message later."""
        self.host.feed_after(self._rpc_s, kind, **values)

    def placed(self, command: SendPlacement) -> None:
        """Deliver the pool's answer to the master."""
        if command.attempt != self.attempt:
            return
        if command.refusal:
            self.report(words.TaskFailed, reason=command.refusal, detail="")
        else:
            self.report(words.PlacementReceived, collector_nodes=command.collector_nodes)

    def node_lost(self, node: str, reason: str) -> None:
        """Lose the collectors of a node and inform the master."""
        self.nodes.lose(node)
        self.report(NodeLost, node=node, reason=reason)

    # ------------------------------------------------------------------ the pool
    def _request(self, command: words.RequestSlot) -> None:
        self._wanted, self._n_again = command, 0
        self._clock.after(self._rpc_s, self._ask, command, 0)
        self._poll_later(command.request_id, 0)

    def _ask(self, command: words.RequestSlot, again: int) -> None:
        """Ask the pool for a slot; where it refuses, ask once more under another id."""
        self._n_again = again
        asked = shared(command, leasing.SlotRequested) | {"request_id": _numbered(command.request_id, again)}
        answer = self._pool.host.feed(leasing.SlotRequested, **asked, **self._me)
        refusals = [record for record in answer if isinstance(record, leasing.RequestRefused)]
        if any(refusal.final for refusal in refusals):
            self.report(words.TaskFailed, reason=refusals[0].reason, detail="")
        elif refusals:
            self._clock.after(_RETRY_S, self.host.when_up, self._ask_again, command.request_id, again + 1)
        elif again:
            self._poll_later(command.request_id, again)

    def _ask_again(self, request_id: str, again: int) -> None:
        if self._wants(request_id) and again > self._n_again:
            self._ask(self._wanted, again)

    def _wants(self, request_id: str) -> bool:
        return self._open_request == request_id and self.end is None

    def _poll_later(self, request_id: str, again: int) -> None:
        self._clock.after(self._pool.settings.poll_s, self.host.when_up, self._poll, request_id, again)

    def _poll(self, request_id: str, again: int) -> None:
        if not self._wants(request_id) or again != self._n_again:
            return
        answer = self._pool.host.feed(leasing.RequestPolled, request_id=_numbered(request_id, again))
        if any(isinstance(record, leasing.RequestRefused) for record in answer):
            self._ask_again(request_id, again + 1)
        elif self._pool.is_closed:
            self.report(words.TaskFailed, reason=f"task {self.name} would wait for ever: no slot is lent", detail="")
        else:
            self._poll_later(request_id, again)

    def _ask_placement(self, command: words.AskPlacement) -> None:
        asked = shared(command, PlacementAsked) | self._me | {"n_learners": self._n_learners}
        self._pool.host.feed_after(self._rpc_s, PlacementAsked, **asked)

    def _return(self, command: words.ReturnLease) -> None:
        self._pool.let_go(command.fence)
        self._clock.after(self._rpc_s, self._returned, command)

    def _returned(self, command: words.ReturnLease) -> None:
        computed = {"computed_s": tuple(round(seconds, 6) for seconds in command.computed_s)}
        self._pool.host.feed(leasing.LeaseReturned, **shared(command, leasing.LeaseReturned) | computed)
        self.report(words.LeaseClosed, fence=command.fence)

    def _end_task(self, command: words.EndTask) -> None:
        self.end = command
        self._pool.host.feed_after(self._rpc_s, TaskStopped, task=self.name, attempt=self.attempt, reason=command.state)


def _numbered(request_id: str, again: int) -> str:
    """Return the id under which the pool knows a request: it never opens one again that is over."""
    return f"{request_id}+{again}" if again else request_id


def _split(request_id: str) -> tuple[str, int]:
    """Return the master's id of a request, and how often it has asked again."""
    head, _, tail = request_id.rpartition("/")
    tail, _, again = tail.partition("+")
    return f"{head}/{tail}", int(again or 0)

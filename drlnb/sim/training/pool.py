"""Play the pool side of a fleet: nodes, slots with their executors, answers to masters."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from drlnb.planning.leasing.fence import FenceGate
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import Planners
from drlnb.records.base import Event
from drlnb.records.columns import leasing
from drlnb.records.columns.placement import NodeAdded, NodeLost, SendPlacement
from drlnb.records.ids import Fence
from drlnb.records.round import ExecutorDied, LeaseLost
from drlnb.sim.driver import Clock, Hosted
from drlnb.sim.faults import Fault

__all__ = ["Executor", "Master", "Pool"]

#: Collectors that fit on a node: room is not what is studied here.
_COLLECTOR_SLOTS = 1024
#: Seconds that a new executor needs before it serves its slot (a torch import).
_EXECUTOR_START_S = 1.5
#: Seconds from a death to the moment at which its node has noticed it.
_NOTICE_S = 0.01


class Master(Protocol):
    """What the pool's side says to the master of a task."""

    host: Hosted

    def granted(self, command: leasing.SendGrant) -> None:
        """Answer its request."""

    def placed(self, command: SendPlacement) -> None:
        """Answer its question."""

    def report(self, kind: type[Event], **values: object) -> None:
        """Send it an event."""

    def node_lost(self, node: str, reason: str) -> None:
        """Inform it that a node is gone."""


class Executor:
    """Serves one slot: one job at a time, in the order of arrival."""

    def __init__(self, clock: Clock, slot: str, node: str) -> None:
        self.slot, self.node = slot, node
        self.epoch = 1
        #: Whether there is a process; what is sent to a dead one is lost.
        self.up = True
        #: When what runs will have left the device: a kernel cannot be taken away.
        self.busy_t = 0.0
        self._gate = FenceGate()
        self._revoked: Fence | None = None
        #: The lease under which work was sent last.
        self.fence: Fence | None = None
        #: The task that computed here last.
        self.tenant = ""
        self._clock = clock
        #: Ends of the jobs that run or wait.
        self._ends: deque[float] = deque()
        #: Changes when all jobs are thrown away.
        self._life = 0

    def submit(
        self, fence: Fence, duration_s: float, done: Callable[[], object], *, tenant: str = "", switch_s: float = 0.0
    ) -> None:
        """Queue a job; `done` is called at its end, unless it is thrown away; another tenant first costs a switch.

        Raises
        ------
        AssertionError
            If two jobs would be on the device at once: a slot was lent while it drained.
        """
        if not self.up:
            return
        if fence == self._revoked or self._gate.admit(fence) is not None:
            return  # its lease is not the present one any more
        if tenant != self.tenant:
            self.tenant = tenant
            duration_s += switch_s
        self.fence = fence
        begin = max(self._clock.now, self._ends[-1] if self._ends else 0.0)
        assert begin >= self.busy_t, f"{self.slot}: work under {fence} begins while other work is on the device"
        end = begin + duration_s
        self._ends.append(end)
        self._clock.after(end - self._clock.now, self._end, self._life, done)

    def clear(self) -> float:
        """Throw all jobs away; return how many seconds the one that runs still needs."""
        rest_s = self._ends[0] - self._clock.now if self._ends else 0.0
        self.busy_t = self._clock.now + rest_s
        self._ends.clear()
        self._life += 1
        self.fence = None
        return rest_s

    def die(self) -> None:
        """Lose the process with all jobs."""
        self.clear()
        self.busy_t, self.tenant = self._clock.now, ""
        self.epoch += 1
        self.up = False

    def revoke(self, fence: Fence) -> float:
        """Refuse a lease's work from now on; return how many seconds what runs of it still needs."""
        self._revoked = fence
        return self.clear() if self.fence == fence else 0.0

    def _end(self, life: int, done: Callable[[], object]) -> None:
        if life == self._life:
            self._ends.popleft()
            done()


class Pool:
    """The pool's machine and what it commands.

    Parameters
    ----------
    slots
        Slot -> its node; every node has at least its collectors.
    nodes
        Names of the nodes.
    settings
        Settings of leasing.
    planners
        Place its tasks; None: drlnb's own.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        slots: Mapping[str, str],
        nodes: tuple[str, ...],
        settings: LeasingSettings,
        validate: bool = False,
        planners: Planners | None = None,
    ) -> None:
        machine = self._machine = PoolMachine(settings, 1, lambda task: planners or Planners())
        self.settings = settings
        #: Task -> its newest attempt.
        self.masters: dict[str, Master] = {}
        self.executors = {slot: Executor(clock, slot, node) for slot, node in slots.items()}
        self.live_nodes: set[str] = set()
        #: Faults that have happened.
        self.struck: list[Fault] = []
        self._clock = clock
        #: Fence -> its task and slots, while the holder renews it, as far as it has been told.
        self.held: dict[Fence, tuple[str, tuple[str, ...]]] = {}
        #: Fence -> last good renewal of a holder, in seconds; that of a lease that was revoked, too.
        self._good_t: dict[Fence, float] = {}
        self.host = Hosted(
            clock,
            machine,
            kind="pool",
            config=machine.config,
            stream="broker-e1",
            effects={
                leasing.SendGrant: lambda command: self.masters[command.task].granted(command),
                SendPlacement: lambda command: self.masters[command.task].placed(command),
                leasing.AskYield: lambda command: self.masters[command.task].report(
                    leasing.YieldAsked, fence=command.fence
                ),
                leasing.RevokeLease: self._revoke,
            },
            validate=validate,
        )
        self.host.feed(leasing.SlotsOpened, slots=tuple(self.executors))
        for node in nodes:
            self.add_node(node)

    # ------------------------------------------------------------------ the world
    def add_node(self, node: str) -> None:
        """Bring a node up with its slots."""
        self.live_nodes.add(node)
        self.host.feed(NodeAdded, node=node, host=node, n_collector_slots=_COLLECTOR_SLOTS)
        for executor in self.executors.values():
            if executor.node == node:
                self._add(executor)

    def kill_node(self, node: str, down_s: float | None = None) -> bool:
        """Remove a node with its executors, masters must live elsewhere; so many seconds later it is back."""
        self.live_nodes.discard(node)
        for executor in self.executors.values():
            if executor.node == node:
                executor.die()
        self.host.feed(NodeLost, node=node, reason="killed")
        for master in self.masters.values():
            master.node_lost(node, "killed")
        if down_s is not None:
            self._clock.after(down_s, self.add_node, node)
        return True

    def lose_slot(self, slot: str, down_s: float = _EXECUTOR_START_S) -> bool:
        """Lose a slot with its executor, if it is there; so many seconds later its node adds it, with another one."""
        executor = self.executors[slot]
        if executor.node not in self.live_nodes or not executor.up:
            return False
        executor.die()

        def notice(task: str, fence: Fence) -> None:
            self.masters[task].host.feed(ExecutorDied, fence=fence, slot=slot, reason="killed")

        for fence, (task, slots) in self.held.items():
            if slot in slots:
                self._clock.after(_NOTICE_S, notice, task, fence)
        self.host.feed(leasing.SlotFailed, slot=slot, reason="killed")
        self._clock.after(down_s, self._slot_back, executor, executor.epoch)
        return True

    def _slot_back(self, executor: Executor, epoch: int) -> None:
        if executor.epoch == epoch and executor.node in self.live_nodes:
            self._add(executor)

    def _add(self, executor: Executor) -> None:
        executor.up = True
        self.host.feed(
            leasing.SlotAdded, slot=executor.slot, node=executor.node, device="cpu", executor_epoch=executor.epoch
        )

    # ------------------------------------------------------------------ holders
    def hold(self, fence: Fence, task: str, slots: tuple[str, ...]) -> None:
        """Register a holder, which renews its lease from now on."""
        if fence not in self.held:  # else its grant is told once more
            self.held[fence], self._good_t[fence] = (task, slots), self._clock.now
            self._clock.after(self.settings.renew_s, self._renew, fence)

    @property
    def is_closed(self) -> bool:
        """Whether it lends no slot any more: each was closed, and nobody is here to bring one back by hand."""
        slots = self._machine.state.leases.slots.values()
        return bool(slots) and all(slot.closed for slot in slots)

    def let_go(self, fence: Fence) -> None:
        """Forget a holder: it renews no more."""
        self.held.pop(fence, None)
        self._good_t.pop(fence, None)

    def forget_holder(self, task: str) -> None:
        """Record that a task's master is gone: nobody renews its leases."""
        for fence in self._of(task):
            self.let_go(fence)

    def speaks(self, task: str) -> None:
        """Renew at once what a master that goes on still takes for its own."""
        for fence in self._of(task):
            if not self.is_overdue(fence):
                self.renew(fence)

    def _of(self, task: str) -> list[Fence]:
        return [fence for fence, (name, _) in self.held.items() if name == task]

    def is_overdue(self, fence: Fence) -> bool:
        """Whether a holder's own clock tells it that its lease may be another's."""
        return self._clock.now - self._good_t.get(fence, -math.inf) > self.settings.holder_ttl_s

    def renew(self, fence: Fence) -> bool:
        """Ask the pool to renew a lease; False if it refuses, which tells its holder that the lease is lost."""
        for record in self.host.feed(leasing.LeaseRenewed, fence=fence):
            if isinstance(record, leasing.RequestRefused):
                self._lose(fence, record.reason)
                self._good_t.pop(fence, None)
                return False
        self._good_t[fence] = self._clock.now
        return True

    def _renew(self, fence: Fence) -> None:
        """Renew a lease again and again; the renewals of a master that stands still wait for it."""
        if fence in self.held and (self.masters[self.held[fence][0]].host.frozen or self.renew(fence)):
            self._clock.after(self.settings.renew_s, self._renew, fence)

    def _lose(self, fence: Fence, reason: str) -> None:
        if fence in self.held:
            task, _ = self.held.pop(fence)
            self.masters[task].report(LeaseLost, fence=fence, reason=reason)

    # ------------------------------------------------------------------ commands
    def _revoke(self, command: leasing.RevokeLease) -> None:
        """Stop the work of a fence at its next batch boundary; say when the slot is idle."""
        self._lose(command.fence, command.reason)
        executor = self.executors[command.slot]
        rest_s = executor.revoke(command.fence)
        if executor.node in self.live_nodes:
            self._clock.after(_NOTICE_S + rest_s, self._idle, executor, executor.epoch, command.fence)

    def _idle(self, executor: Executor, epoch: int, fence: Fence) -> None:
        if executor.epoch == epoch and executor.up:
            self.host.feed(leasing.ExecutorIdled, slot=executor.slot, fence=fence)

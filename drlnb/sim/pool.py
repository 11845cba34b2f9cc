"""What the pretended pool side of a fleet does: nodes, slots with their executors, answers to masters."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.records.ids import Fence
from drlnb.records.leasing import (
    AskYield,
    ExecutorIdled,
    ExecutorStarted,
    LeaseRenewed,
    RequestRefused,
    RevokeLease,
    SendGrant,
    SlotAdded,
)
from drlnb.records.placement import NodeAdded, NodeLost, SendPlacement
from drlnb.sim.driver import Clock, Hosted

__all__ = ["Executor", "Master", "Pool"]

#: Collectors that fit on a node: room is not what is studied here.
_COLLECTOR_SLOTS = 1024
#: Seconds that a new executor needs before it serves its slot (a torch import).
_EXECUTOR_START_S = 1.5
#: Seconds from a death to the moment at which its node has noticed it.
_NOTICE_S = 0.01


class Master(Protocol):
    """What the pool's side says to the master of a task."""

    def granted(self, command: SendGrant) -> None:
        """Answer its request."""

    def placed(self, command: SendPlacement) -> None:
        """Answer its question."""

    def yield_asked(self, fence: Fence) -> None:
        """Tell it that somebody waits for a slot like its own."""

    def lease_lost(self, fence: Fence, reason: str) -> None:
        """Tell it that a lease has ended."""

    def executor_died(self, fence: Fence, slot: str, reason: str) -> None:
        """Tell it that the executor of its slot is gone."""

    def node_lost(self, node: str, reason: str) -> None:
        """Tell it that a node is gone."""


class Executor:
    """Serves one slot: one job at a time, in the order of arrival."""

    def __init__(self, clock: Clock, slot: str, node: str) -> None:
        self.slot, self.node = slot, node
        self.epoch = 1
        #: Whether there is a process; what is sent to a dead one is lost.
        self.up = True
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
        self, fence: Fence, duration_s: float, done: Callable[[], None], *, tenant: str = "", switch_s: float = 0.0
    ) -> None:
        """Queue a job; `done` is called at its end, unless it is thrown away; another tenant first costs a switch."""
        if not self.up:
            return
        if tenant != self.tenant:
            self.tenant = tenant
            duration_s += switch_s
        self.fence = fence
        end = max(self._clock.now, self._ends[-1] if self._ends else 0.0) + duration_s
        self._ends.append(end)
        self._clock.after(end - self._clock.now, self._end, self._life, done)

    def clear(self) -> float:
        """Throw all jobs away; return how many seconds the one that runs still needs."""
        rest_s = self._ends[0] - self._clock.now if self._ends else 0.0
        self._ends.clear()
        self._life += 1
        self.fence = None
        return rest_s

    def die(self) -> None:
        """Lose the process with all jobs."""
        self.clear()
        self.tenant = ""
        self.epoch += 1
        self.up = False

    def _end(self, life: int, done: Callable[[], None]) -> None:
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
    """

    def __init__(
        self,
        clock: Clock,
        *,
        slots: Mapping[str, str],
        nodes: tuple[str, ...],
        settings: LeasingSettings,
        validate: bool = False,
    ) -> None:
        machine = PoolMachine(settings, epoch=1)
        self.settings = settings
        self.masters: dict[str, Master] = {}
        self.executors = {slot: Executor(clock, slot, node) for slot, node in slots.items()}
        self.live_nodes: set[str] = set()
        self._clock = clock
        #: Fence -> its task and slot, while the holder renews it.
        self._held: dict[Fence, tuple[str, str]] = {}
        self.host = Hosted(
            clock,
            machine,
            kind="pool",
            config=machine.config,
            stream="broker-e1",
            effects={
                SendGrant: self._grant,
                SendPlacement: self._place,
                AskYield: self._ask_yield,
                RevokeLease: self._revoke,
            },
            validate=validate,
        )
        for node in nodes:
            self.add_node(node)

    # ------------------------------------------------------------------ the world
    def add_node(self, node: str) -> None:
        """Bring a node up with its slots."""
        self.live_nodes.add(node)
        self.host.feed(NodeAdded, node=node, host=node, n_collector_slots=_COLLECTOR_SLOTS)
        for executor in self.executors.values():
            if executor.node == node:
                executor.up = True
                self.host.feed(SlotAdded, slot=executor.slot, node=node, device="cpu", executor_epoch=executor.epoch)

    def kill_node(self, node: str, reason: str) -> None:
        """Take a node away with its executors; masters must live elsewhere."""
        self.live_nodes.discard(node)
        for executor in self.executors.values():
            if executor.node == node:
                executor.die()
        self.host.feed(NodeLost, node=node, reason=reason)
        for master in self.masters.values():
            master.node_lost(node, reason)

    def kill_executor(self, slot: str, reason: str) -> None:
        """Kill the executor of a slot; its node starts another one."""
        executor = self.executors[slot]
        if executor.node not in self.live_nodes:
            return
        executor.die()
        for fence, (task, held) in tuple(self._held.items()):
            if held == slot:
                self._clock.after(_NOTICE_S, self.masters[task].executor_died, fence, slot, reason)
        self._clock.after(_EXECUTOR_START_S, self._executor_started, executor, executor.epoch)

    def _executor_started(self, executor: Executor, epoch: int) -> None:
        if executor.epoch == epoch and executor.node in self.live_nodes:
            executor.up = True
            self.host.feed(ExecutorStarted, slot=executor.slot, executor_epoch=epoch)

    # ------------------------------------------------------------------ holders
    def hold(self, fence: Fence, task: str, slot: str) -> None:
        """Note a holder, which renews its lease from now on."""
        self._held[fence] = (task, slot)
        self._clock.after(self.settings.renew_s, self._renew, fence)

    def let_go(self, fence: Fence) -> None:
        """Note that a holder renews no more."""
        self._held.pop(fence, None)

    def _renew(self, fence: Fence) -> None:
        if fence not in self._held:
            return
        answer = self.host.feed(LeaseRenewed, fence=fence, n_progress=0)
        refused = [record.reason for record in answer if isinstance(record, RequestRefused)]
        if refused:  # the answer to a renewal tells the holder
            task, _ = self._held.pop(fence)
            self.masters[task].lease_lost(fence, refused[0])
        else:
            self._clock.after(self.settings.renew_s, self._renew, fence)

    # ------------------------------------------------------------------ commands
    def _grant(self, command: SendGrant) -> None:
        self.masters[command.task].granted(command)

    def _place(self, command: SendPlacement) -> None:
        self.masters[command.task].placed(command)

    def _ask_yield(self, command: AskYield) -> None:
        self.masters[command.task].yield_asked(command.fence)

    def _revoke(self, command: RevokeLease) -> None:
        """Stop the work of a fence at its next batch boundary; say when the slot is idle."""
        task, _ = self._held.pop(command.fence, (None, None))
        if task is not None:
            self.masters[task].lease_lost(command.fence, command.reason)
        executor = self.executors[command.slot]
        rest_s = executor.clear() if executor.fence == command.fence else 0.0
        if executor.node in self.live_nodes:
            self._clock.after(_NOTICE_S + rest_s, self._idle, executor, executor.epoch, command.fence)

    def _idle(self, executor: Executor, epoch: int, fence: Fence) -> None:
        if executor.epoch == epoch and executor.up:
            self.host.feed(ExecutorIdled, slot=executor.slot, fence=fence)

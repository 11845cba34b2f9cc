"""What the pretended side of one task does: its master's messages, collectors, host stores, checkpoints."""

from collections.abc import Callable, Mapping
from typing import Any

from drlnb.planning.leasing.fence import StoreGate
from drlnb.planning.round import RoundMachine
from drlnb.records import round as words
from drlnb.records.distribution import HostCompleted, HostUnreachable, SendChunk
from drlnb.records.ids import Fence
from drlnb.records.leasing import (
    GradientsRestored,
    LeaseReturned,
    RequestPolled,
    RestoreGradients,
    SendGrant,
    SlotRequested,
    YieldAsked,
)
from drlnb.records.placement import NodeLost, PlacementAsked, SendPlacement, TaskStopped
from drlnb.records.warmup import (
    CollectorLost,
    CollectorReady,
    RevokeStart,
    StartCollector,
    StopCollector,
    WakeCollector,
)
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Clock, Effects, Hosted
from drlnb.sim.pool import Pool

__all__ = ["Task"]

#: Bytes of one pretended version: a policy with two hidden layers of 64.
_MODEL_BYTES = 40_000
#: Bytes of one pretended sample: observation, action, value, log-probability, reward.
_SAMPLE_BYTES = 40


class Task:
    """One task's machine and what it commands.

    Parameters
    ----------
    config
        Constructor arguments of the round machine.
    node
        Node of the master; it must stay up.
    """

    attempt = 1

    def __init__(
        self,
        clock: Clock,
        pool: Pool,
        workload: Durations,
        *,
        config: Mapping[str, Any],
        node: str,
        validate: bool = False,
    ) -> None:
        self.machine = RoundMachine(config)
        self.name = self.machine.task
        #: The command that ended the task.
        self.end: words.EndTask | None = None
        self._clock, self._pool, self._workload, self._node = clock, pool, workload, node
        #: Collector -> (node, number of its process); the number is that of the latest start.
        self._processes: dict[int, tuple[str, int]] = {}
        self._n_starting = 0
        #: Collector -> round that it was started for last.
        self._begun: dict[int, int] = {}
        #: (host, version) -> ranges of bytes that have arrived.
        self._stored: dict[tuple[str, int], set[tuple[int, int]]] = {}
        self._store = StoreGate()
        self.host = Hosted(
            clock,
            self.machine,
            kind="round",
            config=self.machine.config,
            stream=f"task-{self.name}-a{self.attempt}",
            effects=self._effects(),
            validate=validate,
        )
        pool.masters[self.name] = self

    def _effects(self) -> Effects:
        return {
            words.RequestSlot: self._request,
            words.AskPlacement: self._ask_placement,
            words.InitialiseParameters: self._initialise,
            words.ComputeGradient: self._compute,
            RestoreGradients: self._restore,
            words.FinishRound: self._finish,
            words.CommitParameters: self._commit,
            words.ReturnLease: self._return,
            words.DropExperience: self._drop,
            words.WriteCheckpoint: self._write_checkpoint,
            words.Evaluate: self._evaluate,
            words.EndTask: self._end_task,
            StartCollector: self._start,
            StopCollector: self._stop,
            RevokeStart: self._revoke_start,
            WakeCollector: self._wake,
            SendChunk: self._send,
        }

    def open(self) -> None:
        """Start the master."""
        self.host.feed(
            words.TaskOpened,
            attempt=self.attempt,
            version=0,
            n_rounds=0,
            n_timesteps=0,
            elapsed_s=0.0,
            episodes=(),
            n_bytes=0,
        )
        self._ask_placement(words.AskPlacement(n_collectors=len(self.machine.crew.members)))

    @property
    def _rpc_s(self) -> float:
        return self._workload.round(self.machine.round).rpc_s

    # ------------------------------------------------------------------ what others say
    def granted(self, command: SendGrant) -> None:
        """Take the pool's answer to the master."""
        self._pool.hold(command.fence, self.name, command.slots[0])
        self._clock.after(self._rpc_s, self._receive, command)

    def _receive(self, command: SendGrant) -> None:
        self.host.feed(
            words.LeaseReceived,
            request_id=command.request_id,
            fence=command.fence,
            slots=command.slots,
            waited_s=command.waited_s,
            demand=command.demand,
        )

    def yield_asked(self, fence: Fence) -> None:
        """Tell the master that somebody waits for a slot like its own."""
        self.host.feed_after(self._rpc_s, YieldAsked, fence=fence)

    def placed(self, command: SendPlacement) -> None:
        """Take the pool's answer to the master."""
        self.host.feed_after(self._rpc_s, words.PlacementReceived, collector_nodes=command.collector_nodes)

    def lease_lost(self, fence: Fence, reason: str) -> None:
        """Tell the master that a lease has ended."""
        self.host.feed_after(self._rpc_s, words.LeaseLost, fence=fence, reason=reason)

    def executor_died(self, fence: Fence, slot: str, reason: str) -> None:
        """Tell the master that the executor of its slot is gone."""
        self.host.feed(words.ExecutorDied, fence=fence, slot=slot, reason=reason)

    def node_lost(self, node: str, reason: str) -> None:
        """Lose the collectors of a node and tell the master."""
        for i, (at, number) in self._processes.items():
            if at == node:
                self._processes[i] = (node, number + 1)
        self.host.feed_after(self._rpc_s, NodeLost, node=node, reason=reason)

    def kill_collector(self, collector: int, reason: str) -> None:
        """Kill a collector's process, if it has been started."""
        node, number = self._processes.get(collector, ("", 0))
        if node in self._pool.live_nodes and self.end is None:
            self._processes[collector] = (node, number + 1)
            self.host.feed(CollectorLost, collector=collector, node=node, reason=reason, detail="")

    # ------------------------------------------------------------------ the pool
    def _request(self, command: words.RequestSlot) -> None:
        self._pool.host.feed_after(
            self._rpc_s,
            SlotRequested,
            request_id=command.request_id,
            task=self.name,
            attempt=self.attempt,
            round=command.round,
            node=self._node,
            yields=command.yields,
        )
        self._clock.after(self._pool.settings.poll_s, self._poll, command.request_id)

    def _poll(self, request_id: str) -> None:
        if self.machine.hold.request_id == request_id and self.end is None:
            self._pool.host.feed(RequestPolled, request_id=request_id)
            self._clock.after(self._pool.settings.poll_s, self._poll, request_id)

    def _ask_placement(self, command: words.AskPlacement) -> None:
        self._pool.host.feed_after(
            self._rpc_s,
            PlacementAsked,
            task=self.name,
            attempt=self.attempt,
            node=self._node,
            n_collectors=command.n_collectors,
        )

    def _return(self, command: words.ReturnLease) -> None:
        self._pool.let_go(command.fence)
        self._clock.after(self._rpc_s, self._returned, command)

    def _returned(self, command: words.ReturnLease) -> None:
        self._pool.host.feed(
            LeaseReturned,
            fence=command.fence,
            clean=command.clean,
            computed_s=round(command.computed_s, 6),
            yielded=command.yielded,
        )
        self.host.feed_after(self._rpc_s, words.LeaseClosed, fence=command.fence)

    def _end_task(self, command: words.EndTask) -> None:
        self.end = command
        self._pool.host.feed_after(self._rpc_s, TaskStopped, task=self.name, attempt=self.attempt, reason=command.state)

    # ------------------------------------------------------------------ the executor
    def _submit(self, slot: str, fence: Fence, duration_s: float, done: Callable[[], None]) -> None:
        switch_s = self._workload.costs.switch_s
        self._pool.executors[slot].submit(fence, duration_s, done, tenant=self.name, switch_s=switch_s)

    def _initialise(self, command: words.InitialiseParameters) -> None:
        self._store.learn(command.fence, self.attempt)
        finish_s = self._workload.round(0).finish_s
        self._submit(command.slot, command.fence, finish_s, lambda: self._ready(0, command.fence, finish_s))

    def _compute(self, command: words.ComputeGradient) -> None:
        # At the first use, not at the grant: a grant that the machine returns must not shut the lease in use out.
        self._store.learn(command.fence, self.attempt)
        costs = self._workload.round(command.round)
        stage_s = costs.stage_s[command.collector]

        def done() -> None:
            self.host.feed(
                words.GradientComputed,
                collector=command.collector,
                round=command.round,
                fence=command.fence,
                elapsed_s=costs.compute_s[command.collector] if costs.compute_s else stage_s,
                key=f"g/{command.key}" if command.keep else "",
            )

        self._submit(command.slot, command.fence, stage_s, done)

    def _restore(self, command: RestoreGradients) -> None:
        self._store.learn(command.fence, self.attempt)

        def done() -> None:
            self.host.feed(GradientsRestored, round=command.round, fence=command.fence, elapsed_s=0.0)

        self._submit(command.slot, command.fence, 0.0, done)

    def _finish(self, command: words.FinishRound) -> None:
        finish_s = self._workload.round(command.round).finish_s
        self._submit(command.slot, command.fence, finish_s, lambda: self._ready(command.round, command.fence, finish_s))

    def _ready(self, k: int, fence: Fence, elapsed_s: float) -> None:
        self.host.feed(
            words.ParametersReady,
            round=k,
            fence=fence,
            elapsed_s=elapsed_s,
            n_bytes=_MODEL_BYTES,
            key=f"{self.name}/a{self.attempt}/v{k + 1}",
            metrics={},
        )

    def _commit(self, command: words.CommitParameters) -> None:
        # A refusal needs no answer: the lease is lost, and its loss is on its way to the machine.
        if self._store.admit(command.fence, self.attempt, command.version) is None:
            self.host.feed_after(0.0, words.ParametersCommitted, version=command.version, fence=command.fence)

    def _drop(self, command: words.DropExperience) -> None:
        """Free a fragment: nothing was allocated."""

    # ------------------------------------------------------------------ collectors
    def _start(self, command: StartCollector) -> None:
        if command.round and self._begun.get(command.collector) == command.round:
            return  # it was started for this round: another time changes nothing
        _, number = self._processes.get(command.collector, ("", 0))
        self._processes[command.collector] = (command.node, number + 1)
        self._clock.after(command.after_s, self._start_now, command, number + 1)

    def _start_now(self, command: StartCollector, number: int) -> None:
        if self._processes[command.collector] != (command.node, number):
            return  # another time was set, or the start was taken back
        self._begun[command.collector] = command.round
        self._n_starting += 1
        start_s = self._workload.start_s()
        self._clock.after(start_s, self._started, command, number, start_s, self._n_starting)

    def _stop(self, command: StopCollector) -> None:
        """End a process that has sent; its environments are kept."""
        self._begun.pop(command.collector, None)
        _, number = self._processes[command.collector]
        self._processes[command.collector] = (command.node, number + 1)

    def _revoke_start(self, command: RevokeStart) -> None:
        """Forget a start: what it would have made is not the newest process any more."""
        self._begun.pop(command.collector, None)
        _, number = self._processes[command.collector]
        self._processes[command.collector] = (command.node, number + 1)

    def _started(self, command: StartCollector, number: int, start_s: float, n_starting: int) -> None:
        self._n_starting -= 1
        if self._lives(command.collector, command.node, number):
            self.host.feed(
                CollectorReady,
                collector=command.collector,
                node=command.node,
                start_s=start_s,
                n_starting=n_starting,
                start_mode="simulated",
                round=command.round,
            )

    def _wake(self, command: WakeCollector) -> None:
        _, number = self._processes[command.collector]
        collect_s = self._workload.round(command.round).collect_s[command.collector]
        self._clock.after(collect_s, self._acted, command, number, collect_s)

    def _acted(self, command: WakeCollector, number: int, collect_s: float) -> None:
        if not self._lives(command.collector, command.node, number):
            return
        n_samples = command.n_steps * len(self.machine.crew.members[command.collector].env_indices)
        self.host.feed_after(
            self._rpc_s,
            words.ExperienceArrived,
            collector=command.collector,
            round=command.round,
            attempt=self.attempt,
            version=command.version,
            n_samples=n_samples,
            n_bytes=n_samples * _SAMPLE_BYTES,
            key=f"{self.name}/r{command.round}/c{command.collector}/p{number}",
            collect_s=collect_s,
            episodes=(),
        )

    def _lives(self, collector: int, node: str, number: int) -> bool:
        return self._processes[collector] == (node, number) and node in self._pool.live_nodes

    # ------------------------------------------------------------------ parameters, checkpoints, evaluation
    def _send(self, command: SendChunk) -> None:
        publish_s = self._workload.round(command.version - 1).publish_s
        self._clock.after(publish_s, self._arrive, command, publish_s)

    def _arrive(self, command: SendChunk, publish_s: float) -> None:
        if command.host not in self._pool.live_nodes:
            self.host.feed(HostUnreachable, host=command.host, version=command.version, reason="the node is gone")
            return
        ranges = self._stored.setdefault((command.host, command.version), set())
        ranges.add((command.start, command.stop))
        if sum(stop - start for start, stop in ranges) == _MODEL_BYTES:
            self.host.feed(HostCompleted, host=command.host, version=command.version, publish_s=publish_s)
        for host, children in command.children:
            self._send(
                SendChunk(version=command.version, start=command.start, stop=command.stop, host=host, children=children)
            )

    def _write_checkpoint(self, command: words.WriteCheckpoint) -> None:
        costs = self._workload.costs
        self.host.feed_after(costs.gather_s, words.CheckpointGathered, version=command.version)
        self.host.feed_after(
            costs.gather_s + costs.write_s,
            words.CheckpointWritten,
            version=command.version,
            elapsed_s=costs.write_s,
            n_bytes=3 * _MODEL_BYTES,
            failure="",
        )

    def _evaluate(self, command: words.Evaluate) -> None:
        _, number = self._processes[command.collector]
        self._clock.after(command.n_episodes * self._workload.costs.episode_s, self._evaluated, command, number)

    def _evaluated(self, command: words.Evaluate, number: int) -> None:
        if self._lives(command.collector, command.node, number):
            self.host.feed(
                words.EvaluationFinished,
                version=command.version,
                mean_reward=0.0,
                std_reward=0.0,
                n_episodes=command.n_episodes,
                failure="",
            )

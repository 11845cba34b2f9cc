"""Play the nodes of one attempt at a task: its collectors, executors, parameters on hosts, checkpoints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drlnb.planning.distribution import Link
from drlnb.planning.leasing.fence import StoreGate
from drlnb.records import round as words
from drlnb.records.base import Event, shared
from drlnb.records.columns import batching, warmup
from drlnb.records.columns.leasing import GradientKept, GradientsRestored, KeepGradient, RestoreGradients
from drlnb.records.common import SlotWork
from drlnb.sim.costs import Durations
from drlnb.sim.distribution.network import Network
from drlnb.sim.driver import Clock, Effects, Hosted
from drlnb.sim.swapping.steps import Steps
from drlnb.sim.training.pool import Pool

__all__ = ["Checkpoint", "NodesSide"]

#: Bytes of one pretended version: a policy with two hidden layers of 64.
MODEL_BYTES = 40_000
#: Bytes per second of a network whose latency alone is simulated.
_NO_LIMIT = 1e15
#: Bytes of one pretended sample: observation, action, value, log-probability, reward.
_SAMPLE_BYTES = 40
#: Fields of the command that a checkpoint keeps as they are.
_KEPT = ("version", "n_rounds", "n_timesteps", "episodes", "eval_best", "swapping", "memories")

#: Fields of :class:`~drlnb.records.round.TaskOpened` but for time and attempt.
Checkpoint = Mapping[str, Any]


@dataclass(slots=True)
class NodesSide:
    """The part of an attempt that lives on nodes: it goes on while the master stands still."""

    pool: Pool
    workload: Durations
    host: Hosted
    task: str
    attempt: int
    clock: Clock
    #: Time that a small message takes now.
    rpc_s: Callable[[], float]
    #: Called with the fields of each checkpoint that was written.
    saved: Callable[[Checkpoint], None]
    #: What may be committed.
    store: StoreGate
    #: Collector -> (node, number of its process); the number is that of the latest start.
    _processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    #: Collector -> its environments.
    _n_envs: dict[int, int] = field(default_factory=dict)
    _n_starting: int = 0
    #: The slot that made the latest step of a gang, the number of its executor then, and the key of what it made.
    _stepped: tuple[str, int, str] = ("", 0, "")
    #: Collector -> round that it was started for last.
    _begun: dict[int, int] = field(default_factory=dict)
    network: Network = field(init=False)
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        """Connect the nodes."""
        lives = self.pool.live_nodes.__contains__
        self.steps = Steps(self.host.feed_after)
        self.network = Network(self.clock, self._link, lambda: self.host, MODEL_BYTES, lives)

    def _link(self, version: int) -> Link:
        """Return the network as the round before a version had it: half of the time is the answer's way back."""
        latency_s = self.workload.round(version - 1).publish_s / 2
        return Link.of(_NO_LIMIT, latency_s=latency_s, overhead_s=0.0)

    @property
    def effects(self) -> Effects:
        """What carries out each kind of command."""
        return {
            words.WriteCheckpoint: self._write_checkpoint,
            words.Evaluate: self._evaluate,
            warmup.StartCollector: self._start,
            warmup.StopCollector: self._stop,
            warmup.RevokeStart: self._stop,
            warmup.WakeCollector: self._wake,
            words.InitialiseParameters: partial(self._make, 0),
            words.ComputeGradient: self._compute,
            batching.ComputeShare: self._share,
            batching.CutShare: lambda _: None,  # a simulated share has no chunks: it is done whole, and late
            batching.ApplyGradients: self._apply,
            batching.JoinRound: lambda command: self._make(command.round, command),
            KeepGradient: self._keep,
            RestoreGradients: lambda it: self._submit(it, 0.0, GradientsRestored, round=it.round, elapsed_s=0.0),
            words.FinishRound: lambda command: self._make(command.round, command),
            words.CommitParameters: self._commit,
            words.DropExperience: lambda _: None,  # nothing was allocated
            **self.network.effects,
            **self.steps.effects,
        }

    # ------------------------------------------------------------------ collectors
    def kill_collector(self, collector: int) -> bool:
        """Kill a collector's process, if it has been started."""
        node, _ = self._processes.get(collector, ("", 0))
        lives = node in self.pool.live_nodes
        if lives:
            self._displace(collector, node)
            self.host.feed(warmup.CollectorLost, collector=collector, node=node, reason="killed", detail="")
        return lives

    def lose(self, node: str) -> None:
        """Lose the processes of a node."""
        for i, (at, _) in self._processes.items():
            if at == node:
                self._displace(i, node)

    def _displace(self, collector: int, node: str) -> int:
        """Count another process as the newest of a collector; return its number."""
        _, number = self._processes.get(collector, ("", 0))
        self._processes[collector] = (node, number + 1)
        return number + 1

    def _start(self, command: warmup.StartCollector) -> None:
        if command.round and self._begun.get(command.collector) == command.round:
            return  # it was started for this round: another time changes nothing
        self._n_envs[command.collector] = len(command.env_indices)
        self.clock.after(command.after_s, self._start_now, command, self._displace(command.collector, command.node))

    def _start_now(self, command: warmup.StartCollector, number: int) -> None:
        if self._processes[command.collector] != (command.node, number):
            return  # another time was set, or the start was taken back
        self._begun[command.collector] = command.round
        self._n_starting += 1
        start_s = self.workload.start_s(command)
        self.clock.after(start_s, self._started, command, number, start_s, self._n_starting)

    def _stop(self, command: warmup.StopCollector | warmup.RevokeStart) -> None:
        """End a process that has sent, its environments are kept; or forget a start: its process is not the newest."""
        self._begun.pop(command.collector, None)
        self._displace(command.collector, command.node)

    def _started(self, command: warmup.StartCollector, number: int, start_s: float, n_starting: int) -> None:
        self._n_starting -= 1
        if self._lives(command.collector, command.node, number):
            took = {"start_s": start_s, "n_starting": n_starting, "start_mode": "simulated"}
            self.host.feed(warmup.CollectorReady, **shared(command, warmup.CollectorReady) | took)

    def _wake(self, command: warmup.WakeCollector) -> None:
        _, number = self._processes[command.collector]
        collect_s = self.workload.round(command.round).collect_s[command.collector]
        self.clock.after(collect_s, self._acted, command, number, collect_s)

    def _acted(self, command: warmup.WakeCollector, number: int, collect_s: float) -> None:
        if not self._lives(command.collector, command.node, number):
            return
        n_samples = command.n_steps * self._n_envs[command.collector]
        self.host.feed_after(
            self.rpc_s(),
            words.ExperienceArrived,
            collector=command.collector,
            round=command.round,
            attempt=self.attempt,
            version=command.version,
            n_samples=n_samples,
            n_bytes=n_samples * _SAMPLE_BYTES,
            key=f"{self.task}/r{command.round}/c{command.collector}/p{number}",
            collect_s=collect_s,
            episodes=(),
        )

    def _lives(self, collector: int, node: str, number: int) -> bool:
        return self._processes[collector] == (node, number) and node in self.pool.live_nodes

    # ------------------------------------------------------------------ executors
    def _submit(self, command: SlotWork, duration_s: float, kind: type[Event], **answer: object) -> None:
        """Occupy the command's slot so long, then feed the answer."""
        # At the first use, not at the grant: a grant that the machine returns must not shut the lease in use out.
        self.store.learn(command.fence, self.attempt)
        done = partial(self._answer, command, kind, answer)
        executor, switch_s = self.pool.executors[command.slot], self.workload.costs.switch_s
        executor.submit(command.fence, duration_s, done, tenant=self.task, switch_s=switch_s)

    def _answer(self, command: SlotWork, kind: type[Event], answer: Mapping[str, object]) -> None:
        """Feed what an executor has done: its gradient steps first, where it made some."""
        if isinstance(command, words.FinishRound):
            for event, values in self.steps.made(command):
                self.host.feed(event, **values)
        self.host.feed(kind, fence=command.fence, **answer)

    def _compute(self, command: words.ComputeGradient) -> None:
        costs, i, slower = self.workload.round(command.round), command.collector, self.steps.slower(command)
        elapsed_s = slower * (costs.compute_s[i] if costs.compute_s else costs.stage_s[i])
        key = f"g/{command.key}" if command.keep else ""
        answer = {"collector": i, "round": command.round, "elapsed_s": elapsed_s, "key": key, "slot": command.slot}
        self._submit(command, slower * costs.stage_s[i], words.GradientComputed, **answer)

    def _share(self, command: batching.ComputeShare) -> None:
        """Compute samples of one step: each costs its part of what a round's steps take."""
        config = self.host.machine.state.config
        elapsed_s = self.workload.round(command.round).stage_s[0] / config["n_steps"] * command.n / config["batch_size"]
        answer = {
            **shared(command, batching.ShareComputed),
            "n_planned": command.n,
            "n_done": command.n,
            "denominator": float(command.n),
            "loss": 0.0,
            "norm_sq": 0.0,
            **dict.fromkeys(("compute_s", "elapsed_s", "age_s"), elapsed_s),
            "key": f"g/{self.task}/{command.split}/{command.first}",
        }
        del answer["fence"]
        self._submit(command, elapsed_s, batching.ShareComputed, **answer)

    def _apply(self, command: batching.ApplyGradients) -> None:
        answer = {"round": command.round, "split": command.split, "elapsed_s": 0.0}
        lead, key = (command.slot, self.pool.executors[command.slot].epoch), command.parameters
        if command.split:
            key = f"p/{self.task}/{command.split}"
            self._stepped = *lead, key
        elif self._stepped != (*lead, key):
            key = ""
        self._submit(command, 0.0, batching.GradientsApplied, key=key, **answer)

    def _keep(self, command: KeepGradient) -> None:
        key = f"g/{self.task}/r{command.round}/c{command.collector}/{command.fence.token}"
        self._submit(command, 0.0, GradientKept, collector=command.collector, round=command.round, key=key)

    def _make(self, k: int, command: words.InitialiseParameters | words.FinishRound | batching.JoinRound) -> None:
        """Make the parameters that follow round `k`, or compute beside the slot that does."""
        slower = self.steps.slower(command) if isinstance(command, words.FinishRound) else 1.0
        finish_s = slower * self.workload.round(k).finish_s
        if isinstance(command, batching.JoinRound):
            took = {"compute_s": finish_s, "elapsed_s": finish_s}
            self._submit(command, finish_s, batching.RoundJoined, round=k, slot=command.slot, **took)
            return
        self._submit(
            command,
            finish_s,
            words.ParametersReady,
            round=k,
            elapsed_s=finish_s,
            n_bytes=MODEL_BYTES,
            key=f"{self.task}/a{self.attempt}/v{k + 1}",
            metrics={},
            compute_s=finish_s if getattr(command, "members", ()) else 0.0,
        )

    def _commit(self, command: words.CommitParameters) -> None:
        # A refusal needs no answer: the lease is lost, and its loss is on its way to the machine.
        if self.store.admit(command.fence, self.attempt, command.version) is None:
            self.host.feed_after(0.0, words.ParametersCommitted, version=command.version, fence=command.fence)

    # ------------------------------------------------------------------ checkpoints, evaluation
    def _write_checkpoint(self, command: words.WriteCheckpoint) -> None:
        costs = self.workload.costs
        checkpoint = {name: getattr(command, name) for name in _KEPT}
        checkpoint |= {"elapsed_s": round(command.elapsed_s, 6), "n_bytes": MODEL_BYTES}
        self.host.feed_after(costs.gather_s, words.CheckpointGathered, version=command.version)
        self.clock.after(costs.gather_s + costs.write_s, self.host.when_up, self._written, checkpoint)

    def _written(self, checkpoint: Checkpoint) -> None:
        self.saved(checkpoint)
        self.host.feed(
            words.CheckpointWritten,
            version=checkpoint["version"],
            elapsed_s=self.workload.costs.write_s,
            n_bytes=3 * MODEL_BYTES,
            failure="",
        )

    def _evaluate(self, command: words.Evaluate) -> None:
        _, number = self._processes[command.collector]
        self.clock.after(command.n_episodes * self.workload.costs.episode_s, self._evaluated, command, number)

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

"""Play the nodes of one attempt at a task: its collectors, its parameters on hosts, its checkpoints."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from drlnb.planning.distribution import below
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted, HostUnreachable, SendChunk
from drlnb.records.columns.warmup import (
    CollectorLost,
    CollectorReady,
    RevokeStart,
    StartCollector,
    StopCollector,
    WakeCollector,
)
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Clock, Hosted
from drlnb.sim.training.pool import Pool

__all__ = ["MODEL_BYTES", "NodesSide"]

#: Bytes of one pretended version: a policy with two hidden layers of 64.
MODEL_BYTES = 40_000
#: Bytes of one pretended sample: observation, action, value, log-probability, reward.
_SAMPLE_BYTES = 40


class NodesSide:
    """The part of an attempt that lives on nodes: it goes on while the master stands still."""

    host: Hosted
    name: str
    attempt: int
    end: words.EndTask | None
    _clock: Clock
    _pool: Pool
    _workload: Durations
    _saved: Callable[[dict[str, Any]], None]
    _processes: dict[int, tuple[str, int]]
    _n_envs: dict[int, int]
    _n_starting: int
    _round: int
    _begun: dict[int, int]
    _stored: dict[tuple[str, int], set[tuple[int, int]]]
    _link_free_t: dict[str, float]

    @property
    def _rpc_s(self) -> float:
        return self._workload.round(self._round).rpc_s

    # ------------------------------------------------------------------ collectors
    def kill_collector(self, collector: int, reason: str) -> bool:
        """Kill a collector's process, if it has been started."""
        node, number = self._processes.get(collector, ("", 0))
        lives = node in self._pool.live_nodes and self.end is None
        if lives:
            self._processes[collector] = (node, number + 1)
            self.host.feed(CollectorLost, collector=collector, node=node, reason=reason, detail="")
        return lives

    def _start(self, command: StartCollector) -> None:
        if command.round and self._begun.get(command.collector) == command.round:
            return  # it was started for this round: another time changes nothing
        self._n_envs[command.collector] = len(command.env_indices)
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
        n_samples = command.n_steps * self._n_envs[command.collector]
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
        """Send a range along its route; every host of the route ends in an event of its own."""
        self._pass_on("", command, self._clock.now)

    def _pass_on(self, sender: str, command: SendChunk, sent_t: float) -> None:
        """Put a message on the sender's link, after those that wait there; the master's is named by no text."""
        now = self._clock.now
        free_t = max(now, self._link_free_t.get(sender, 0.0))
        free_t += self._workload.costs.on_wire_s(command.stop - command.start)
        self._link_free_t[sender] = free_t
        latency_s = self._workload.round(command.version - 1).publish_s
        self._clock.after(free_t - now + latency_s, self._arrive, command, sent_t)

    def _arrive(self, command: SendChunk, sent_t: float) -> None:
        if command.host not in self._pool.live_nodes:
            self._cut_off(command, "the node is gone")
            return
        ranges = self._stored.setdefault((command.host, command.version), set())
        ranges.add((command.start, command.stop))
        if sum(stop - start for start, stop in ranges) == MODEL_BYTES:
            self.host.feed(
                HostCompleted,
                host=command.host,
                version=command.version,
                n_bytes=MODEL_BYTES,
                publish_s=round(self._clock.now - sent_t, 6),
            )
        for host, children in command.children:
            self._pass_on(command.host, replace(command, host=host, children=children), sent_t)

    def _cut_off(self, command: SendChunk, reason: str) -> None:
        """Report a host that was not reached, and those that are cut off below it."""
        self.host.feed(HostUnreachable, host=command.host, version=command.version, reason=reason)
        text = f"cut off: {command.host} was not reached ({reason})"
        for host in below(command.children):
            self.host.feed(HostUnreachable, host=host, version=command.version, reason=text, relay=command.host)

    def _write_checkpoint(self, command: words.WriteCheckpoint) -> None:
        costs = self._workload.costs
        checkpoint = {
            "version": command.version,
            "n_rounds": command.n_rounds,
            "n_timesteps": command.n_timesteps,
            "elapsed_s": round(command.elapsed_s, 6),
            "episodes": command.episodes,
            "n_bytes": MODEL_BYTES,
            "eval_best": command.eval_best,
        }
        self.host.feed_after(costs.gather_s, words.CheckpointGathered, version=command.version)
        self._clock.after(costs.gather_s + costs.write_s, self.host.when_up, self._written, checkpoint)

    def _written(self, checkpoint: dict[str, Any]) -> None:
        self._saved(checkpoint)
        self.host.feed(
            words.CheckpointWritten,
            version=checkpoint["version"],
            elapsed_s=self._workload.costs.write_s,
            n_bytes=3 * MODEL_BYTES,
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

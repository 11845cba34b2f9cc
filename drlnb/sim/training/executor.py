"""Play the executor's side of one attempt at a task: its gradients, its updates and their commits."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from drlnb.planning.leasing.fence import StoreGate
from drlnb.records import round as words
from drlnb.records.base import Event
from drlnb.records.columns.leasing import GradientsRestored, RestoreGradients
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Effects, Hosted
from drlnb.sim.training.nodes import MODEL_BYTES
from drlnb.sim.training.pool import Pool

__all__ = ["ExecutorSide"]

_Work = words.InitialiseParameters | words.ComputeGradient | RestoreGradients | words.FinishRound


@dataclass(slots=True)
class ExecutorSide:
    """What one attempt computes on slots, and the store of its parameters."""

    pool: Pool
    workload: Durations
    host: Hosted
    task: str
    attempt: int
    store: StoreGate

    @property
    def effects(self) -> Effects:
        """What carries out each kind of command."""
        return {
            words.InitialiseParameters: partial(self._make, 0),
            words.ComputeGradient: self._compute,
            RestoreGradients: self._restore,
            words.FinishRound: lambda command: self._make(command.round, command),
            words.CommitParameters: self._commit,
            words.DropExperience: lambda _: None,  # nothing was allocated
        }

    def _submit(self, command: _Work, duration_s: float, kind: type[Event], **answer: Any) -> None:
        """Occupy the command's slot so long, then feed the answer."""
        # At the first use, not at the grant: a grant that the machine returns must not shut the lease in use out.
        self.store.learn(command.fence, self.attempt)
        done = partial(self.host.feed, kind, fence=command.fence, **answer)
        executor, switch_s = self.pool.executors[command.slot], self.workload.costs.switch_s
        executor.submit(command.fence, duration_s, done, tenant=self.task, switch_s=switch_s)

    def _compute(self, command: words.ComputeGradient) -> None:
        costs, i = self.workload.round(command.round), command.collector
        elapsed_s = costs.compute_s[i] if costs.compute_s else costs.stage_s[i]
        key = f"g/{command.key}" if command.keep else ""
        answer = {"collector": i, "round": command.round, "elapsed_s": elapsed_s, "key": key}
        self._submit(command, costs.stage_s[i], words.GradientComputed, **answer)

    def _restore(self, command: RestoreGradients) -> None:
        self._submit(command, 0.0, GradientsRestored, round=command.round, elapsed_s=0.0)

    def _make(self, k: int, command: words.InitialiseParameters | words.FinishRound) -> None:
        """Make the parameters that follow round `k`."""
        finish_s = self.workload.round(k).finish_s
        self._submit(
            command,
            finish_s,
            words.ParametersReady,
            round=k,
            elapsed_s=finish_s,
            n_bytes=MODEL_BYTES,
            key=f"{self.task}/a{self.attempt}/v{k + 1}",
            metrics={},
        )

    def _commit(self, command: words.CommitParameters) -> None:
        # A refusal needs no answer: the lease is lost, and its loss is on its way to the machine.
        if self.store.admit(command.fence, self.attempt, command.version) is None:
            self.host.feed_after(0.0, words.ParametersCommitted, version=command.version, fence=command.fence)

"""Play one task through all of its attempts: a master that dies is followed by another one."""

from collections.abc import Mapping
from typing import Any

from drlnb.records import round as words
from drlnb.records.columns.leasing import SendGrant, YieldAsked
from drlnb.records.columns.placement import SendPlacement
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Clock, Hosted
from drlnb.sim.training.attempt import Attempt
from drlnb.sim.training.pool import Pool

__all__ = ["Task"]

#: Where a task begins that has no checkpoint.
_NOTHING: Mapping[str, Any] = {
    "version": 0, "n_rounds": 0, "n_timesteps": 0, "elapsed_s": 0.0, "episodes": (), "n_bytes": 0,
}  # fmt: skip


class Task:
    """A task, as its pool sees it: what is said to it reaches the attempt that lives.

    Parameters
    ----------
    config
        Constructor arguments of the round machine.
    node
        Node of the masters; it must stay up.
    """

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
        self._clock, self._pool, self._workload = clock, pool, workload
        self._config, self._node, self._validate = config, node, validate
        self._checkpoint: Mapping[str, Any] = _NOTHING
        #: Every attempt, oldest first; the last one lives, unless its master was killed and no other has begun.
        self.attempts: list[Attempt] = []
        self._begin()
        self.name = self.attempts[0].name
        pool.masters[self.name] = self

    @property
    def now(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def host(self) -> Hosted:
        """Host of the newest attempt's machine."""
        return self.now.host

    @property
    def end(self) -> words.EndTask | None:
        """The command that ended the task."""
        return self.now.end

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The journals of all attempts."""
        return tuple(attempt.host.stream for attempt in self.attempts)

    @property
    def is_up(self) -> bool:
        """Whether a master has been started, lives and is not frozen, and the task has not ended."""
        return self.now.opened and self.end is None and not self.now.dead and not self.host.frozen

    def open(self) -> None:
        """Start the master."""
        self.now.open()

    def _begin(self) -> None:
        self.attempts.append(
            Attempt(
                self._clock,
                self._pool,
                self._workload,
                config=self._config,
                node=self._node,
                attempt=len(self.attempts) + 1,
                opening=self._checkpoint,
                saved=self._save,
                validate=self._validate,
            )
        )

    def _save(self, checkpoint: Mapping[str, Any]) -> None:
        self._checkpoint = checkpoint

    # ------------------------------------------------------------------ deaths and pauses
    def kill(self, restart_s: float) -> None:
        """Kill the master; another attempt begins so many seconds later, from the newest checkpoint."""
        self.now.kill()
        self._clock.after(restart_s, self._restart)

    def _restart(self) -> None:
        self._begin()
        self.open()

    def freeze(self, down_s: float) -> None:
        """Stop the master's process for so many seconds."""
        self.now.freeze()
        self._clock.after(down_s, self.now.thaw)

    def kill_collector(self, collector: int, reason: str) -> bool:
        """Kill a collector's process, if it has been started."""
        return not self.now.dead and self.end is None and self.now.nodes.kill_collector(collector, reason)

    # ------------------------------------------------------------------ what others say
    def granted(self, command: SendGrant) -> None:
        """Deliver the pool's answer to the master; to one that is gone it is lost."""
        if not self.now.dead:
            self.now.granted(command)

    def placed(self, command: SendPlacement) -> None:
        """Deliver the pool's answer to the master."""
        if command.attempt == self.now.attempt:
            self.now.placed(command)

    def yield_asked(self, fence: Fence) -> None:
        """Inform the master that somebody waits for a slot like its own."""
        self.now.report(YieldAsked, fence=fence)

    def lease_lost(self, fence: Fence, reason: str) -> None:
        """Inform the master that a lease has ended."""
        self.now.report(words.LeaseLost, fence=fence, reason=reason)

    def executor_died(self, fence: Fence, slot: str, reason: str) -> None:
        """Inform the master that the executor of its slot is gone."""
        self.host.feed(words.ExecutorDied, fence=fence, slot=slot, reason=reason)

    def node_lost(self, node: str, reason: str) -> None:
        """Lose the collectors of a node and inform the master."""
        self.now.node_lost(node, reason)

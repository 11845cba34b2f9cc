"""Play one task through all of its attempts: a master that dies is followed by another one."""

from collections.abc import Mapping
from functools import partial

from drlnb.records import round as words
from drlnb.records.journal import Stream
from drlnb.sim.costs import Durations
from drlnb.sim.driver import Clock, Hosted
from drlnb.sim.training.attempt import Attempt
from drlnb.sim.training.nodes import Checkpoint
from drlnb.sim.training.pool import Pool

__all__ = ["Task"]

#: Where a task begins that has no checkpoint.
_NOTHING: Checkpoint = {
    "version": 0,
    "n_rounds": 0,
    "n_timesteps": 0,
    "elapsed_s": 0.0,
    "episodes": (),
    "n_bytes": 0,
}


class Task:
    """A task; the newest of its attempts is the master that its pool knows, on a node that must stay up."""

    def __init__(
        self,
        clock: Clock,
        pool: Pool,
        durations: Durations,
        *,
        config: Mapping[str, object],
        node: str,
        validate: bool = False,
    ) -> None:
        self.durations = durations
        self._clock = clock
        self._attempt = partial(
            Attempt, clock, pool, durations, config=config, node=node, saved=self._save, validate=validate
        )
        self._checkpoint = _NOTHING
        #: Every attempt, oldest first; the last one lives, unless its master was killed and no other has begun.
        self.attempts: list[Attempt] = []
        self._begin()
        self.name = self.now.name

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
        return bool(self.host.records) and self.end is None and not self.now.dead and not self.host.frozen

    def open(self) -> None:
        """Start the master."""
        self.now.open()

    def _begin(self) -> None:
        self.attempts.append(self._attempt(attempt=len(self.attempts) + 1, opening=self._checkpoint))

    def _save(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    # ------------------------------------------------------------------ deaths and pauses
    def kill(self, restart_s: float) -> bool:
        """Kill the master; another attempt begins so many seconds later, from the newest checkpoint."""
        self.now.kill()
        self._clock.after(restart_s, self._restart)
        return True

    def _restart(self) -> None:
        self._begin()
        self.open()

    def freeze(self, down_s: float) -> bool:
        """Stop the master's process for so many seconds."""
        self.now.freeze()
        self._clock.after(down_s, self.now.thaw)
        return True

    def kill_collector(self, collector: int) -> bool:
        """Kill a collector's process, if it has been started."""
        return not self.now.dead and self.end is None and self.now.nodes.kill_collector(collector)

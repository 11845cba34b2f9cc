"""Count how far a task is and what its latest round cost: counters, the episode window, scalars of a round."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drlnb.records.base import Facts, Row
from drlnb.records.round import TaskOpened

__all__ = ["EPISODE_WINDOW", "Progress"]

#: Episodes in the running mean of returns: Stable-Baselines3's `stats_window_size`.
EPISODE_WINDOW = 100


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of one task over all its attempts, and the clock marks of the present round."""

    n_rounds: int = 0
    n_timesteps: int = 0
    #: Latest returns and lengths, oldest first.
    episodes: list[tuple[float, int]] = field(default_factory=list)
    #: Collector -> episodes that ended in its share of the present round.
    arrived: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    #: Stream time at which this attempt would have started had it trained from the beginning, in seconds.
    origin_t: float = 0.0
    round_t: float = 0.0
    collect_s: float = 0.0
    update_s: float = 0.0
    push_s: float = 0.0
    #: Episodes that the present resume has lost and no metrics have reported yet.
    episodes_lost: int = 0

    @property
    def version(self) -> int:
        """Version of the parameters that the present round acts with."""
        return self.n_rounds + 1

    def opened(self, event: TaskOpened) -> None:
        """Start from nothing or from a checkpoint's counters."""
        self.n_rounds, self.n_timesteps = event.n_rounds, event.n_timesteps
        self.origin_t, self.round_t = event.t - event.elapsed_s, event.t
        self.episodes = [(float(r), int(n)) for r, n in event.episodes][-EPISODE_WINDOW:]

    def began(self, t: float) -> None:
        """Start the clocks of a round."""
        self.round_t = t
        self.collect_s = self.update_s = self.push_s = 0.0

    def collected(self, collector: int, collect_s: float, episodes: Sequence[tuple[float, int]]) -> None:
        """Add one collector's share: the slowest one is on the critical path."""
        self.collect_s = max(self.collect_s, collect_s)
        self.arrived[collector] = [(float(r), int(n)) for r, n in episodes]

    def finished(self, n_samples: int) -> None:
        """Count a finished round; episodes enter the window in collector order, whoever was faster."""
        for collector in sorted(self.arrived):
            self.episodes = (self.episodes + self.arrived[collector])[-EPISODE_WINDOW:]
        self.arrived = {}
        self.n_rounds += 1
        self.n_timesteps += n_samples

    def metrics(self, t: float, *, waited_s: float, train: Facts) -> Row:
        """Return the scalars of the round that ends at `t`, under Stable-Baselines3's names where it has one.

        ``round/control_s`` is all that is neither acting, value pass and gradient, nor waiting for a lease.
        """
        round_s = t - self.round_t
        elapsed_s = t - self.origin_t
        row: Row = {}
        if self.episodes:
            n = len(self.episodes)
            row["rollout/ep_rew_mean"] = sum(r for r, _ in self.episodes) / n
            row["rollout/ep_len_mean"] = sum(length for _, length in self.episodes) / n
        row |= {
            "time/iterations": self.n_rounds,
            "time/total_timesteps": self.n_timesteps,
            "time/time_elapsed": elapsed_s,
            "time/fps": self.n_timesteps / elapsed_s if elapsed_s > 0 else 0.0,
            "round/time_s": round_s,
            "round/collect_s": self.collect_s,
            "round/wait_lease_s": waited_s,
            "round/update_s": self.update_s,
            "round/push_s": self.push_s,
            "round/control_s": round_s - self.collect_s - waited_s - self.update_s,
        }
        if self.episodes_lost:
            row["resume/episodes_lost"], self.episodes_lost = self.episodes_lost, 0
        return row | dict(train)

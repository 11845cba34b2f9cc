"""Count how far a task is and what its latest round cost: counters, the episode window, scalars of a round.

Of leases and starts it sums up what the task's own master can know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drlnb.records.base import Row
from drlnb.records.columns.warmup import WarmupMeasured, WarmupPlanned
from drlnb.records.episodes import Episode, episode, rolling
from drlnb.records.round import TaskOpened

__all__ = ["Progress"]


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of one task over all its attempts, clock marks of the present round, sums over its leases and starts."""

    n_rounds: int = 0
    n_timesteps: int = 0
    #: Latest returns and lengths, oldest first.
    episodes: list[Episode] = field(default_factory=list)
    #: Collector -> episodes that ended in its share of the present round.
    arrived: dict[int, list[Episode]] = field(default_factory=dict)
    #: Stream time at which this attempt would have started had it trained from the beginning, in seconds.
    origin_t: float = 0.0
    round_t: float = 0.0
    update_s: float = 0.0
    #: Of the slowest collector; until the slowest host held the parameters.  None: no answer, or nobody to answer.
    collect_s: float | None = None
    push_s: float | None = None
    #: Episodes that the present resume has lost and no metrics have reported yet.
    episodes_lost: int = 0
    #: Event time of the grant of the lease that is held; None: none is.
    granted_t: float | None = None
    waited_s: float = 0.0
    held_s: float = 0.0
    n_leases: int = 0
    #: Of these leases, those of which the pool said whether their slots hold the parameters, and those that do.
    n_known: int = 0
    n_resident: int = 0
    moved_bytes: int = 0
    #: Round -> collector -> seconds by which the start for that round precedes the expected arrival.
    leads: dict[int, dict[int, float]] = field(default_factory=dict)
    #: Round -> seconds early and seconds late of each start for it.
    starts: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Version of the parameters that the present round acts with."""
        return self.n_rounds + 1

    def opened(self, event: TaskOpened, window: int) -> None:
        """Start from nothing or from a checkpoint's counters; `window`: episodes that the rolling means cover."""
        self.n_rounds, self.n_timesteps = event.n_rounds, event.n_timesteps
        self.origin_t, self.round_t = event.t - event.elapsed_s, event.t
        self.episodes = [episode(values) for values in event.episodes][-window:]

    def began(self, t: float) -> None:
        """Start the clocks and sums of a round."""
        self.round_t = t
        self.update_s = self.waited_s = self.held_s = 0.0
        self.collect_s = self.push_s = None
        self.n_leases = self.n_known = self.n_resident = self.moved_bytes = 0
        self.leads = {known: leads for known, leads in self.leads.items() if known > self.n_rounds}
        self.starts = {known: both for known, both in self.starts.items() if known > self.n_rounds}

    def granted(self, t: float, *, waited_s: float, resident: bool | None) -> None:
        """Count a lease."""
        self.granted_t = t
        self.n_leases += 1
        self.waited_s += waited_s
        self.n_known += resident is not None
        self.n_resident += bool(resident)

    def ended(self, t: float) -> None:
        """End the lease that is held, if one is."""
        if self.granted_t is not None:
            self.held_s += t - self.granted_t
            self.granted_t = None

    def planned(self, record: WarmupPlanned) -> None:
        """Keep a plan; a later one for the same start takes its place."""
        leads = self.leads.setdefault(record.round + 1, {})
        if record.lead_s is None:
            leads.pop(record.collector, None)
        else:
            leads[record.collector] = record.lead_s

    def measured(self, record: WarmupMeasured) -> None:
        """Keep what the starts for a round came to."""
        self.starts[record.round] = (tuple(record.early_s), tuple(record.late_s))

    def collected(self, collector: int, collect_s: float, episodes: Sequence[Episode]) -> None:
        """Add one collector's share: the slowest one is on the critical path."""
        self.collect_s = max(self.collect_s or 0.0, collect_s)
        self.arrived[collector] = [episode(values) for values in episodes]

    def finished(self, n_samples: int, window: int) -> None:
        """Count a finished round; episodes enter the window in collector order, whoever was faster."""
        for collector in sorted(self.arrived):
            self.episodes = (self.episodes + self.arrived[collector])[-window:]
        self.arrived = {}
        self.n_rounds += 1
        self.n_timesteps += n_samples

    def metrics(self, t: float) -> Row:
        """Return the scalars of the round that ends at `t`, under Stable-Baselines3's names where it has one.

        ``round/control_s`` is all that is neither acting, value pass and gradient, nor waiting for a lease.  What
        cannot be said is left out.
        """
        round_s = t - self.round_t
        elapsed_s = t - self.origin_t
        row: Row = {
            **rolling(self.episodes),
            "time/iterations": self.n_rounds,
            "time/total_timesteps": self.n_timesteps,
            "time/time_elapsed": round(elapsed_s, 6),
            "time/fps": round(self.n_timesteps / elapsed_s, 1) if elapsed_s > 0 else 0.0,
            "round/time_s": round_s,
            "round/collect_s": self.collect_s,
            "round/wait_lease_s": self.waited_s,
            "round/update_s": self.update_s,
            "round/push_s": self.push_s,
            "round/control_s": round_s - (self.collect_s or 0.0) - self.waited_s - self.update_s,
        }
        if self.episodes_lost:
            row["resume/episodes_lost"], self.episodes_lost = self.episodes_lost, 0
        if self.n_leases:
            row |= {
                "lease/wait_s": self.waited_s / self.n_leases,
                "lease/held_s": self.held_s,
                "lease/moved_bytes": self.moved_bytes,
            }
        if self.n_known:
            row["lease/resident_hit"] = self.n_resident / self.n_known
        row |= self._of_starts()
        return {
            key: round(value, 6) if key.endswith("_s") else value for key, value in row.items() if value is not None
        }

    def _of_starts(self) -> Row:
        """Return what was planned and measured of the starts for the round that has been finished."""
        row: Row = {}
        if leads := list(self.leads.get(self.n_rounds, {}).values()):
            row["warmup/lead_s"] = sum(leads) / len(leads)
        early, late = self.starts.get(self.n_rounds, ((), ()))
        if early:
            row |= {
                "warmup/hit": sum(seconds <= 0.0 for seconds in late) / len(late),
                "warmup/early_s": sum(early) / len(early),
                "warmup/late_s": sum(late) / len(late),
            }
        return row

"""Sum up what the leases and the starts of a round came to, as its own master can know it."""

from dataclasses import dataclass, field

from drlnb.records.base import Row
from drlnb.records.columns.warmup import WarmupMeasured, WarmupPlanned

__all__ = ["RoundScalars"]


@dataclass(slots=True, kw_only=True)
class RoundScalars:
    """Sums over the leases of the present round, and what was planned and measured of the starts for it."""

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

    def close(self, round_: int) -> Row:
        """Return the scalars of a finished round, and begin the next one; what cannot be said is left out."""
        row: Row = {}
        if self.n_leases:
            row |= {
                "lease/wait_s": self.waited_s / self.n_leases,
                "lease/held_s": self.held_s,
                "lease/moved_bytes": self.moved_bytes,
            }
        if self.n_known:
            row["lease/resident_hit"] = self.n_resident / self.n_known
        leads = list(self.leads.get(round_, {}).values())
        if leads:
            row["warmup/lead_s"] = sum(leads) / len(leads)
        early, late = self.starts.get(round_, ((), ()))
        if early:
            row |= {
                "warmup/hit": sum(seconds <= 0.0 for seconds in late) / len(late),
                "warmup/early_s": sum(early) / len(early),
                "warmup/late_s": sum(late) / len(late),
            }
        self.waited_s = self.held_s = 0.0
        self.n_leases = self.n_known = self.n_resident = self.moved_bytes = 0
        self.leads = {known: leads for known, leads in self.leads.items() if known > round_}
        self.starts = {known: both for known, both in self.starts.items() if known > round_}
        return row

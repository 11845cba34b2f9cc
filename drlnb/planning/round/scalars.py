"""What did the leases and the starts of a round come to?  Scalars of a round that its own master can know."""

from collections.abc import Mapping
from typing import Any

from drlnb.records.columns.warmup import WarmupMeasured, WarmupPlanned

__all__ = ["RoundScalars"]


class RoundScalars:
    """Sums over the leases of the present round, and what was planned and measured of the starts for it."""

    def __init__(self) -> None:
        #: Event time of the grant of the lease that is held; None: none is.
        self.granted_t: float | None = None
        self.waited_s = 0.0
        self.held_s = 0.0
        self.n_leases = 0
        #: Of these leases, those of which the pool said whether their slots hold the parameters, and those that do.
        self.n_told = 0
        self.n_resident = 0
        self.moved_bytes = 0
        #: Round -> collector -> seconds by which the start for that round precedes the expected arrival.
        self.leads: dict[int, dict[int, float]] = {}
        #: Round -> seconds early and seconds late of each start for it.
        self.starts: dict[int, tuple[list[float], list[float]]] = {}

    def granted(self, t: float, *, waited_s: float, resident: bool | None) -> None:
        """Count a lease."""
        self.granted_t = t
        self.n_leases += 1
        self.waited_s += waited_s
        self.n_told += resident is not None
        self.n_resident += bool(resident)

    def ended(self, t: float) -> None:
        """Note that the lease is held no more; nothing, if none was."""
        if self.granted_t is not None:
            self.held_s += t - self.granted_t
            self.granted_t = None

    def planned(self, record: WarmupPlanned) -> None:
        """Note a plan; a later one for the same start takes its place."""
        leads = self.leads.setdefault(record.round + 1, {})
        if record.lead_s is None:
            leads.pop(record.collector, None)
        else:
            leads[record.collector] = record.lead_s

    def measured(self, record: WarmupMeasured) -> None:
        """Note what the starts for a round came to."""
        self.starts[record.round] = (list(record.early_s), list(record.late_s))

    def close(self, round_: int) -> dict[str, Any]:
        """Return the scalars of a finished round, and begin the next one; what cannot be said is left out."""
        row: dict[str, Any] = {}
        if self.n_leases:
            row |= {
                "lease/wait_s": self.waited_s / self.n_leases,
                "lease/held_s": self.held_s,
                "lease/moved_bytes": self.moved_bytes,
            }
        if self.n_told:
            row["lease/resident_hit"] = self.n_resident / self.n_told
        leads = list(self.leads.get(round_, {}).values())
        if leads:
            row["warmup/lead_s"] = sum(leads) / len(leads)
        early, late = self.starts.get(round_, ([], []))
        if early:
            row |= {
                "warmup/hit": sum(seconds <= 0.0 for seconds in late) / len(late),
                "warmup/early_s": sum(early) / len(early),
                "warmup/late_s": sum(late) / len(late),
            }
        self.waited_s = self.held_s = 0.0
        self.n_leases = self.n_told = self.n_resident = self.moved_bytes = 0
        self.leads = {known: leads for known, leads in self.leads.items() if known > round_}
        self.starts = {known: both for known, both in self.starts.items() if known > round_}
        return row

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        leads = [[round_, [[i, lead] for i, lead in of.items()]] for round_, of in self.leads.items()]
        starts = [[round_, list(early), list(late)] for round_, (early, late) in self.starts.items()]
        return dict(vars(self)) | {"leads": leads, "starts": starts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of :meth:`snapshot`."""
        vars(self).update(state)
        self.leads = {round_: dict(of) for round_, of in state["leads"]}
        self.starts = {round_: (list(early), list(late)) for round_, early, late in state["starts"]}

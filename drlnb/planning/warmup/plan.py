"""Define the plan of a round's starts."""

from dataclasses import dataclass, replace

__all__ = ["Candidate", "WarmupPlan"]

#: Seconds after sending (None: at the parameters' arrival), expected wait and idle time in seconds; free of rho.
Candidate = tuple[float | None, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupPlan:
    """What becomes of the collectors of one round once they have sent their experience."""

    #: ``cold``: started by the arrival of the next parameters; ``start``: at a planned time, or by that arrival if it
    #: is sooner; ``keep``: never stopped.
    action: str
    reason: str
    #: Seconds from the reference to the start; None without a planned time.
    start_after_s: float | None = None
    #: Seconds to add, by worker; empty: none.
    offsets_s: tuple[float, ...] = ()
    #: The reference: ``sent`` (each worker's own sending) or ``round`` (the round's start).
    since: str = "sent"
    #: Seconds by which the start precedes the expected arrival.
    lead_s: float | None = None
    #: Expected seconds that the round waits for its last collector, and that a collector is idle.
    expected_wait_s: float | None = None
    expected_idle_s: float | None = None
    #: What was weighed.
    candidates: tuple[Candidate, ...] = ()
    #: Beside each candidate: standard errors in seconds of the mean wait that it saves over cold and of its mean idle
    #: time, and their correlation.
    candidate_errors: tuple[tuple[float, float, float], ...] = ()
    #: Mean paired saving of the best planned candidate over cold, and its standard error, in seconds.
    saved_s: float | None = None
    saved_error_s: float | None = None
    #: Latest rounds that the stability filter looked at, least and most seconds that it keeps; by worker, or one for
    #: all, or nothing if there was none.
    filtered: tuple[tuple[int, float, float], ...] = ()

    def repeated(self) -> "WarmupPlan":
        """Return the plan without what is journalled once per round."""
        return replace(self, candidates=(), candidate_errors=(), saved_s=None, saved_error_s=None)

    def filter_of(self, worker: int) -> tuple[int, float, float] | None:
        """Return what the filter did for one worker."""
        return self.filtered[min(worker, len(self.filtered) - 1)] if self.filtered else None

    def start_s(self, worker: int) -> float | None:
        """Return the start of one worker in seconds after the reference; None: at the parameters' arrival."""
        if self.start_after_s is None:
            return None
        return max(0.0, self.start_after_s + (self.offsets_s[worker] if self.offsets_s else 0.0))

"""Split units by a moving average of the members' speeds."""

from drlnb.planning.batching.estimate import Memory, followed, planned_by, speeds
from drlnb.planning.batching.planner import BatchPlan, BatchReport, BatchView

__all__ = ["Ewma"]

#: Weight of the latest measurement.
_WEIGHT = 0.3


class Ewma:
    """Expects each member at the exponentially weighted mean of its speeds: smooth, and late after a change."""

    name = "ewma"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        return planned_by(view, speeds(view))

    def observe(self, memory: object, report: BatchReport) -> Memory:
        """Return what is remembered after a report."""
        return followed(memory, report, _moved)


def _moved(speed_hz: float, measured_hz: float, is_few: bool) -> float:
    return (1 - _WEIGHT) * speed_hz + _WEIGHT * measured_hz

"""Split units by the members' long-run speeds, whatever slows them down now."""

from drlnb.planning.batching.estimate import Memory, followed, planned_by, speeds
from drlnb.planning.batching.planner import BatchPlan, BatchReport, BatchView

__all__ = ["Static"]


class Static:
    """Expects each member at its long-run speed."""

    name = "static"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        return planned_by(view, speeds(view, long=True))

    def observe(self, memory: object, report: BatchReport) -> Memory:
        """Return what is remembered after a report."""
        return followed(memory, report, lambda speed_hz, measured_hz, is_few: measured_hz)

"""Split units evenly, whatever the members' speeds: for collectors what Stable-Baselines3 does."""

from dataclasses import replace

from drlnb.planning.batching.planner import BatchPlan, BatchView
from drlnb.planning.batching.proportional import by_largest_remainder

__all__ = ["Equal"]


class Equal:
    """Gives each member as much as the others, up to one unit; collectors make the algorithm's own `n_steps`."""

    name = "equal"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the same number for all."""
        alike = [replace(each, speed_hz=1.0) for each in view.members]
        return BatchPlan(sizes=by_largest_remainder(view.n_units, alike, allow_idle=view.role == "update"))

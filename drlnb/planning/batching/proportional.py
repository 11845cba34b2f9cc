"""Split units in proportion to the speeds that were measured lately: our reading of the batching patent's claim 3."""

from collections.abc import Sequence
from dataclasses import replace

from drlnb.planning.batching.planner import BatchPlan, BatchView
from drlnb.planning.batching.split import Member, real_shares

__all__ = ["Proportional", "by_largest_remainder"]


class Proportional:
    """Shares members as their speeds are to each other, within bounds; as long as one is not measured, evenly."""

    name = "proportional"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        sizes = by_largest_remainder(view.n_units, view.members, allow_idle=view.role == "update")
        return BatchPlan(sizes=sizes, speeds_hz=tuple([each.speed_hz for each in view.members]))


def by_largest_remainder(n_units: int, members: Sequence[Member], *, allow_idle: bool = True) -> tuple[int, ...]:
    """Split units in proportion to the members' speeds; what is left over goes to the largest remainders, ties by id.

    Overheads are not looked at.

    Raises
    ------
    InfeasibleSplit, ValueError
        As of :func:`~drlnb.planning.batching.split.plan_split`.

    Examples
    --------
    >>> by_largest_remainder(10, [Member(id="a", speed_hz=2), Member(id="b", speed_hz=1)])
    (7, 3)
    """
    shares = real_shares(n_units, [replace(each, overhead_s=0.0) for each in members], allow_idle=allow_idle)
    sizes = [int(share) for share in shares]
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i] - shares[i], members[i].id))
    for i in order[: n_units - sum(sizes)]:
        sizes[i] += 1
    return tuple(sizes)

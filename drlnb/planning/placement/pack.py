"""Place a task on as few nodes as it fits on."""

from collections.abc import Iterator

from drlnb.planning.placement.collectors import keep_and_deal, spread
from drlnb.planning.placement.planner import Placement, PlacementView, placed

__all__ = ["Pack"]


class Pack:
    """Fewest nodes: those in use, then those with the most room, last the master's node or the one that fits best.

    Collectors whose node still lives stay there.  Those that fit nowhere are spread over all nodes alike.  The
    gang gets the slots of these nodes that are home to the fewest, then others; every live slot is allowed.
    """

    name = "pack"

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task; ValueError if there is no live node."""
        nodes = _packed(view)
        return placed(view, nodes, near=nodes)


def _packed(view: PlacementView) -> tuple[str, ...]:
    """Return the node of each collector."""

    def fill(n_left: int, free: dict[str, int]) -> Iterator[str]:
        used = {*view.before[: view.n_collectors]}
        while n_left and any(free.values()):
            room = [node for node, n in free.items() if n]
            room = [node for node in room if node in used] or room
            if whole := [node for node in room if free[node] >= n_left]:  # the last: the master's, the tightest
                node = min(whole, key=lambda name: (name != view.node, free[name], name))
            else:
                node = min(room, key=lambda name: (-free[name], name != view.node, name))
            n = min(n_left, free.pop(node))
            yield from [node] * n
            n_left -= n
        yield from spread(n_left, dict.fromkeys(view.free_collectors, 0), near=view.node)

    return keep_and_deal(view.n_collectors, view.free_collectors, view.before, fill)

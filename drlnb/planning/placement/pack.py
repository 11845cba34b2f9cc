"""Place a task on as few nodes as it fits on."""

from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.planner import Placement, PlacementView

__all__ = ["Pack"]


class Pack:
    """Fewest nodes: those with the most room first, and at the end the master's node, or the one that fits best.

    Collectors whose node still lives stay there.  Those that fit nowhere are spread over all nodes alike.  Home is the
    slot that is home to the fewest on these nodes, if any has one; every live slot is allowed.
    """

    name = "pack"

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task.

        Raises
        ------
        ValueError
            If there is no live node.
        """
        nodes = _packed(view)
        slots = sorted(view.homes)
        near = [slot for slot in slots if slot.partition("/")[0] in nodes]
        return Placement(
            home=min(near or slots, key=view.homes.__getitem__, default=None),
            allowed=tuple(slots),
            collector_nodes=nodes,
        )


def _packed(view: PlacementView) -> tuple[str, ...]:
    """Return the node of each collector."""
    free = {node: max(0, n) for node, n in view.free_collectors.items()}
    kept = {i: node for i, node in enumerate(view.before[: view.n_collectors]) if node in free}
    for node in kept.values():
        free[node] = max(0, free[node] - 1)
    left = view.n_collectors - len(kept)
    used = set(kept.values())
    newcomers: list[str] = []
    while left and any(free.values()):
        whole = [node for node, n in free.items() if n >= left]
        if whole:  # the last node: one in use, the master's, the tightest
            node = min(whole, key=lambda name: (name not in used, name != view.node, free[name], name))
        else:
            node = min(free, key=lambda name: (-free[name], name != view.node, name))
        n = min(left, free.pop(node))
        newcomers += [node] * n
        left -= n
    newcomers += spread(left, dict.fromkeys(view.free_collectors, 0), near=view.node)
    rest = iter(newcomers)
    return tuple([kept[i] if i in kept else next(rest) for i in range(view.n_collectors)])

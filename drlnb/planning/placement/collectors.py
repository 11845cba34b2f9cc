"""Place each collector of a task on a node."""

from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["keep_and_deal", "spread"]


def spread(n: int, nodes: Mapping[str, int], *, near: str | None = None, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Spread the collectors of a task over nodes in proportion to what is free there.

    Largest remainder (Hamilton's apportionment): each node gets the whole part of its share, then the largest
    fractions one more, ties to `near`, then by name.  While the collectors fit, no node gets more than fit there;
    beyond, every node is oversubscribed by the same factor (all alike if nothing is free anywhere).  A collector whose
    node still lives stays there, so the loss of a node moves only those that lived on it.  Ours: the placement patent
    places learners only.

    Parameters
    ----------
    n
        Number of collectors, at least 0.
    nodes
        Live node -> collectors that fit there beside those of other tasks; below 0 counts as 0.
    near
        Node of the master, preferred on ties and for the collectors with the lowest numbers.
    before
        Node of each collector so far, by its number; empty at the start.

    Returns
    -------
    tuple of str
        Node of each collector, by its number; shape ``(n,)``.

    Raises
    ------
    ValueError
        If `n` < 0, or collectors are to be placed and no node is there.

    Examples
    --------
    >>> spread(4, {"n0": 3, "n1": 1})
    ('n0', 'n0', 'n0', 'n1')
    >>> spread(4, {"n1": 1, "n2": 4}, before=("n0", "n0", "n0", "n1"))
    ('n2', 'n2', 'n2', 'n1')
    """
    if n < 0:
        raise ValueError(f"n must be >= 0 collectors, got {n}")

    def share_out(n_left: int, free: dict[str, int]) -> list[str]:
        if n_left and not free:
            raise ValueError(f"nodes must hold a node for {n} collectors, got none")
        names = sorted(free, key=lambda node: (node != near, node))
        counts = _apportion(n_left, [free[node] for node in names])
        return [node for node, count in zip(names, counts, strict=True) for _ in range(count)]

    return keep_and_deal(n, nodes, before, share_out)


def keep_and_deal(
    n: int, nodes: Mapping[str, int], before: Sequence[str], deal: Callable[[int, dict[str, int]], Iterable[str]]
) -> tuple[str, ...]:
    """Leave collectors on nodes that live; `deal` places the others, by their number and what is free by node."""
    kept = {i: node for i, node in enumerate(before[:n]) if node in nodes}
    free = {node: max(0, fit) for node, fit in nodes.items()}
    for node in kept.values():
        free[node] = max(0, free[node] - 1)
    newcomers = iter(deal(n - len(kept), free))
    return tuple([kept[i] if i in kept else next(newcomers) for i in range(n)])


def _apportion(n: int, weights: Sequence[int]) -> list[int]:
    """Divide `n` in proportion to whole weights by largest remainder, ties to the first; shape ``(len(weights),)``."""
    total = sum(weights)
    if total == 0:
        weights, total = [1] * len(weights), len(weights)
    shares = [divmod(n * weight, max(total, 1)) for weight in weights]
    left = n - sum(whole for whole, _ in shares)
    first = sorted(range(len(shares)), key=lambda i: -shares[i][1])[:left]
    return [whole + (i in first) for i, (whole, _) in enumerate(shares)]

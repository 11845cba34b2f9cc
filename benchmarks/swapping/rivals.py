"""Plan by trying all plans of a kind: what the planners of the product are compared with."""

import itertools
import math
from collections.abc import Iterator

from drlnb.planning.registry import Planner
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView
from drlnb.planning.swapping.heuristics import Rule, Searched, type_choices
from drlnb.planning.swapping.search import Choice, Search, best

__all__ = ["RIVALS", "planner_of"]

#: Plans that an exhaustive search walks at most.
_MOST_PLANS = 2**16


def oracle(search: Search) -> Choice:
    """Walk every plan.

    Raises
    ------
    ValueError
        If there are more than 65,536.
    """
    wholes = list(_antichains(search, sorted(search.blocks)))
    n_plans = math.prod(map(len, search.options)) * len(wholes)
    if n_plans > _MOST_PLANS:
        raise ValueError(f"there must be at most {_MOST_PLANS} plans to try them all, got {n_plans}")
    return best(
        search, (search.choice(wanted, blocks) for blocks in wholes for wanted in itertools.product(*search.options))
    )


def _antichains(search: Search, paths: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the sets of blocks no two of which overlap."""
    if not paths:
        yield ()
        return
    first, *others = paths
    yield from _antichains(search, others)
    apart = [other for other in others if not search.blocks[other] & search.blocks[first]]
    for blocks in _antichains(search, apart):
        yield (first, *blocks)


#: Name -> how it chooses: the best set of layer types (the patent's grain), and the best of all plans.
RIVALS: dict[str, Rule] = {
    "types_exhaustive": lambda search: best(search, type_choices(search)),
    "oracle": oracle,
}


def planner_of(text: str) -> Planner[SwapView, SwapPlan]:
    """Return a rival, or a planner of the product, by its name and actions.

    Examples
    --------
    >>> planner_of("oracle:actions=swap").name, planner_of("hybrid").name
    ('oracle', 'hybrid')
    """
    name, _, actions = text.partition(":actions=")
    return Searched(name, RIVALS[name], actions or "all") if name in RIVALS else SWAPPING.build(text)

"""Estimate how often each slot fails, from what was seen of it and of its node (ours)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Seen", "failure_rates"]

#: Failures that the mean of all slots weighs as much as: rates of slots scatter by 1.12 times their mean, as those of
#: Titan's graphics cards did.
_PRIOR = 0.8
#: Share of a node's estimate in those of its slots: what ails one slot often ails its neighbours.
_OF_NODE = 0.7


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a slot."""

    node: str
    n_failures: int
    #: Seconds for which it was under work: an idle slot shows nothing, however ill it is.
    exposure_s: float


def failure_rates(seen: Mapping[str, Seen]) -> dict[str, float]:
    """Return the failures per second of work to expect of each slot.

    The posterior mean of a gamma prior around the mean of all slots, 0.7 of the node's and 0.3 of the slot's own; 0
    for all as long as none has failed under work.

    Parameters
    ----------
    seen
        Slot -> what was seen of it.

    Examples
    --------
    Two slots of a node worked for 100 s each, and the first failed once, so that the mean is one in 200 s:

    >>> rates = failure_rates({"n0/a": Seen("n0", 1, 100.0), "n0/b": Seen("n0", 0, 100.0)})
    >>> [round(rate * 1000, 3) for rate in rates.values()]
    [5.577, 4.423]
    """
    n_failures, exposure_s = sum(each.n_failures for each in seen.values()), _exposure_s(seen.values())
    if not n_failures or not exposure_s:
        return dict.fromkeys(seen, 0.0)
    mean_s = exposure_s / n_failures
    on_node: dict[str, list[Seen]] = {}
    for each in seen.values():
        on_node.setdefault(each.node, []).append(each)
    of_node = {node: _posterior(slots, mean_s) for node, slots in on_node.items()}
    return {
        slot: _OF_NODE * of_node[each.node] + (1.0 - _OF_NODE) * _posterior([each], mean_s)
        for slot, each in seen.items()
    }


def _posterior(seen: Sequence[Seen], mean_s: float) -> float:
    """Return the rate of one slot of some that are taken to be alike; `mean_s`: seconds per failure of all slots."""
    n_failures = sum(each.n_failures for each in seen)
    return (_PRIOR + n_failures) / (_PRIOR * mean_s + _exposure_s(seen))


def _exposure_s(seen: Iterable[Seen]) -> float:
    return sum(each.exposure_s for each in seen)

"""List the decisions of a round, and find them by name."""

from collections.abc import Mapping

from drlnb.planning.batching import BATCHING, COLLECT
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing import HOLD
from drlnb.planning.placement import PLACEMENT
from drlnb.planning.registry import AnyKind
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.warmup import WARMUP
from drlnb.records.errors import ConfigError, nearest

__all__ = ["KINDS", "kind_of"]

#: Decision -> its kind.
KINDS: Mapping[str, AnyKind] = {
    kind.decision: kind for kind in (HOLD, WARMUP, BATCHING, COLLECT, SWAPPING, DISTRIBUTION, PLACEMENT)
}


def kind_of(decision: str) -> AnyKind:
    """Return a decision's kind.

    Raises
    ------
    ConfigError
        If there is no such decision; the message names the nearest one, or all.
    """
    if decision not in KINDS:
        raise ConfigError(f"unknown kind of planner {decision!r}{nearest(decision, KINDS, listed=True)}")
    return KINDS[decision]

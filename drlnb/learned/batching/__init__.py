"""Batching planners that look ahead.

`ddqn` is a network, `patent` the network that the batching patent describes, `auto` whichever of three would have been
fastest lately.
"""

from drlnb.learned.batching.patent import Patent
from drlnb.learned.batching.planner import Ddqn
from drlnb.planning.batching import BATCHING
from drlnb.planning.batching.guard import ShadowGuard
from drlnb.planning.batching.jump_reset import JumpReset
from drlnb.planning.batching.seasonal import Seasonal

__all__ = ["Auto", "Ddqn", "Patent"]


class Auto(ShadowGuard):
    """Follows whichever of `jump-reset`, `seasonal` and `ddqn` would have been fastest lately."""

    name = "auto"
    exact = False

    def __init__(self) -> None:
        super().__init__((JumpReset(), Seasonal(), Ddqn()))


BATCHING.register("ddqn", Ddqn)
BATCHING.register("auto", Auto)
BATCHING.register("patent", Patent)

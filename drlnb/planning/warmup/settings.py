"""Declare the settings of warm-up: which rule starts collectors, and what a second of waiting is worth."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from drlnb.planning.registry import planner
from drlnb.planning.warmup.planner import WARMUP
from drlnb.records.base import Facts
from drlnb.records.effect import NEXT_ROUND
from drlnb.records.settings import POSITIVE, Declared, Kind, choice, count, setting

__all__ = ["COLLECTOR_MODES", "START_MODES", "WarmupSettings", "mode_problem"]

T = TypeVar("T")

#: What becomes of a collector that has sent: its process rests, or ends (the leasing patent, claim 2).
COLLECTOR_MODES = ("park", "respawn")

#: How a process is started: forked from a warm parent, or as a new interpreter (the patent's cold start).
START_MODES = ("zygote", "spawn")


def mode_problem(mode: object, *, can_snapshot: bool) -> str:
    """Return why a task's collectors cannot have a mode; empty if they can."""
    if mode != "respawn" or can_snapshot:
        return ""
    return (
        "collector_mode: 'respawn' needs environments that can be frozen and thawed exactly: a new process would begin "
        "new episodes each round, and states late in an episode would never be seen; use 'park'"
    )


def _own(default: T, kind: Kind, decision: str = "") -> T:
    """Declare a setting that is each task's own."""
    return setting(default, kind, owner="task", counts=NEXT_ROUND, decision=decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSettings(Declared):
    """Every setting of warm-up; the numbers are ours (the leasing patent gives none)."""

    ROOM: ClassVar[str] = "warmup"

    #: When collectors are started: the name of a planner.
    planner: str = _own(WARMUP.default, planner(WARMUP), decision="warmup")
    #: One of :data:`COLLECTOR_MODES`.
    collector_mode: str = _own("park", choice(*COLLECTOR_MODES))
    #: One of :data:`START_MODES`; where there is no fork, ``spawn``.
    start_mode: str = _own("zygote", choice(*START_MODES))
    #: Cost of one second of a delayed round, relative to one second of all its collectors idle; dimensionless.
    rho: float = _own(1.0, POSITIVE)
    #: Price of one second of starting, relative to one second of an idle collector; dimensionless.
    kappa: float = _own(1.0, POSITIVE)
    #: Latest rounds that a plan looks at.
    window: int = _own(64, count(2))  # a standard error needs 2 rounds
    #: Latest rounds that the stability filter looks at.
    filter_window: int = _own(32, count(2))
    #: Rounds without which nothing is planned.
    min_rounds: int = _own(8, count(2))
    #: Start times that are weighed beside the earliest, the latest and none.
    n_candidates: int = _own(25, count(2))

    @classmethod
    def together(cls, values: Facts, wrong: Collection[str]) -> list[str]:
        """Return what is wrong with the windows beside each other."""
        shortest = {"min_rounds", "window", "filter_window"}.isdisjoint(wrong) and min(
            values["window"], values["filter_window"]
        )
        if not shortest or values["min_rounds"] <= shortest:
            return []
        return [
            f"min_rounds must be <= window and filter_window ({shortest}), got {values['min_rounds']}: "
            "nothing would ever be planned"
        ]

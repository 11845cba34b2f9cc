"""Declare the settings of leasing: how long a lease may be silent, held, or idle."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.registry import planner
from drlnb.records.base import Facts
from drlnb.records.effect import NEXT_GRANT, NEXT_LOOK, NEXT_ROUND
from drlnb.records.settings import FLAG, NOT_NEGATIVE, SECONDS, Declared, choice, count, setting

__all__ = ["HOLD_PLANNERS", "QUEUES", "LeasingSettings"]

#: Hold planners that come with this version; ``round`` is the patent's rule (paragraph 8).
HOLD_PLANNERS = HOLD.names
#: Disciplines of the queue: ``fifo`` is first in, first out inside a priority; ``drr`` shares slot seconds out.
QUEUES = ("fifo", "drr")

_SILENT = "it is about holders that fall silent, and in a simulation none does"
_DEAD = "it is about executors that hang or die, and in a simulation none does"
_GIVEN_UP = "it is about requests that are given up, and in a simulation none is"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingSettings(Declared):
    """Every setting of leasing; the numbers are ours (the leasing patent gives none).

    Raises
    ------
    ConfigError
        If any value is wrong, or not ``renew_s < holder_ttl_s < ttl_s``; the message lists all of it.
    """

    ROOM: ClassVar[str] = "leasing"

    #: When a task asks for a slot and gives it back: the name of a planner.
    hold: str = setting(HOLD.default, planner(HOLD), owner="task", counts=NEXT_ROUND, decision="hold")
    #: Who is next: one of :data:`QUEUES`.
    queue: str = setting("fifo", choice(*QUEUES))
    #: Seconds of waiting that weigh as much as one step of priority.
    age_quantum_s: float = setting(30.0, SECONDS)
    #: Share of a batch's compute above which a switch is too dear to yield for, dimensionless.
    switch_limit_frac: float = setting(0.2, NOT_NEGATIVE, owner="task")
    #: Seconds of silence after which the table takes a lease away: above a loop's hiccups, below TCP's 30 s.
    ttl_s: float = setting(10.0, SECONDS, counts=NEXT_GRANT, unfelt=_SILENT)
    #: Seconds since its last good renewal after which the holder kills its own job: before the table gives up.
    holder_ttl_s: float = setting(8.0, SECONDS, counts=NEXT_GRANT, unfelt=_SILENT)
    #: Seconds between renewals: three may be lost before the holder stops.
    renew_s: float = setting(2.0, SECONDS, counts=NEXT_GRANT, unfelt=_SILENT)
    #: Seconds that the pool keeps an unanswered request open before it says "pending".
    poll_s: float = setting(20.0, SECONDS, counts=NEXT_LOOK, unfelt=_GIVEN_UP)
    #: Long polls of a waiting request that may be missing before it loses its place; 0: it never does.
    lost_polls: int = setting(3, count(0), counts=NEXT_LOOK, unfelt=_GIVEN_UP)
    #: Seconds between looks for silent leases.
    reap_s: float = setting(0.25, SECONDS, counts=NEXT_LOOK, unfelt=_SILENT)
    #: Seconds by which such a look may come late before the pool blames its own loop.
    lag_threshold_s: float = setting(0.5, SECONDS, unfelt=_SILENT)
    #: Longest hold in seconds: bounds the progress of work, as `ttl_s` bounds silence.
    max_hold_s: float = setting(120.0, SECONDS, counts=NEXT_GRANT)
    #: A task may hold for so many times its own 95th percentile, if that is longer; 0: never longer.
    max_hold_factor: float = setting(8.0, NOT_NEGATIVE, counts=NEXT_GRANT)
    #: Seconds without progress after which a node kills its executor.
    compute_timeout_s: float = setting(60.0, SECONDS, counts=NEXT_GRANT, unfelt=_DEAD)
    #: Seconds between asking an executor to stop and killing it.
    kill_grace_s: float = setting(3.0, SECONDS, unfelt=_DEAD)
    #: Executor deaths in a row, under more than one task, after which a slot is failed for good.
    strikes: int = setting(3, count(1), unfelt=_DEAD)
    #: Whether strikes count at all.
    quarantine: bool = setting(True, FLAG, unfelt=_DEAD)
    #: Prefer the slot that holds the task's parameters, then its home.
    residency: bool = setting(True, FLAG, counts=NEXT_GRANT)
    #: Say what queueing theory expects of the load (:class:`~drlnb.records.columns.leasing.LoadEstimated`).
    estimates: bool = setting(True, FLAG, unfelt="it changes what is said of the load, not who gets a slot")

    @classmethod
    def together(cls, values: Facts, wrong: Collection[str]) -> list[str]:
        """Return what is wrong with the times of silence beside each other."""
        renew_s, holder_ttl_s, ttl_s = values["renew_s"], values["holder_ttl_s"], values["ttl_s"]
        if {"renew_s", "holder_ttl_s", "ttl_s"} & {*wrong} or renew_s < holder_ttl_s < ttl_s:
            return []
        return [
            f"renew_s < holder_ttl_s < ttl_s must hold, got {renew_s:g} s, {holder_ttl_s:g} s, {ttl_s:g} s: "
            "a holder must stop before its slot can be lent again"
        ]

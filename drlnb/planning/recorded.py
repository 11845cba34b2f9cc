"""Give back the plans of a journal in place of planners that cannot be asked again."""

from collections.abc import Callable
from typing import Generic

from drlnb.planning.registry import (
    LEARNING,
    OWN,
    Answer,
    FailedBefore,
    Plan,
    Planner,
    PlannerKind,
    Planners,
    View,
)
from drlnb.records.columns.distribution import MeasureLink
from drlnb.records.round import EndTask

__all__ = ["Recorded", "RecordedPlanners"]


class Recorded(Generic[View, Plan]):
    """Gives back the plans of a journal, in place of a planner that cannot be asked again.

    Parameters
    ----------
    kind
        The decision.
    name
        Of the planner that made the plans.
    answer
        Returns the journal's answer to the present event.
    planner
        Who remembers as it did, if it can be had: memories are in checkpoints.
    """

    def __init__(
        self,
        kind: PlannerKind[View, Plan],
        name: str,
        answer: Callable[[], Answer],
        planner: Planner[View, Plan] | None = None,
    ) -> None:
        self.name, self._kind, self._answer, self._planner = name, kind, answer, planner
        self.yields = self.replans = True
        self.mends = getattr(planner, "mends", False)
        #: The window of one job is the beginning of the other one.
        self.window = True

    @property
    def uses_link(self) -> bool:
        """Whether the network was measured for it here."""
        return self._answer().first(MeasureLink) is not None

    def plan(self, view: View) -> Plan:
        """Return the recorded plan.

        Raises
        ------
        FailedBefore
            If there is none: the planner had failed there.
        """
        answer = self._answer()
        plan = self._kind.recorded(view, answer)
        if plan is None:
            ended = answer.next(EndTask)
            raise FailedBefore(ended.reason if ended else f"the journal holds no plan of {self._kind.decision} here")
        return plan

    def observe(self, memory: object, report: object) -> object:
        """Return what its planner remembers; nothing of a user's own, whose plans alone are recorded.

        Raises
        ------
        FailedBefore
            If the planner had failed here as it learned.
        """
        ended = self._answer().first(EndTask)
        failed = ended is not None and f"planner {self.name} raised" in ended.reason
        if ended is not None and failed and LEARNING in ended.reason:
            raise FailedBefore(ended.reason)
        return memory if self._planner is None else self._kind.observe(self._planner, memory, report)


class RecordedPlanners(Planners):
    """The planners of a replay: those that cannot be asked again give back the plans of the journal.

    That are a user's own, and those that say ``exact = False``: sums of numpy depend on the processor, and a plan hangs
    on them.  What the latter remember is made again.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The journal's answer to the present event.
        self.answer = Answer()

    def _new(self, kind: PlannerKind[View, Plan], name: str) -> Planner[View, Plan]:
        planner = None if name.startswith(OWN) else kind.build(name)
        if planner is None or not getattr(planner, "exact", True):
            return Recorded(kind, name, lambda: self.answer, planner)
        return planner

"""Define the records of swapping: what leaves the device's memory during a training step (the swapping patent).

Profiles, links and plans ride as plain data; :mod:`drlnb.planning.swapping.profile` says what they hold.
"""

from dataclasses import dataclass

from drlnb.records.base import Command, Decision, Event, Facts, tagged


@tagged("swap")
@dataclass(frozen=True, slots=True)
class SwapOrder:
    """How a command's gradient steps are made under a memory budget."""

    #: Plan that is followed around each step; ``all`` swaps whatever it can.
    plan_key: str
    #: What a step may use.
    memory_budget_bytes: int
    #: What is reported of the steps: their ``median``, the first few ``steps``, and with the median a ``profile`` or
    #: the ``link``.
    report: str
    #: Samples of a step that the plan was made for: a larger one swaps whatever it can; 0: of any.
    n_samples: int = 0


class SwapProfileTaken(Event):
    """What a training step saves for its backward pass was measured, or traced."""

    profile: Facts
    #: Samples of the steps from now on.
    n_samples: int


class SwapLinkMeasured(Event):
    """The rates between device and tier were measured."""

    link: Facts


class SwapStepMeasured(Event):
    """A training step was made under a plan; where nothing is tried out, a round's: medians of seconds, most bytes."""

    plan_key: str
    step_s: float
    #: Greatest number of bytes in use.
    peak_bytes: int
    swapped_bytes: int = 0
    #: Seconds that the computation waited for copies.
    stall_s: float = 0.0
    #: Saved storages.
    n_saved: int = 0
    #: Samples of the step, and the kind of device that made it; 0, empty: as in the profile.
    n_samples: int = 0
    device_kind: str = ""


class SwapStepOverflowed(Event):
    """A training step did not fit into the memory; it was made again under the plan of the smallest peak."""

    plan_key: str


class SwapPlanFound(Event):
    """A search that was commanded has ended; no plan means that none fits."""

    #: Key of the profile that was searched.
    profile_key: str
    memory_budget_bytes: int
    #: Plans, the best first.
    plans: tuple[Facts, ...]


class SwapBroken(Event):
    """The tier takes nothing any more: steps are made without swapping."""

    reason: str


class SwapTraceChanged(Event):
    """A step saved other tensors than the profile knows: the unknown ones stayed on the device."""

    shape_key: str


class SwapPlanned(Decision):
    """Which plan the executor follows; planner ``none`` keeps every tensor on the device."""

    #: 0: the plan changes between two steps.
    round: int = 0
    planner: str
    #: Key of the plan that rides in the compute command; ``None`` = nothing is swapped.
    plan_key: str | None
    #: The plan itself where it is a new one.
    plan: Facts | None = None
    reason: str = ""
    #: What the cost model expects of a step; 0: it does not say.
    predicted_s: float = 0.0
    predicted_bytes: int = 0


class SwapTrialStarted(Decision):
    """The next steps try a plan out."""

    plan_key: str
    #: Steps that are measured, after one that is not.
    n_steps: int


class SwapLearned(Decision):
    """A planner that learns was given the cost of a trial, and changed a value of its table by it."""

    #: Number of the trial, from 1, and its plan.
    trial: int
    plan_key: str
    #: (1 - w) r_time + w r_mem of its steps, relative to a step that keeps all; 5: it does not fit, so it did not run.
    cost: float
    #: Whether chance chose the plan, not the table.
    explored: bool = False
    #: Columns of the table: layer types.
    units: tuple[str, ...]
    #: Of the value that was changed: which types are swapped, and its column.  Empty: none was.
    row: str = ""
    unit: str = ""
    value: float = 0.0


class SwapPlanKept(Decision):
    """All candidates have been tried; this plan was the best."""

    plan_key: str
    #: Median of its steps.
    step_s: float
    n_tried: int


class SwapPlanRolledBack(Decision):
    """A plan was worse than the one before, or did not fit; the one before goes on."""

    plan_key: str
    to_key: str
    reason: str


class SwapUnavailable(Decision):
    """Nothing is swapped, or not enough, and why."""

    reason: str

    @property
    def text(self) -> str:
        """What that means, in words for the user."""
        return f"swapping: {self.reason}"


class MeasureSwapLink(Command):
    """Measure the rates between device and tier: :class:`SwapLinkMeasured`."""


class TakeSwapProfile(Command):
    """Measure what a step saves after the next optimiser step: :class:`SwapProfileTaken`."""


class SearchSwapPlan(Command):
    """Search for plans, away from any event loop: :class:`SwapPlanFound`."""

    planner: str
    profile: Facts
    n_samples: int
    memory_budget_bytes: int
    #: Of the search's random moves.
    seed: int
    #: Row -> the action that the user wants for it.
    pins: Facts


class ApplySwapPlan(Command):
    """Follow this plan from the next step on."""

    plan_key: str
    plan: Facts

"""Define the records of swapping: what leaves the device's memory during a training step (seed 004)."""

from drlnb.records.base import Decision


class SwapPlanned(Decision):
    """Which plan the executor follows; planner ``none`` keeps every tensor on the device."""

    round: int
    planner: str
    #: Key of the plan that rides in the compute command; ``None`` = no swapping.
    plan_key: str | None

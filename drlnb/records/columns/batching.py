"""Define the records of batching: how many samples each collector makes in a round (seed 002)."""

from dataclasses import dataclass

from drlnb.records.base import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlanned(Decision):
    """Steps per environment that each collector of the task takes in this round."""

    round: int
    planner: str
    #: Collector ids and, beside them, their steps per environment.
    collectors: tuple[int, ...]
    n_steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed(Decision):
    """No more experience is awaited in this round."""

    round: int
    n_samples: int

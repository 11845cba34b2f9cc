"""Define the records of batching: how many samples each collector makes in a round (the batching patent)."""

from drlnb.records.base import Decision


class BatchPlanned(Decision):
    """Steps per environment that each collector of the task takes in this round."""

    round: int
    planner: str
    #: Collector ids and, beside them, their steps per environment.
    collectors: tuple[int, ...]
    n_steps: tuple[int, ...]
    #: The learner of each one's share; empty: one learner computes all of them.
    learners: tuple[int, ...] = ()


class RoundClosed(Decision):
    """No more experience is awaited in this round."""

    round: int
    n_samples: int

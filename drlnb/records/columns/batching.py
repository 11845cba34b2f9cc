"""Define the records of batching: how much each collector samples, and each learner computes (the batching patent)."""

from drlnb.records.base import Decision


class BatchPlanned(Decision):
    """Steps per environment that each collector of the task takes in this round."""

    round: int
    planner: str
    #: Collector ids and, beside them, their steps per environment.
    collectors: tuple[int, ...]
    n_steps: tuple[int, ...]
    #: The learner of each one's share; empty: nobody has said it, and shares are dealt when their lease is there.
    learners: tuple[int, ...] = ()


class SplitPlanned(Decision):
    """How much of a round's gradient each slot of a lease computes."""

    round: int
    planner: str
    #: Slots and, beside them, how many of the collectors' shares each one computes.
    members: tuple[str, ...]
    sizes: tuple[int, ...]
    #: Shares per second that each one was expected to make; empty: nobody has been measured.
    speeds_hz: tuple[float, ...] = ()


class RoundClosed(Decision):
    """No more experience is awaited in this round."""

    round: int
    n_samples: int

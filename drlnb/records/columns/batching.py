"""Define the records of batching: how much each collector samples, and each learner computes (the batching patent)."""

from drlnb.records.base import Decision, Event, Facts
from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.common import GradientWork, SlotWork
from drlnb.records.ids import Fence


class BatchPlanned(Decision):
    """Steps per environment that each collector of the task takes in this round."""

    round: int
    planner: str
    #: Collector ids and, beside them, their steps per environment.
    collectors: tuple[int, ...]
    n_steps: tuple[int, ...]
    #: The learner of each one's share; empty: nobody has said it, and shares are dealt when their lease is there.
    learners: tuple[int, ...] = ()


class MemberSlowed(Event):
    """A user has one member of a task take longer on purpose, from the next round on: its times are emulated."""

    #: A slot, or the number of a collector.
    member: str
    #: So many times as long as it takes, in so many rounds; 1.0: as long as it takes.
    factor: float
    n_rounds: int


class SplitPlanned(Decision):
    """How much of a gradient each slot of a lease computes: of a round's, or of one step's."""

    round: int
    planner: str
    #: Slots and, beside them, their units: the collectors' shares of a round, or samples of a step.
    members: tuple[str, ...]
    sizes: tuple[int, ...]
    #: Units per second that each one was expected to make; empty: nobody has been measured.
    speeds_hz: tuple[float, ...] = ()
    #: Number of the split among those of its attempt, one per step of supervised work; 0: a round's gradient.
    split: int = 0
    #: Seconds that it was expected to take; 0.0: nobody has been measured.
    predicted_s: float = 0.0


class QuorumReached(Decision):
    """As many members of a split as are needed have answered; the others have a short time left."""

    split: int
    #: Who answered first, in that order, and who did not.
    first: tuple[str, ...]
    targets: tuple[str, ...]
    #: Seconds that these have left.
    grace_s: float


class SplitClosed(Decision):
    """No more gradients are taken into a step."""

    round: int
    split: int
    n_used: int
    #: Reason -> samples that are not used.
    lost: Facts
    #: From its shares' orders to now, in seconds; and how long its members waited for that, on average.
    duration_s: float
    wait_s: float
    #: ``all``: everybody has answered; ``deadline``, ``cut``: the time of those that had not was over.
    cause: str
    #: Samples that members which were cut have not done: the next split shares them, for the same step.
    n_moved: int = 0


class RoundClosed(Decision):
    """No more experience is awaited in this round."""

    round: int
    n_samples: int


# ------------------------------------------------------------------ commands and what they end in
class ComputeShare(GradientWork):
    """Compute the gradient of some samples of one step, and leave it with the node of the lease's lead."""

    split: int
    #: Number of the step, from the task's first.
    step: int
    #: The samples, in the order of the step's batch.
    first: int
    n: int
    #: Samples that are computed between two looks whether the share is cut; 0: all at once.
    chunk: int
    #: The lease's lead, which makes the step.
    lead: str
    #: Key of the parameters to compute with, as the last step made them; empty: those of `version`.
    parameters: str
    #: How gradient steps are swapped; None: there is no budget.
    swap: SwapOrder | None = None


class CutShare(SlotWork):
    """Stop at the next chunk, and answer with what is done."""

    split: int


class ShareComputed(Event):
    """The gradient of a share, or of its beginning, lies at the lead's node under `key`."""

    round: int
    split: int
    slot: str
    fence: Fence
    first: int
    n_planned: int
    n_done: int
    #: By what its gradient is weighted: the samples, or what the loss was divided by.
    denominator: float
    loss: float
    #: Squared norm of its gradient.
    norm_sq: float
    #: Seconds of computing; from the order to the answer, as the master measured it; and since the member had the
    #: parameters, by its own clock.
    compute_s: float
    elapsed_s: float
    age_s: float
    key: str
    #: Bytes of training state and parameters that had to be brought to the slot first.
    moved_bytes: int = 0


class JoinRound(GradientWork):
    """Compute a part of each minibatch of a round beside the lease's lead, which makes the new parameters."""

    #: Where the batches lie at the master, and whose they are.
    keys: tuple[str, ...]
    collectors: tuple[int, ...]
    #: As of :class:`~drlnb.records.round.FinishRound`.
    members: tuple[str, ...]
    sizes: tuple[int, ...]
    #: How gradient steps are swapped; None: there is no budget.
    swap: SwapOrder | None = None


class RoundJoined(Event):
    """A slot has computed its part of a round's minibatches."""

    round: int
    slot: str
    fence: Fence
    #: Seconds in which it computed gradients; with those of staging, and of waiting for others.
    compute_s: float
    elapsed_s: float
    #: Bytes of training state that had to be brought to the slot first.
    moved_bytes: int = 0


class ApplyGradients(SlotWork):
    """Make a step of the gradients that lie at the lead's node, and bring the new parameters to other slots' nodes."""

    round: int
    #: 0: nothing is made; the lead goes on from parameters of this round that it made under a lease that was lost.
    split: int
    #: Number of the step, from the task's first; where nothing is made, of the one that was made last.
    step: int
    #: Keys of the gradients, and their denominators: the step's gradient is their weighted mean.
    keys: tuple[str, ...]
    denominators: tuple[float, ...]
    #: The slots of the lease that get the parameters.
    others: tuple[str, ...]
    #: Key of the parameters that the lead is to go on from where nothing is made.
    parameters: str = ""


class GradientsApplied(Event):
    """The lead has made a step; its parameters lie at the nodes of the lease under `key`."""

    round: int
    split: int
    fence: Fence
    elapsed_s: float
    #: Empty: the lead does not have the parameters that it was to go on from.
    key: str
    #: Cosine of each gradient to the step's.
    cosines: tuple[float, ...] = ()

"""Define the records of off-policy rounds: the ring of a task, its draws, rounds in which nothing is learnt."""

from drlnb.records.base import Command, Decision, Event, Facts


# ------------------------------------------------------------------ events
class ReplayReady(Event):
    """The process that holds the task's replay ring is up, with what the checkpoint held."""

    start_s: float
    #: Transitions in the ring.
    n_transitions: int
    #: Bytes of experience that the checkpoint had to leave out.
    n_bytes_lost: int


class ReplayLost(Event):
    """The ring's process is gone, or could not be started; the ring is gone with it."""

    reason: str
    #: Traceback if it raised; empty if it was killed.
    detail: str


class MinibatchesDrawn(Event):
    """The round's experience is in the ring, and the block of all its minibatches lies in the master's memory."""

    round: int
    #: Where the block lies; nothing lies there if there are no gradient steps.
    key: str
    n_gradient_steps: int
    #: Samples in the block.
    n_samples: int
    n_bytes: int
    elapsed_s: float
    #: Scalars of a round in which nothing is learnt.
    metrics: Facts


class ParametersCarried(Event):
    """Host memory holds the same parameters under the next version."""

    version: int


# ------------------------------------------------------------------ decisions
class UpdateSkipped(Decision):
    """Nothing is learnt in this round: no slot is asked for, the parameters stay."""

    round: int
    reason: str


class RingRefilling(Decision):
    """The ring was too large for the checkpoint: nothing is learnt until it has been filled again."""

    n_bytes: int
    #: In words for the user.
    text: str


# ------------------------------------------------------------------ commands
class StartReplay(Command):
    """Start the process that holds the ring, on the master's node, with what the checkpoint holds of it."""


class DrawMinibatches(Command):
    """Put the round's fragments into the ring, in the order of their environments, and draw all its minibatches."""

    round: int
    #: Fragments, in the order of their collectors.
    keys: tuple[str, ...]
    #: Environment steps of the task before this round.
    n_timesteps: int


class CarryParameters(Command):
    """Keep parameters and training state as the next version."""

    version: int
    round: int


class RestartTask(Command):
    """End this attempt's children and begin the next attempt from the newest checkpoint."""

    reason: str

"""Define the records of one task's round: experience, gradients, commit, metrics, checkpoints, the end."""

from dataclasses import field

from drlnb.records.base import Command, Decision, Event, Facts
from drlnb.records.columns.swapping import SwapOrder
from drlnb.records.common import GradientWork, SlotWork
from drlnb.records.episodes import Episode
from drlnb.records.ids import Fence

#: How a task ends: states in which nothing of it runs any more.
ENDS = ("done", "stopped", "failed")


# ------------------------------------------------------------------ events
class TaskOpened(Event):
    """The master starts, from nothing (`version` 0) or from a checkpoint."""

    attempt: int
    #: Version of the parameters at hand, 0 if there are none yet.
    version: int
    #: Rounds finished so far.
    n_rounds: int
    n_timesteps: int
    #: Seconds of training before this attempt.
    elapsed_s: float
    #: The latest ones, oldest first.
    episodes: tuple[Episode, ...]
    #: Bytes of one version as it is published; 0 if not known yet.
    n_bytes: int
    #: Best mean return of the evaluations so far, None before the first.
    eval_best: float | None = None
    #: Settings of the algorithm that the user changed before this attempt: ``rl.NAME`` -> value.
    settings: Facts = field(default_factory=dict)
    #: What is known of its steps' memory, as of :class:`WriteCheckpoint`; None: nothing.
    swapping: Facts | None = None
    #: What planners of batching remember, by decision and name.
    memories: Facts = field(default_factory=dict)


class PlacementReceived(Event):
    """The pool's answer: where each collector lives."""

    collector_nodes: tuple[str, ...]


class ExperienceArrived(Event):
    """A collector's fragment of one round lies in the master's memory under `key`."""

    collector: int
    round: int
    attempt: int
    version: int
    n_samples: int
    n_bytes: int
    key: str
    #: Seconds the collector spent acting and stepping, measured by itself.
    collect_s: float
    #: Episodes that ended in it: (return, length) of raw rewards.
    episodes: tuple[Episode, ...]
    #: Seconds that it waited on its node, from the wake until it had a CPU slot.
    queued_s: float = 0.0


class LeaseReceived(Event):
    """The slot that was asked for is ours under `fence`."""

    request_id: str
    fence: Fence
    slots: tuple[str, ...]
    waited_s: float
    #: Somebody waits for such a slot already.
    demand: bool = False
    #: Live slots of the pool; 0: not told.
    n_slots: int = 0
    #: Every slot of it holds the parameters that the round begins with, as far as the pool knows; None: not told.
    resident: bool | None = None


class LeaseLost(Event):
    """The lease ended before it was returned: expired, revoked, or its slot failed."""

    fence: Fence
    reason: str


class LeaseClosed(Event):
    """The pool has taken the lease back."""

    fence: Fence


class ExecutorDied(Event):
    """The executor of our lease's slot is gone; uncommitted work of this round is void, its batches stay queued."""

    fence: Fence
    slot: str
    reason: str


class GradientComputed(Event):
    """The batch of one collector has been taken in by the executor (staged, or its gradient computed)."""

    collector: int
    round: int
    fence: Fence
    #: The slot of the lease that has it.
    slot: str
    elapsed_s: float
    #: Its gradient lies at the master, too; empty if it does not.
    key: str = ""
    #: Bytes of training state that had to be brought to the slot first; 0 if it held the version.
    moved_bytes: int = 0


class ParametersReady(Event):
    """The executor has made the round's parameters and sent them, with the training state, to the master."""

    round: int
    fence: Fence
    elapsed_s: float
    #: Bytes of one version as it is published.
    n_bytes: int
    key: str
    #: ``train/...`` scalars under Stable-Baselines3's names.
    metrics: Facts
    #: Seconds of `elapsed_s` in which gradients were computed here; 0.0 where nobody else computed.
    compute_s: float = 0.0


class ParametersCommitted(Event):
    """Host memory holds the new version; the fence was checked."""

    version: int
    fence: Fence
    #: Version that was sent to the hosts last, and the ranges (start, stop) of bytes in which this one may differ from
    #: it; 0 and none: all of it is new.
    base: int = 0
    changed: tuple[tuple[int, int], ...] = ()


class CheckpointGathered(Event):
    """All state that a checkpoint needs has been copied: collectors may act again while it is being written."""

    version: int


class CheckpointWritten(Event):
    """A whole checkpoint is on disk."""

    version: int
    elapsed_s: float
    n_bytes: int
    #: Why it could not be written; empty if it was.
    failure: str

    @property
    def text(self) -> str:
        """What that means, in words for the user; empty if it was written."""
        rests = "the task rests after this round, and goes on by itself when there is room"
        return self.failure and f"a checkpoint cannot be written ({self.failure}): {rests}"


class EvaluationFinished(Event):
    """Whole episodes with frozen statistics and raw rewards."""

    version: int
    mean_reward: float
    std_reward: float
    n_episodes: int
    #: Why it could not be done; empty if it was.
    failure: str
    #: The most likely actions, or samples.
    deterministic: bool = True
    episodes: tuple[Episode, ...] = ()


class PauseAsked(Event):
    """Finish the round, return, park, checkpoint, rest."""


class ResumeAsked(Event):
    """Go on after a pause."""


class CheckpointAsked(Event):
    """Write a checkpoint at the next round boundary."""


class StopAsked(Event):
    """Stop within seconds, with a checkpoint."""

    reason: str


class TaskFailed(Event):
    """Something that cannot be mended by trying again."""

    reason: str
    detail: str


# ------------------------------------------------------------------ decisions
class PhaseEntered(Decision):
    """What the task does now: starting, collecting, waiting, computing, publishing, evaluating, paused, ended."""

    phase: str
    round: int


class MetricsRecorded(Decision):
    """Scalars of a finished round; ``metrics/*.csv`` is the export of these rows."""

    round: int
    n_timesteps: int
    metrics: Facts


class EpisodesLost(Decision):
    """A collector's environments could not be brought back: their running episodes are gone, new ones have begun."""

    collector: int
    n_episodes: int
    #: In words for the user.
    text: str


class RoundUnfinished(Decision):
    """A task that is stopped ends in the midst of a round, as of the last commit."""

    round: int
    #: What the round would have had to wait for.
    reason: str
    #: In words for the user.
    text: str


# ------------------------------------------------------------------ commands
class RequestSlot(Command):
    """Ask the pool for slots and go on asking until it answers."""

    request_id: str
    round: int
    #: Slots that are lent together, or none of them.
    n_slots: int = 1
    #: Slots that do where no more of them are up; 0: all.
    n_least: int = 0
    #: The lease will be given away on demand.
    yields: bool = False


class AskPlacement(Command):
    """A node is gone: ask the pool where the collectors live now."""

    n_collectors: int
    #: Name of the placement planner.
    planner: str = ""


class InitialiseParameters(SlotWork):
    """Make version 1 on the leased slot."""

    #: How gradient steps will be swapped; None: there is no budget.
    swap: SwapOrder | None = None


class ComputeGradient(GradientWork):
    """Hand one collector's batch to the executor of one slot of the lease."""

    collector: int
    #: Where the batch lies at the master; empty: the slot has the data itself, for steps up to `after_timesteps`.
    key: str
    #: How its gradient steps are swapped; None: there is no budget.
    swap: SwapOrder | None = None
    #: Send the gradient back: it must outlive the lease.
    keep: bool = False


class FinishRound(SlotWork):
    """All batches are at the lease's lead, its first slot: make the new parameters and training state, send both."""

    round: int
    #: Whose batches the update is made of: an executor that has others refuses.
    collectors: tuple[int, ...]
    #: How its gradient steps are swapped; None: there is no budget.
    swap: SwapOrder | None = None
    #: Slots that compute each minibatch together, this one first, and beside them of how many samples of the round each
    #: one does its part; empty: this one computes all.
    members: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    #: As of :class:`~drlnb.records.common.GradientWork`.
    slowed: float = 1.0


class CommitParameters(Command):
    """Put parameters and training state into host memory, under the lease."""

    version: int
    round: int
    fence: Fence
    key: str


class ReturnLease(Command):
    """Give the slots of a lease back."""

    fence: Fence
    clean: bool
    #: Seconds that the executor of each slot computed under this lease, in the lease's order of slots.
    computed_s: tuple[float, ...]
    #: The round is not done: somebody else waits for the slot.
    yielded: bool = False


class DropExperience(Command):
    """Free a fragment: used and committed, or refused (`reason`)."""

    key: str
    collector: int
    round: int
    reason: str


class WriteCheckpoint(Command):
    """Write a checkpoint of the committed version."""

    version: int
    n_rounds: int
    n_timesteps: int
    reason: str
    #: Seconds of training so far, over all attempts.
    elapsed_s: float = 0.0
    #: The latest ones, oldest first.
    episodes: tuple[Episode, ...] = ()
    #: Best mean return of the evaluations so far, None before the first.
    eval_best: float | None = None
    #: Settings of the algorithm that the user changed: ``rl.NAME`` -> value.
    settings: Facts = field(default_factory=dict)
    #: Collectors whose environments can be asked for their states, each with its node.
    collectors: tuple[tuple[int, str], ...] = ()
    #: The round of this version has begun, and ends so: environments are saved as it found them, where that is known.
    unfinished: bool = False
    #: Snapshot of the machine that plans what is swapped; None: there is no budget.
    swapping: Facts | None = None
    #: What planners of batching remember, by decision and name: plain data.
    memories: Facts = field(default_factory=dict)


class Evaluate(Command):
    """Play episodes with the committed parameters, on one collector."""

    collector: int
    node: str
    version: int
    n_episodes: int
    deterministic: bool = True
    #: Nobody acts after it: the collector's own environments play.
    last: bool = False


class EndTask(Command):
    """The task is over: end its children, tell the pool."""

    #: One of :data:`ENDS`.
    state: str
    reason: str

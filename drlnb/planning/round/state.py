"""Hold the state of one task's rounds, as its master has it: plain fields that the rules of this folder change."""

from dataclasses import dataclass, field

from drlnb.planning.batching import BATCHING, COLLECT, env_shares
from drlnb.planning.batching.gather import Gather, Gathering, Part
from drlnb.planning.codec import TRANSIENT
from drlnb.planning.decisions import KINDS
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.distribution.changes import Ranges
from drlnb.planning.leasing.hold import Batch, Hold
from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.registry import AnyKind, Plan, Planner, PlannerKind, Planners, View
from drlnb.planning.round.collectors import Crew
from drlnb.planning.round.progress import Progress
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.swapping.machine import SwapMachine
from drlnb.planning.warmup import WARMUP, WarmupMachine
from drlnb.records.base import Facts
from drlnb.records.columns.batching import ShareComputed
from drlnb.records.spec import EVAL_EPISODES
from drlnb.records.units import read_bytes

__all__ = ["ENV_TIMEOUT_S", "RING", "ROUND_DEFAULTS", "RoundState", "Slowdown", "Splits", "Worked", "fresh_state"]

#: Stands for a collector where a batch comes from the replay ring, or its data is the slot's own.
RING = -1

#: Rounds whose seconds per sample are kept of each collector.
_PACES = 4

#: Longest time that environments may take for a step, or to be made, where nothing else is said, in seconds.
ENV_TIMEOUT_S = 60.0

#: Configuration of a round machine beside ``task``, ``n_envs``, ``n_collectors`` (0: the task has no environments),
#: ``n_steps`` and ``total_timesteps``.
ROUND_DEFAULTS: Facts = {
    "planners": {decision: kind.default for decision, kind in KINDS.items()},
    "warmup": {},  # settings of warm-up beside the planner's name
    "swapping": {},  # those of swapping: memory_budget_bytes, pin
    "seed": 0,  # of what planners of swapping choose at random
    "epoch_steps": 0,  # without collectors: a round ends at the latest after so many steps, and their multiples
    "unswapped": "",  # why no gradient step of this task can be swapped
    "can_respawn": False,  # the environments can be snapshot, so a new process goes on where the last one was
    "checkpoint_every": 10,  # rounds ...
    "checkpoint_min_s": 5.0,  # ... but never sooner than this after the last one (0: however soon)
    "checkpoint_max_s": 120.0,  # and at least this often
    "checkpoint_cost_frac": 0.05,  # of the time between two that they may take; then they are further apart
    "stats_window_size": 100,  # episodes that the rolling means cover
    "n_eval_episodes": EVAL_EPISODES,  # at the end, deterministic; 0: none
    "eval_freq": 0,  # environment steps between two evaluations while training; 0: none
    "eval_episodes": 5,  # Stable-Baselines3's `n_eval_episodes`
    "eval_deterministic": True,
    "eval_keep_best": False,  # a checkpoint after each evaluation that is the best so far
    "max_collector_restarts": 20,  # of each collector, within an hour
    "env_timeout_s": ENV_TIMEOUT_S,  # for one step of a collector's environments, or for making them; None: all time
    "max_collector_errors": 3,  # in a row, with a traceback or at one step: the environment itself is broken
    "max_executor_deaths": 3,  # in one round: the batch itself kills the executor
    "streams": False,  # gradients are computed at arrival and can be kept: the slot may be given away in between
    # Slots of a lease that compute side by side: whole shares of the collectors are dealt to them, or, without
    # collectors, samples of each step's batch; or they compute each minibatch of a round's epochs together.
    "n_learners": 1,
    "batching": {},  # settings of batching beside the planners' names: whom a step waits for
    "n_samples": 0,  # without collectors: samples of the data set, and of the batch of a step (0: not known)
    "batch_size": 0,
    "switch_limit_frac": LeasingSettings().switch_limit_frac,  # of a batch's compute: what a switch may cost for that
    "replay": False,  # off-policy: experience goes into a ring, minibatches of it to the slot
    "max_replay_losses": 5,  # of the ring, under one master
    "n_replay_losses": 0,  # so far
}


@dataclass(slots=True, kw_only=True)
class Worked:
    """What a slot computed of a round's gradient."""

    #: Batches that it was given by plans.
    n_planned: int = 0
    #: Samples that it has computed, and the seconds that this took.
    n_samples: int = 0
    compute_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Slowdown:
    """In which rounds a member takes so many times as long as it does."""

    factor: float
    first: int
    last: int


@dataclass(slots=True, kw_only=True)
class Splits:
    """The steps of a round of supervised work that the slots of a lease share."""

    gather: Gather = field(default_factory=Gather)
    #: Whom the next step waits for.
    gathering: Gathering = field(default_factory=Gathering)
    #: Member -> its answer to the split that is open, or was last; or to one before, if it came since.
    answers: dict[str, ShareComputed] = field(default_factory=dict)
    #: Seconds from the shares' orders to the close, of the split that was closed last, and of all of its step; and how
    #: long the step's members waited, on average.
    duration_s: float = 0.0
    step_s: float = 0.0
    wait_s: float = 0.0
    #: First sample of the split, in the order of its step's batch; and what is left of the batch after it.
    base: int = 0
    left: list[Part] = field(default_factory=list)
    #: Answers that the step is made of, so far.
    used: list[ShareComputed] = field(default_factory=list)
    #: Sums over the round's steps that were made, for its scalars.
    sums: dict[str, float] = field(default_factory=dict)
    #: What :mod:`drlnb.planning.batching.goodput` knows of the gradients' noise; empty: nothing yet.
    noise: dict[str, float] = field(default_factory=dict)
    #: Steps of the round that have been made, and that only the lead has.
    n_made: int = 0
    #: Key of the parameters that the last one made; empty: those of the version.
    parameters: str = ""


@dataclass(slots=True, kw_only=True)
class RoundState:
    """State of one task's rounds; its snapshot is that of the fields which are not transient."""

    config: Facts = field(metadata=TRANSIENT)
    warmup: WarmupMachine = field(metadata=TRANSIENT)
    swap: SwapMachine = field(metadata=TRANSIENT)
    planners: Planners = field(metadata=TRANSIENT)

    #: Decision -> name of its planner, as the present round has it, and as the user wants it from the next one on.
    names: dict[str, str]
    next_names: dict[str, str] = field(default_factory=dict)
    hold: Hold
    crew: Crew
    progress: Progress = field(default_factory=Progress)
    phase: str = "new"
    attempt: int = 0
    #: Bytes of one published version; 0 until there are parameters.
    n_bytes: int = 0
    n_bytes_next: int = 0
    #: Version that was sent before, and the ranges of bytes in which this one may differ from it; none: all of it.
    base: int = 0
    changed: Ranges = ()
    #: ``train/...`` scalars of the parameters that wait for their commit.
    metrics: dict[str, object] = field(default_factory=dict)
    #: Time of the last event, in seconds.
    t: float = 0.0
    checkpoint_t: float = 0.0
    #: Seconds that the latest checkpoint took.
    checkpoint_s: float = 0.0
    n_executor_deaths: int = 0
    #: Reason of a ``pause``, ``stop`` or ``checkpoint`` that waits for the boundary.
    asked: dict[str, str] = field(default_factory=dict)
    #: Settings of the algorithm that the user changed (``rl.NAME`` -> value): as they shall be from the next round on,
    #: and as the present round has them.
    settings: dict[str, object] = field(default_factory=dict)
    in_force: dict[str, object] = field(default_factory=dict)
    #: A setting was changed since the last checkpoint.
    unsaved: bool = False
    #: Why the newest checkpoint could not be written; empty if it was.
    unwritten: str = ""
    #: Version of the newest checkpoint on disk, and of the newest one that was to be written; 0: none.
    saved: int = 0
    saving: int = 0
    #: The task ends in the midst of a round: a checkpoint has the environments as the round found them.
    unfinished: bool = False
    #: The round that has begun: what is changed now counts from the one after it.
    begun: int = 0
    #: The wake waits for the checkpoint's copies.
    gathering: bool = False
    #: The wake waits for the user, who paused the task at a boundary.
    resting: bool = False
    #: What the end still waits for: ``checkpoint``, ``evaluation``.
    closing: list[str] = field(default_factory=list)
    #: The wake waits for an evaluation of this version.
    judging: bool = False
    #: Environment steps at which the next evaluation is due.
    eval_at: int = 0
    #: Best mean return of the evaluations while training, None before the first.
    eval_best: float | None = None
    #: Collector that plays an evaluation now.
    evaluator: int | None = None
    #: Collector -> steps per environment that it makes in the round that has begun; of the slot's own data, its steps.
    n_steps: dict[int, int] = field(default_factory=dict)
    #: Collector -> the learner that computes its share, where the plan of collectors says it: slots are dealt in their
    #: order.
    learners: dict[int, int] = field(default_factory=dict)
    #: Slot -> what it was given of the round's gradient by plans, and has done.
    worked: dict[str, Worked] = field(default_factory=dict)
    #: Collector -> seconds per sample in the latest rounds on its present node, oldest first; of the slot's own data,
    #: seconds per step.
    paces: dict[int, list[float]] = field(default_factory=dict)
    #: Slot -> seconds per share that it computed in the latest rounds, oldest first, but for its process's first one.
    slot_paces: dict[str, list[float]] = field(default_factory=dict)
    splits: Splits = field(default_factory=Splits)
    #: Slot, or number of a collector -> when it takes longer on purpose; the next attempt knows nothing of it.
    slowed: dict[str, Slowdown] = field(default_factory=dict)
    #: Collector -> seconds that it acted in the present round.
    collect_s: dict[int, float] = field(default_factory=dict)
    #: What a planner of batching remembers, as plain data, by :meth:`memory_of`.
    memories: dict[str, object] = field(default_factory=dict)
    #: Off-policy: the round's fragments, by collector.
    fragments: dict[int, Batch] = field(default_factory=dict)
    #: Off-policy: the process that holds the ring is up.
    ring_up: bool = False

    def planner(self, kind: PlannerKind[View, Plan]) -> Planner[View, Plan]:
        """Return the planner of a decision, as the present round has it."""
        return self.planners.make(kind, self.names[kind.decision])

    def memory_of(self, kind: AnyKind) -> str:
        """Return under what name is kept what a decision's planner remembers."""
        return f"{kind.decision}:{self.names[kind.decision]}"

    def slowness(self, member: str | int) -> float:
        """Return so many times as long as it does a slot, or collector, takes in the present round on purpose."""
        of = self.slowed.get(str(member))
        return of.factor if of and of.first <= self.version <= of.last else 1.0

    @property
    def yields(self) -> bool:
        """Whether the slot may be given away when somebody waits."""
        return HOLD.trait(self.planner(HOLD), "yields")

    @property
    def version(self) -> int:
        """Version of the parameters that the present round acts with."""
        return self.progress.version

    @property
    def round(self) -> int:
        """Round of the present or next lease: 0 while there are no parameters yet."""
        return self.progress.version if self.n_bytes else 0

    @property
    def shares_steps(self) -> bool:
        """Whether each step of the task may be computed by several slots: it has no collectors."""
        return not self.config["n_collectors"] and self.config["n_learners"] > 1

    @property
    def shares_minibatches(self) -> bool:
        """Whether several slots may compute each minibatch of a round together: it has several, in its order."""
        config = self.config
        return bool(config["n_collectors"] and config["n_learners"] > 1 and not config["streams"])

    @property
    def after_timesteps(self) -> int:
        """Steps of the task after the round that has begun."""
        members = self.crew.members
        widths = {i: len(member.env_indices) for i, member in members.items()}
        return self.progress.n_timesteps + sum(widths.get(i, 1) * n for i, n in self.n_steps.items())

    def timed(self, collector: int, seconds: float, n: int) -> None:
        """Keep what a share of so many samples took."""
        self.paces[collector] = [*self.paces.get(collector, ()), seconds / max(1, n)][-_PACES:]

    @property
    def arrived(self) -> dict[int, Batch]:
        """The collectors' shares of this round that are here."""
        return self.fragments if self.config["replay"] else self.hold.batches

    @property
    def n_batches(self) -> int:
        """Batches that this round brings to the slot."""
        return 1 if self.config["replay"] else len(self.crew.members) or 1

    @property
    def is_drawn(self) -> bool:
        """Whether the ring has, or gets, the round's fragments."""
        return self.config["replay"] and self.ring_up and len(self.fragments) == len(self.crew.members)

    @property
    def is_complete(self) -> bool:
        """Whether every batch of this round is here."""
        return len(self.hold.batches) == self.n_batches


def fresh_state(config: Facts, planners: Planners) -> RoundState:
    """Return the state of a task that has not been opened yet.

    Parameters
    ----------
    config
        As of :class:`~drlnb.planning.round.machine.RoundMachine`.
    planners
        What makes planners of their names.

    Raises
    ------
    ValueError
        If there is no planner of a name, or several learners cannot share the task's gradient.
    """
    names = {**ROUND_DEFAULTS["planners"], **config.get("planners", {})}
    config = {**ROUND_DEFAULTS, **config, "planners": names}
    if config["n_learners"] > 1 and (config["replay"] or not (config["batch_size"] or config["n_collectors"])):
        raise ValueError(f"n_learners = {config['n_learners']} cannot share this task's gradient steps")
    if not config["n_collectors"]:  # nobody plays an episode
        config |= {"n_eval_episodes": 0, "eval_freq": 0}
    shares = env_shares(config["n_envs"], config["n_collectors"]) if config["n_collectors"] else ()
    state = RoundState(
        config=config,
        planners=planners,
        names=names,
        warmup=WarmupMachine(
            {
                "task": config["task"],
                "env_shares": [list(share) for share in shares],
                "settings": {"planner": names["warmup"], **config["warmup"]},
                "can_respawn": config["can_respawn"],
                "hold": names["hold"],
            },
            build=lambda name: planners.make(WARMUP, name),
        ),
        swap=SwapMachine(_swapping(config, names), build=lambda name: planners.make(SWAPPING, name)),
        hold=Hold(streams=config["streams"], switch_limit_frac=config["switch_limit_frac"]),
        crew=Crew.of(shares),
        splits=Splits(gathering=Gathering(**config["batching"])),
    )
    kinds: tuple[AnyKind, ...] = (HOLD, BATCHING, COLLECT, DISTRIBUTION)
    for kind in kinds:
        state.planner(kind)  # a wrong name is refused now
    return state


def _swapping(config: Facts, names: Facts) -> Facts:
    """Return the configuration of the machine that plans what is swapped."""
    own = config["swapping"]
    known = {"planner": names["swapping"], "pins": dict(own.get("pin") or {}), "never": config["unswapped"]}
    known["seed"] = config["seed"]
    budget = own.get("memory_budget_bytes")
    return known if budget is None else known | {"memory_budget_bytes": read_bytes(budget)}

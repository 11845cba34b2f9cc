"""What does the master of one task remember, and how is it saved?

The state of a :class:`~drlnb.planning.round.machine.RoundMachine` and the small moves that its parts share.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drlnb.planning.batching import BATCHING, env_shares
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing.hold import Batch, HoldMachine, hold_planner
from drlnb.planning.round.collectors import Crew
from drlnb.planning.round.progress import Progress
from drlnb.planning.round.scalars import RoundScalars
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.warmup import WarmupMachine
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import warmup

__all__ = ["RING", "ROUND_DEFAULTS", "RoundState"]

#: Stands for a collector where a batch comes from the replay ring.
RING = -1

#: Configuration of a round machine beside ``task``, ``n_envs``, ``n_collectors``, ``n_steps`` and ``total_timesteps``.
ROUND_DEFAULTS: Mapping[str, Any] = {
    "planners": {
        "hold": "yield",
        "warmup": "saa",
        "batching": "equal",
        "swapping": "none",
        "distribution": "star",
        "placement": "first",
    },
    "warmup": {},  # settings of warm-up beside the planner's name
    "can_respawn": False,  # the environments can be snapshot, so a new process goes on where the last one was
    "checkpoint_every": 10,  # rounds ...
    "checkpoint_min_s": 5.0,  # ... but never sooner than this after the last one
    "checkpoint_max_s": 120.0,  # and at least this often
    "n_eval_episodes": 20,  # at the end, deterministic
    "eval_freq": 0,  # environment steps between two evaluations while training; 0: none
    "eval_episodes": 5,  # Stable-Baselines3's `n_eval_episodes`
    "eval_deterministic": True,
    "eval_keep_best": False,  # a checkpoint after each evaluation that is the best so far
    "max_collector_restarts": 20,
    "env_timeout_s": 60.0,  # for one step of a collector's environments, or for making them; None: all time
    "max_collector_errors": 3,  # in a row, with a traceback: the environment itself is broken
    "max_executor_deaths": 3,  # in one round: the batch itself kills the executor
    "streams": False,  # gradients are computed at arrival and can be kept: the slot may be given away in between
    "switch_limit_frac": 0.2,  # of a batch's compute: what a switch may cost for that
    "replay": False,  # off-policy: experience goes into a ring, minibatches of it to the slot
    "max_replay_losses": 5,  # of the ring, under one master
    "n_replay_losses": 0,  # so far
}


def _warmup_of(config: Mapping[str, Any], shares: Sequence[Sequence[int]]) -> WarmupMachine:
    return WarmupMachine({
        "task": config["task"],
        "env_shares": [list(share) for share in shares],
        "settings": {"planner": config["planners"]["warmup"], **config["warmup"]},
        "can_respawn": config["can_respawn"],
        "hold": config["planners"]["hold"],
    })


class RoundState:
    """State of one task's rounds; see :class:`~drlnb.planning.round.machine.RoundMachine`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = {**ROUND_DEFAULTS, **config}
        self.config["planners"] = {**ROUND_DEFAULTS["planners"], **config.get("planners", {})}
        names = self.config["planners"]
        self.task: str = config["task"]
        self.hold = HoldMachine(hold_planner(names["hold"]), streams=self.config["streams"])
        self.hold.switch_limit_frac = self.config["switch_limit_frac"]
        shares = env_shares(config["n_envs"], config["n_collectors"])
        self.warmup = _warmup_of(self.config, shares)
        self.batching = BATCHING.build(names["batching"])
        self.swapping = SWAPPING.build(names["swapping"])
        self.distribution = DISTRIBUTION.build(names["distribution"])
        self.crew = Crew(shares)
        self.progress = Progress()
        self.scalars = RoundScalars()
        self.phase = "new"
        self.attempt = 0
        #: Bytes of one published version; 0 until there are parameters.
        self.n_bytes = 0
        self.n_bytes_next = 0
        #: ``train/...`` scalars of the parameters that wait for their commit.
        self.metrics: dict[str, Any] = {}
        self.last_t = 0.0
        self.checkpoint_t = 0.0
        self.n_executor_deaths = 0
        #: Reason of a ``pause``, ``stop`` or ``checkpoint`` that waits for the boundary.
        self.asked: dict[str, str] = {}
        #: Hold planner that a person chose, for the next round.
        self.next_hold: str | None = None
        #: Settings of the algorithm that a person changed (``rl.NAME`` -> value): as they shall be from the next round
        #: on, and as the present round has them.
        self.settings: dict[str, Any] = {}
        self.in_force: dict[str, Any] = {}
        #: A setting was changed since the last checkpoint.
        self.unsaved = False
        #: The round that has begun: what is changed now counts from the one after it.
        self.begun = 0
        #: The wake waits for the checkpoint's copies.
        self.gathering = False
        #: The wake waits for a person who paused the task at a boundary.
        self.resting = False
        #: What the end still waits for: ``checkpoint``, ``evaluation``.
        self.closing: list[str] = []
        #: The wake waits for an evaluation of this version.
        self.judging = False
        #: Environment steps at which the next evaluation is due.
        self.eval_at = 0
        #: Best mean return of the evaluations while training, None before the first.
        self.eval_best: float | None = None
        #: Collector that plays an evaluation now.
        self.evaluator: int | None = None
        #: Off-policy: the round's fragments, by collector.
        self.fragments: dict[int, Batch] = {}
        #: Off-policy: the process that holds the ring is up.
        self.ring_up = False
        self._story: deque[Record] = deque(maxlen=10)
        self._out: list[Record] = []

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain data."""
        plain = (
            "phase", "attempt", "n_bytes", "n_bytes_next", "last_t", "checkpoint_t", "n_executor_deaths", "next_hold",
            "gathering", "resting", "evaluator", "judging", "eval_at", "eval_best", "begun",
            "unsaved",
        )  # fmt: skip
        return {name: getattr(self, name) for name in plain} | {
            "metrics": dict(self.metrics),
            "asked": dict(self.asked),
            "settings": dict(self.settings),
            "in_force": dict(self.in_force),
            "closing": list(self.closing),
            "ring_up": self.ring_up,
            "fragments": [[b.collector, b.key, b.n_samples] for b in self.fragments.values()],
            "hold": self.hold.snapshot(),
            "warmup": self.warmup.snapshot(),
            "crew": self.crew.snapshot(),
            "progress": self.progress.snapshot(),
            "scalars": self.scalars.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of :meth:`snapshot`; the same events then give the same records."""
        for name, value in state.items():
            part = getattr(self, name)
            if isinstance(part, HoldMachine | WarmupMachine | Crew | Progress | RoundScalars):
                part.restore(value)
            elif name == "fragments":
                self.fragments = {c: Batch(collector=c, key=key, n_samples=n) for c, key, n in value}
            else:
                # A journal's header turns lists into tuples.
                setattr(self, name, type(part)(value) if isinstance(part, list | dict) else value)

    @property
    def round(self) -> int:
        """Round of the present or next lease: 0 while there are no parameters yet."""
        return self.progress.version if self.n_bytes else 0

    @property
    def arrived(self) -> dict[int, Batch]:
        """The collectors' shares of this round that are here."""
        return self.fragments if self.config["replay"] else self.hold.batches

    @property
    def n_batches(self) -> int:
        """Batches that this round brings to the slot."""
        return 1 if self.config["replay"] else len(self.crew.members)

    @property
    def is_complete(self) -> bool:
        """Whether every batch of this round is here."""
        return len(self.hold.batches) == self.n_batches

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self._out.append(words.PhaseEntered(phase=phase, round=self.round))

    def _drop(self, key: str, collector: int, round_: int, reason: str) -> None:
        self._out.append(words.DropExperience(key=key, collector=collector, round=round_, reason=reason))

    def _warm(self, event: Event) -> None:
        """Let the warm-up machine hear an event; what it says of processes, the crew hears as well."""
        self._take_warmup(self.warmup.handle(event))

    def _take_warmup(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, warmup.StopCollector):
                self.crew.stopped(record.collector)
            elif isinstance(record, warmup.StartCollector) and not record.parked:
                self.crew.starts(record.collector, record.round)
            elif isinstance(record, warmup.RevokeStart) and not record.parked:
                self.crew.revoked(record.collector)
            elif isinstance(record, warmup.WarmupPlanned):
                self.scalars.planned(record)
            elif isinstance(record, warmup.WarmupMeasured):
                self.scalars.measured(record)
            self._out.append(record)

    # The parts of the machine are one class in the end and call each other through these names.
    _wake: Callable[[], None]
    _draw: Callable[[], None]
    _begin_round: Callable[[], None]
    _go_on: Callable[[], None]
    _publish: Callable[[], None]
    _evaluate: Callable[[], None]
    _plan_hold: Callable[[], None]
    _boundary: Callable[[float], None]
    _end: Callable[[str, str], None]
    _leave: Callable[[str], None]
    _next_round: Callable[..., None]

"""Words of warm-up: when each collector starts, rests, and is started again (seed 000)."""

from dataclasses import dataclass

from drlnb.records.base import Command, Decision, Event

__all__ = [
    "CollectorLost",
    "CollectorReady",
    "CollectorRestartPlanned",
    "StartCollector",
    "WakeCollector",
    "WarmupPlanned",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCollector(Command):
    """Start the collector's process on a node, `after_s` from now, and make its environments."""

    collector: int
    node: str
    env_indices: tuple[int, ...]
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorReady(Event):
    """The process is up and its environments are made."""

    collector: int
    node: str
    #: Seconds from the command at the node to ready.
    start_s: float
    #: Collectors starting on that node at the same time, this one included.
    n_starting: int
    start_mode: str
    #: Environments that a checkpoint could not bring back: their episodes began anew.
    episodes_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeCollector(Command):
    """Act: read parameters `version` from the host store, take `n_steps` steps per environment, send, rest."""

    collector: int
    node: str
    round: int
    version: int
    n_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorLost(Event):
    """The process ended, or its node is gone; what it had not sent is lost."""

    collector: int
    node: str
    reason: str
    #: Last lines of its traceback, if there is one.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorRestartPlanned(Decision):
    """When a lost collector is started again."""

    collector: int
    node: str
    after_s: float
    n_restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupPlanned(Decision):
    """What the warm-up planner says of one collector once it has sent."""

    round: int
    collector: int
    #: ``cold``: start when the parameters are there.
    action: str
    planner: str
    reason: str

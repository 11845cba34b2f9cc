"""Define the records of warm-up: when each collector starts, rests, and is started again (the leasing patent)."""

from drlnb.records.base import Command, Decision, Event


class _OfCollector(Command):
    """What one collector is to do after or for a round."""

    collector: int
    node: str
    round: int


class StartCollector(_OfCollector):
    """Start the collector's process on a node, `after_s` from now, and make its environments.

    The same (round, collector) once more sets another time as long as nothing has been started for it, and changes
    nothing after that: never two processes.
    """

    env_indices: tuple[int, ...]
    after_s: float
    #: Round whose parameters it is started for; 0: at once, whatever the round (a new or a lost collector).
    round: int = 0
    #: How the process is started: ``zygote`` or ``spawn``.
    start_mode: str = ""
    #: Its environments begin anew: with their last state it was lost once more.
    anew: bool = False


class RevokeStart(_OfCollector):
    """Forget the start of a round: it has not happened yet, or ends again."""

    reason: str


class StopCollector(_OfCollector):
    """Keep the environments' states and end the process: it has sent its experience of `round` (mode ``respawn``)."""


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
    #: That of the :class:`StartCollector` which it answers.
    round: int = 0


class WakeCollector(_OfCollector):
    """Act: read parameters `version` from the host store, take `n_steps` steps per environment, send, rest."""

    version: int
    n_steps: int
    #: Environment steps of the task before this round.
    n_timesteps: int = 0
    #: So many times as long as it takes shall its acting take: an emulated slow member.
    slowed: float = 1.0


class _CollectorGone(Event):
    """Nothing more is to be expected of a collector's process."""

    collector: int
    node: str
    reason: str
    #: Last lines of its traceback, if there is one.
    detail: str
    #: Where its environments were, such as "in step 31 since it was woken"; empty where that is not known.
    where: str = ""


class CollectorLost(_CollectorGone):
    """The process ended, or its node is gone; what it had not sent is lost."""


class CollectorUnanswered(_CollectorGone):
    """A collector was asked to act, or to play an evaluation, and nothing has come, nor word of its loss."""

    #: Version that it was asked to act with.
    version: int
    evaluates: bool


class CollectorRestartPlanned(Decision):
    """When a lost collector is started again."""

    collector: int
    node: str
    after_s: float
    n_restarts: int


class WarmupPlanned(Decision):
    """What becomes of one collector that has sent its experience of `round`."""

    round: int
    collector: int
    #: ``cold``: start when the parameters are there; ``start``: at a planned time, or then if that is sooner;
    #: ``keep``: it is not stopped; ``end``: no start follows.
    action: str
    planner: str
    reason: str
    #: Seconds from this record's event to the start; None: at the parameters' arrival.
    start_after_s: float | None = None
    #: Seconds by which the start precedes the arrival that the planner expects.
    lead_s: float | None = None
    #: What was weighed: seconds after sending (None: at the parameters' arrival), expected wait of the round and idle
    #: time of a collector in seconds.  Told once per round, by the first plan.
    candidates: tuple[tuple[float | None, float, float], ...] = ()
    #: What the stability filter did: latest rounds looked at, least and most seconds that it keeps (of round times if
    #: `planner` is ``patent``, else of this collector's gaps).  None: nothing was filtered.
    filtered: tuple[int, float, float] | None = None
    #: Beside each of `candidates`, over the same rounds: standard error of the mean wait that it saves over ``cold``
    #: and of its mean idle time, in seconds, and the correlation of the two, dimensionless; free of rho.
    candidate_errors: tuple[tuple[float, float, float], ...] = ()
    #: What the best planned start saves over ``cold``: mean of the rounds' costs (rho x wait + idle time), paired, and
    #: its standard error, in seconds.  None: nothing was weighed, or the journal is older than this field.
    saved_s: float | None = None
    saved_error_s: float | None = None


class WarmupMeasured(Decision):
    """What the starts for the parameters of `round` came to; each collector was idle or late, never both."""

    round: int
    #: Seconds from the parameters' arrival until the last collector was ready.
    wait_s: float
    #: Mean seconds that a collector was ready before they arrived.
    idle_s: float
    collectors: tuple[int, ...]
    #: Seconds ready before the arrival, by collector.
    early_s: tuple[float, ...]
    #: Seconds ready after it, by collector.
    late_s: tuple[float, ...]


class WarmupRegimeEnded(Decision):
    """Rounds before this one are no guide any more: starts are planned again when enough new ones are in."""

    round: int
    #: Rounds that are kept.
    n_kept: int
    reason: str

"""Describe one training task as plain data that travels: what every task has, and what it trains."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar, Self

from drlnb.records.base import Facts, Row
from drlnb.records.kinds import kind_problems
from drlnb.records.settings import FLAG, Kind, choice, count

__all__ = [
    "ALGORITHMS",
    "EVAL_EPISODES",
    "EVAL_MAX_STEPS",
    "LIMITS",
    "SOURCE_KEYS",
    "FitWork",
    "RlWork",
    "WorkSpec",
    "read_work",
]

#: Algorithms that this version can run; where their parts are: :data:`drlnb.rl.algorithms.registry.TABLE`.
ALGORITHMS = ("ppo", "gpf", "dqn")

#: Limits of a task's whole numbers: above, a slip of the finger is likelier than a wish, and seeds have 32 bits.
LIMITS: Mapping[str, Kind] = {
    "total_timesteps": count(1, 10**15),
    "n_envs": count(1, 100_000),
    "n_collectors": count(1, 1000),
    "n_learners": count(1, 64),
    "seed": count(0, 2**32 - 1),
    "eval_episodes": count(0, 100_000),
    "eval_max_steps": count(1, 10**15),
    "round_steps": count(1, 10**15),
    "n_samples": count(0, 10**15),
    "batch_size": count(0, 10**15),
}
_KINDS: Mapping[str, Kind] = {**LIMITS, "deterministic": FLAG, "evaluates": FLAG, "algo": choice(*ALGORITHMS)}

#: Fields of a task that say how its environments are made.
SOURCE_KEYS = ("env", "env_factory", "env_kwargs", "env_wrappers")

#: Episodes of the evaluation at the end.
EVAL_EPISODES = 20
#: Longest episode of an evaluation, in steps: that of a game of the Arcade Learning Environment (108,000 frames).
EVAL_MAX_STEPS = 27_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSpec:
    """What every task has, with every default resolved; a subclass says what is trained.

    Raises
    ------
    ValueError
        If a count is below its limit; the message names field, limit and value.
    """

    #: Name of the kind of work in plain data.
    work: ClassVar[str] = ""

    #: Unique inside a run; letters, digits, ``-``, ``_``, ``.``.
    name: str
    #: Budget in steps, at least 1: environment steps over all environments, or steps of the optimiser.
    total_timesteps: int
    seed: int = 0
    #: Who waits with a higher one comes first, unless the other has waited for long; 0 for most.
    priority: int = 0
    #: Bytes that a gradient step may use on its device; None: any number, nothing is swapped.
    memory_budget_bytes: int | None = None
    #: Slots that compute its gradient side by side, at least 1; fewer where no more are up.
    n_learners: int = 1
    #: Curves of one group are drawn with a band over seeds.
    group: str | None = None
    #: Same spec, same machine type, same bits: sums have one order, whatever arrives first.
    deterministic: bool = True
    #: Where the settings came from, in words for the user.
    origin: str = ""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            if hasattr(self, name) and (problem := kind.problem(name, getattr(self, name))):
                raise ValueError(problem)

    def to_plain(self) -> Row:
        """Return the fields as a mapping that JSON and msgpack hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain: Row = json.loads(json.dumps(values, default=dict))
        return {"work": self.work, **plain}

    @classmethod
    def from_plain(cls, plain: Facts) -> Self:
        """Rebuild a spec from :meth:`to_plain`'s mapping.

        Raises
        ------
        ValueError
            If there are fields that this version does not have, or values of another kind; they are named.
        """
        given = {key: value for key, value in plain.items() if key != "work"}
        unknown = sorted(given.keys() - {f.name for f in fields(cls)})
        if unknown:
            raise ValueError(f"task spec has unknown fields: {', '.join(unknown)}")
        missing = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING and f.name not in given]
        if missing:
            raise ValueError(f"task spec lacks {', '.join(missing)}")
        if wrong := kind_problems(cls, given):
            raise ValueError("; ".join(wrong))
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class RlWork(WorkSpec):
    """Reinforcement learning: one environment + one algorithm."""

    work = "rl"

    #: Gymnasium id, or ``module:Id-v0``; with `env_factory` the name that people see.
    env: str
    #: A factory of environments as text (base64 of a cloudpickle); None: `env` is an id.
    env_factory: str | None = None
    #: Arguments of the environment's constructor, or of the factory.
    env_kwargs: Facts = field(default_factory=dict)
    #: Wrappers as ``{"name", "kwargs"}``, innermost first; see :mod:`drlnb.rl.envs.wrappers`.
    env_wrappers: Sequence[Facts] = field(default_factory=list)
    #: Where evaluations play: these keys, in which it differs; None: in copies of the same environment.
    eval_source: Facts | None = None
    algo: str = "ppo"
    #: Environments over all collectors, at least `n_collectors`.
    n_envs: int
    n_collectors: int = 1
    #: Episodes that are played when the budget is made; 0: none.
    eval_episodes: int = EVAL_EPISODES
    #: Steps after which an episode of any evaluation is cut, at least 1.
    eval_max_steps: int = EVAL_MAX_STEPS
    #: The algorithm's settings under Stable-Baselines3's names, complete; schedules as text (``lin_0.001``).
    hyperparameters: Facts = field(default_factory=dict)
    #: Plain description of the observation space: kind, shape, dtype, ...; filled by the probe.
    observation_space: Facts | None = None
    #: Plain description of the action space: kind, n or shape, low, high; filled by the probe.
    action_space: Facts | None = None
    #: Whether a snapshot of an environment goes on exactly as the original; filled by the probe.
    can_snapshot: bool | None = None

    def __post_init__(self) -> None:
        WorkSpec.__post_init__(self)  # `super()` knows no dataclass that was made anew for its slots
        if self.n_collectors > self.n_envs:
            raise ValueError(f"n_collectors must be <= n_envs = {self.n_envs}, got {self.n_collectors}")
        if self.n_learners > self.n_collectors:
            wanted = f"n_collectors={self.n_learners}" + (f" and n_envs={self.n_learners}") * (
                self.n_envs < self.n_learners
            )
            raise ValueError(
                f"n_learners must be <= n_collectors = {self.n_collectors}, got {self.n_learners}: a learner computes "
                f"what whole collectors made, so it needs {wanted}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWork(WorkSpec):
    """Supervised learning: a module of the user's, trained on batches that are named by their step.

    It has no environments and no collectors: its rounds only compute.
    """

    work = "fit"

    #: Function without arguments that returns ``(module, optimizer, loss, batches, evaluate)``: as ``module:callable``,
    #: or as the file of the run directory that holds it; see :mod:`drlnb.runtime.children.fit`.
    program: str
    #: File of the run directory that holds the data set, or its factory, of such a file; None: there is none.
    data: str | None = None
    #: Samples of the data set, and in a batch; 0: batches know nothing of samples, and there are no epochs.
    n_samples: int = 0
    batch_size: int = 0
    #: The optimiser with its arguments, in words: a run that goes on keeps what it was begun with.
    optimizer: str = ""
    #: Norm to which the gradient of each step is clipped; None: it is not.
    max_grad_norm: float | None = None
    #: Whether the module is evaluated at the end of each epoch: rounds end there, too.
    evaluates: bool = False
    #: Most steps of the optimiser in a round, at least 1: parameters are committed, and the slot is given back, after
    #: them, or after about two seconds of them.
    round_steps: int = 10_000

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch: the last batch may be short; 0 if there are no epochs."""
        return -(-self.n_samples // self.batch_size) if self.batch_size else 0


def read_work(plain: Facts) -> WorkSpec:
    """Rebuild the spec of any task from :meth:`WorkSpec.to_plain`'s mapping.

    Raises
    ------
    ValueError
        If this version does not know the work, or a field of it; it is named.
    """
    kinds: dict[str, type[WorkSpec]] = {kind.work: kind for kind in (RlWork, FitWork)}
    work = plain.get("work")
    if not isinstance(work, str) or work not in kinds:
        raise ValueError(f"work must be one of {', '.join(kinds)}, got {work!r:.80}")
    return kinds[work].from_plain(plain)

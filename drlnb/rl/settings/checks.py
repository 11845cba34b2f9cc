"""Declare what the settings of algorithms have in common: the kinds of their values, and the base of each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from drlnb.records.base import Facts, Row
from drlnb.records.errors import ConfigError
from drlnb.records.settings import (
    FLAG,
    SHARE,
    Declared,
    Kind,
    between,
    count,
    fitting,
    is_number,
    is_whole,
    optional,
    quoted,
    setting,
)
from drlnb.rl.networks.policies import network_shape
from drlnb.rl.schedules import Scheduled, parse_schedule

__all__ = [
    "ABOVE_0",
    "POLICY",
    "POLICY_KWARGS",
    "SCHEDULE",
    "WEIGHT",
    "WHOLE",
    "OnPolicySettings",
    "Settings",
    "first_problem",
    "network_kwargs",
    "whole_or_minus_1",
]

#: Stable-Baselines3's arguments that no algorithm here takes, and why.
NEVER: Mapping[str, str] = {
    "tensorboard_log": "it belongs to a model; tasks are tracked by fleet.train with track='tensorboard'",
    "device": "a task computes on the slots of its fleet",
    "seed": "the seed is the task's, not a hyper-parameter",
    "use_masking": "only ppo learns with action masks",
    "verbose": "it belongs to a model; a task prints nothing",
}

_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")


def _is_schedule(value: object) -> bool:
    try:
        parse_schedule(value)
    except (ValueError, OverflowError):
        return False
    return True


#: What :func:`drlnb.rl.schedules.parse_schedule` reads.
SCHEDULE = fitting("a number >= 0, lin_NUMBER, or a function of the progress that remains", _is_schedule)
#: Whole numbers from 1.
WHOLE = count(1)
#: Numbers above 0.
ABOVE_0 = fitting("a number > 0", lambda value: is_number(value) and value > 0)
#: Numbers from 0 on.
WEIGHT = fitting("a number >= 0", lambda value: is_number(value) and value >= 0)
_MAPPING = fitting("a mapping", lambda value: isinstance(value, Mapping))


def whole_or_minus_1(text: str) -> Kind:
    """Return the kind of whole numbers from 1, and of -1, which `text` explains."""
    return fitting(f"a whole number >= 1, or -1 {text}", lambda value: is_whole(value, 1) or is_whole(value, -1, -1))


def _policy(name: str, value: object) -> str:
    """Accept the name of a policy, or a factory of modules that :func:`drlnb.rl.algorithms.resolve.resolve` packed."""
    if isinstance(value, str) and "lstm" in value.lower():
        why = "no algorithm here learns from sequences (FrameStack shows the last observations)"
        return f"{name} cannot be recurrent: {why}, got {quoted(value)}"
    if value in _POLICIES or _packed(value):
        return ""
    known = f"{', '.join(_POLICIES)}, or a function (observation_space, action_space, **kwargs) -> nn.Module"
    return f"{name} must be {known}, got {quoted(value)}"


def _packed(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"name", "pickled"}


def _keys(name: str, value: Facts, known: Collection[str]) -> str:
    unknown = ", ".join(sorted(set(value) - set(known)))
    return f"{name} takes the keys {', '.join(sorted(known))}, not {unknown}" if unknown else ""


def parts(kinds: Mapping[str, Kind]) -> Kind:
    """Return the kind of mappings that hold some of these keys, each with a value of its kind."""

    def problem(name: str, value: object) -> str:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return f"{name} must be a mapping of {', '.join(sorted(kinds))}, got {quoted(value)}"
        return _keys(name, value, kinds) or first_problem(kinds, name, value)

    return Kind(problem)


def first_problem(kinds: Mapping[str, Kind], name: str, values: Facts) -> str:
    """Return what is wrong with the first wrong value of a mapping; empty if nothing is."""
    problems = (kind.problem(f"{name}: {key}", values[key]) for key, kind in kinds.items() if key in values)
    return next(filter(None, problems), "")


def network_kwargs(read: Callable[[Facts], object], keys: Collection[str]) -> Kind:
    """Return the kind of the arguments of a network; those of a factory are its own.

    Parameters
    ----------
    read
        Reads widths and activation, and raises if they are wrong.
    keys
        Those that are looked at.
    """

    def problem(name: str, value: object) -> str:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return f"{name} must be a mapping, with names as keys, got {quoted(value)}"
        if problem := first_problem({key: kind for key, kind in POLICY_KWARGS.items() if key in keys}, name, value):
            return problem
        try:
            read(value)
        except ConfigError as error:
            return f"{name}: {str(error).removeprefix(f'{name} ')}"
        return _optimizer_problem(value)

    return Kind(problem)


def _normalize(name: str, value: object) -> str:
    """Accept a truth value or ``{norm_obs, norm_reward}``."""
    if isinstance(value, Mapping):
        return _NORMALIZED.problem(name, value)
    words = "true, false or {norm_obs, norm_reward}"
    return "" if isinstance(value, bool) else f"{name} must be {words}, got {quoted(value)}"


#: See :func:`_normalize`.
NORMALIZE = Kind(_normalize)
#: See :func:`_policy`.
POLICY = Kind(_policy)
_NORMALIZED = parts({"norm_obs": FLAG, "norm_reward": FLAG})
_BETAS = fitting(
    "two numbers from 0 to 1",
    lambda value: (
        isinstance(value, list | tuple) and len(value) == 2 and not any(SHARE.problem("", beta) for beta in value)
    ),
)
_EXTRACTORS = ("NatureCNN", "ImpalaCNN")
_ADAMS: Mapping[str, Kind] = {"eps": WEIGHT, "betas": _BETAS, "weight_decay": WEIGHT}
#: Classes of ``torch.optim`` that policies are trained by, and the arguments of each.
OPTIMIZERS: Mapping[str, Mapping[str, Kind]] = {
    "Adam": _ADAMS,
    "AdamW": _ADAMS,
    "SGD": {"momentum": WEIGHT, "nesterov": FLAG, "weight_decay": WEIGHT},
    "RMSprop": {"alpha": SHARE, "eps": WEIGHT, "momentum": WEIGHT, "weight_decay": WEIGHT},
    "Adagrad": {"eps": WEIGHT, "lr_decay": WEIGHT, "weight_decay": WEIGHT},
}
#: What a network's arguments may be, but for its widths and activation.
POLICY_KWARGS: Mapping[str, Kind] = {
    "features_extractor_class": fitting(
        f"a class of nn.Module, {' or '.join(_EXTRACTORS)}", lambda value: value in _EXTRACTORS or _packed(value)
    ),
    "features_extractor_kwargs": optional(_MAPPING),
    "normalize_images": FLAG,
    "log_std_init": between(-20, 20),
    "ortho_init": FLAG,
    "optimizer_class": fitting(
        f"{', '.join(OPTIMIZERS)} of torch.optim, or a class of optimizers",
        lambda value: _packed(value) or (isinstance(value, str) and value in OPTIMIZERS),
    ),
    "optimizer_kwargs": optional(_MAPPING),
    "share_features_extractor": FLAG,
    "full_std": FLAG,
    "use_expln": FLAG,
    "squash_output": FLAG,
}


def _optimizer_problem(kwargs: Facts) -> str:
    """Return what is wrong with the arguments of the optimiser; empty if nothing is."""
    kind, given = kwargs.get("optimizer_class", "Adam"), kwargs.get("optimizer_kwargs") or {}
    if not isinstance(kind, str):
        return ""  # it is tried when it is made
    if problem := parts(OPTIMIZERS[kind]).problem(f"policy_kwargs: optimizer_kwargs of {kind}", given):
        return problem
    if given.get("nesterov") and not given.get("momentum"):
        return "policy_kwargs: optimizer_kwargs nesterov needs a momentum > 0"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Declared, ABC):
    """Base of an algorithm's settings: a frozen dataclass whose every field is a setting.

    A subclass holds the fields and overrides the class variables.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    #: Stable-Baselines3's arguments without a meaning here -> the reason.
    UNSUPPORTED: ClassVar[Mapping[str, str]] = NEVER
    #: Name of such an argument -> its values that ask for nothing; of any other False and None.
    MEANS_NOTHING: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    #: Keys of ``policy_kwargs`` that networks with a name take; a factory takes any.
    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def live(cls) -> frozenset[str]:
        """Return the names of the settings that may change while a task trains, from the next round on."""
        return frozenset(name for name, setting in cls.declared().items() if setting.live)

    @classmethod
    def check_value(cls, name: str, value: object) -> str:
        """Return what is wrong with one setting's value, with the value; empty if nothing is."""
        return cls.declared()[name].kind.problem(name, value)

    @classmethod
    def fitted(cls, values: Facts, named: Collection[str], n_envs: int) -> Row:
        """Return defaults that become others beside the settings that were named; here none."""
        return {}

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good: here a policy and its arguments."""
        policy, kwargs = values["policy"], values["policy_kwargs"]
        problem = _keys("policy_kwargs", kwargs, cls.POLICY_KEYS)
        if (
            policy == "MlpPolicy"
            and kwargs.get("features_extractor_kwargs")
            and "features_extractor_class" not in kwargs
        ):
            problem = "policy_kwargs: features_extractor_kwargs need features_extractor_class: MlpPolicy has none"
        if isinstance(policy, Mapping) or not problem:
            return []
        return [problem]

    def to_plain(self) -> Row:
        """Return all settings as a mapping of plain data."""
        values = {name: getattr(self, name) for name in self.names()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def remarks(self, n_envs: int) -> tuple[str, ...]:
        """Return what a user should know of these settings before training begins; nothing here."""
        return ()

    def streams(self, n_envs: int) -> bool:
        """Return whether a round's gradients can be computed as its fragments arrive; not here."""
        return False

    @abstractmethod
    def whole_round(self, n_envs: int) -> str:
        """Return why one slot must have the whole round, and the way out; empty if several may share its gradient."""

    @abstractmethod
    def round_steps(self) -> int:
        """Return the vector steps of one round: steps per environment between two updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicySettings(Settings):
    """Settings of an algorithm that learns from each round's own samples."""

    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset({
        *("net_arch", "activation_fn", "ortho_init", "log_std_init", "optimizer_class", "optimizer_kwargs"),
        *("features_extractor_class", "features_extractor_kwargs", "share_features_extractor", "normalize_images"),
    })

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module``.
    policy: str | Mapping[str, str] = setting("MlpPolicy", POLICY)
    #: Step size of the optimiser; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: Scheduled = setting(3e-4, SCHEDULE, live=True)
    #: Steps per environment and round.
    n_steps: int = setting(2048, WHOLE)
    #: Samples per gradient step.
    batch_size: int | None = setting(64, WHOLE)
    #: Passes over the round's samples; 1 with the whole round: gradients are computed as experience arrives.
    n_epochs: int = setting(10, WHOLE, live=True)
    #: Discount per step.
    gamma: float = setting(0.99, SHARE)
    #: Trace decay of generalised advantage estimation, and of GPF's targets.
    gae_lambda: float = setting(0.95, SHARE)
    #: Weight of the value loss (mean squared error, without 1/2).
    vf_coef: float = setting(0.5, WEIGHT)
    #: Largest norm of the whole gradient.
    max_grad_norm: float = setting(0.5, ABOVE_0)
    #: The round's steps end before a minibatch whose mean KL exceeds 1.5 times this; none: never.
    target_kl: float | None = setting(None, optional(ABOVE_0), live=True)
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = setting(False, NORMALIZE)
    #: ``net_arch``, ``activation_fn``, ``ortho_init``, ``log_std_init``, ``optimizer_class``, ``optimizer_kwargs``,
    #: ``normalize_images``, ``features_extractor_class``, ``features_extractor_kwargs``, ``share_features_extractor``;
    #: a factory's own arguments.
    policy_kwargs: Facts = setting({}, network_kwargs(network_shape, POLICY_KWARGS))
    #: Episodes that the rolling means of returns, lengths and successes cover.
    stats_window_size: int = setting(100, WHOLE)

    @classmethod
    def fitted(cls, values: Facts, named: Collection[str], n_envs: int) -> Row:
        """Return the batch that a short round has where nobody has named one: all of it, as in Stable-Baselines3."""
        batch, steps = values["batch_size"], values["n_steps"]
        small = "batch_size" not in named and is_whole(batch, 1) and is_whole(steps, 1)
        return {"batch_size": min(batch, steps * n_envs)} if small else {}

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good: policy, batch, steps and environments."""
        # Slots make the class anew: no bare super.
        problems = super(OnPolicySettings, cls).check_together(values, n_envs)
        batch, steps = values["batch_size"], values["n_steps"]
        if batch is not None and batch > steps * n_envs:
            total = f"{steps} * {n_envs} = {steps * n_envs}"
            problems.append(f"batch_size must be <= n_steps * n_envs = {total}, got {batch}")
        return problems

    def streams(self, n_envs: int) -> bool:
        """Return whether there is one pass over the whole round as one batch.

        Examples
        --------
        >>> settings = OnPolicySettings(n_steps=8, n_epochs=1, batch_size=16)
        >>> settings.streams(2), settings.streams(3)
        (True, False)
        """
        whole = self.batch_size is None or self.batch_size >= self.n_steps * n_envs
        return self.n_epochs == 1 and whole

    def whole_round(self, n_envs: int) -> str:
        """Return that minibatches are of the whole round, and which settings make it one batch; else nothing.

        Examples
        --------
        >>> OnPolicySettings(n_steps=8, n_epochs=1, batch_size=16).whole_round(4)
        'its minibatches are drawn from the whole round; gradients are computed at arrival with batch_size=32'
        """
        if self.streams(n_envs):
            return ""
        needed = [] if self.n_epochs == 1 else ["n_epochs=1"]
        if self.batch_size is not None and self.batch_size < self.n_steps * n_envs:
            needed.append(f"batch_size={self.n_steps * n_envs}")
        with_ = " and ".join(needed)
        return f"its minibatches are drawn from the whole round; gradients are computed at arrival with {with_}"

    def round_steps(self) -> int:
        """Return the vector steps of one round."""
        return self.n_steps

"""List the algorithms and where each keeps its parts, in one table; nothing is imported before it is needed.

A collector asks for an actor and never loads torch; the host of a learner asks for a learner.  Parts are named as
``module:Class``, so that this table itself costs nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from drlnb.records.errors import ConfigError
from drlnb.records.spec import ALGORITHMS, FitWork, RlWork, WorkSpec
from drlnb.rl.networks.policies import check_spaces

if TYPE_CHECKING:
    from drlnb.rl.acting.actors import Actor
    from drlnb.rl.algorithms.learner import Learner
    from drlnb.rl.algorithms.replay import Replay
    from drlnb.rl.settings.checks import Settings

__all__ = [
    "check_fit",
    "learners_problem",
    "make_actor",
    "make_learner",
    "make_replay",
    "off_policy",
    "settings_class",
    "settings_of",
]


class Algorithm(NamedTuple):
    """Where one algorithm's parts are, as ``module:Class`` below ``drlnb.rl``."""

    #: A :class:`drlnb.rl.settings.checks.Settings`; no torch.
    settings: str
    #: A :class:`drlnb.rl.algorithms.learner.Learner`, built as ``Class(spec, device=device)``.
    learner: str
    #: A :class:`drlnb.rl.acting.actors.Actor`, built as ``Class(spec)``; no torch for an MLP.
    actor: str = "acting.actors:Actor"
    #: Off-policy: a :class:`drlnb.rl.algorithms.replay.Replay`, built as ``Class(spec)``; no torch.  Empty: on-policy.
    replay: str = ""


#: An algorithm is a line here, and its name in :data:`drlnb.records.spec.ALGORITHMS`.
TABLE: Mapping[str, Algorithm] = {
    "ppo": Algorithm("settings.ppo:PpoSettings", "algorithms.ppo:PpoLearner"),
    "gpf": Algorithm("settings.gpf:GpfSettings", "algorithms.gpf:GpfLearner", "algorithms.gpf_actor:GpfActor"),
    "dqn": Algorithm(
        "settings.dqn:DqnSettings",
        "algorithms.dqn:DqnLearner",
        "algorithms.dqn_actor:DqnActor",
        "algorithms.replay:Replay",
    ),
}


def _load(address: str) -> Any:  # the class at an address
    module, _, name = address.partition(":")
    return getattr(import_module(f"drlnb.rl.{module}"), name)


def _entry(algo: str) -> Algorithm:
    if algo not in TABLE:
        raise ConfigError(f"algo must be one of {', '.join(ALGORITHMS)}, got {algo!r}")
    return TABLE[algo]


def settings_class(algo: str) -> "type[Settings]":
    """Return the settings dataclass of an algorithm.

    Raises
    ------
    ConfigError
        If there is no such algorithm.
    """
    return _load(_entry(algo).settings)


def settings_of(spec: RlWork) -> "Settings":
    """Return a task's settings, complete; a :class:`.ConfigError` lists what is unknown or wrong."""
    return settings_class(spec.algo).from_mapping(spec.hyperparameters)


def check_fit(spec: RlWork) -> None:
    """Refuse a task, with its spaces filled in, whose algorithm or policy cannot serve them; say what would."""
    check_spaces(spec)
    if spec.algo != "ppo":  # PPO takes all that the probe lets through
        make_actor(spec)


def learners_problem(spec: WorkSpec, **changed: object) -> str:
    """Return why a task, some of its settings changed, cannot have its learners, and the way out; empty if it can."""
    if spec.n_learners == 1:
        return ""
    if isinstance(spec, RlWork):
        before = settings_of(spec)
        now = replace(before, **changed)
        why, had_minibatches = now.whole_round(spec.n_envs), bool(before.whole_round(spec.n_envs))
        # Means over whole sequences are no sums over parts of a minibatch.
        shares = not off_policy(spec.algo) and spec.hyperparameters.get("expectation") != "samples"
        if shares and not spec.deterministic:
            if bool(why) == had_minibatches:
                return ""  # what is shared from the first round on: minibatches, or gradients that come with experience
            shared = "minibatches" if had_minibatches else "gradients that are computed at arrival"
            return f"its {spec.n_learners} learners share {shared}; rounds of the other kind need a new run"
        if why and shares:
            why += "; or deterministic=False: minibatches are shared, with other bits than one learner's"
        return why and f"n_learners must be 1 for {spec.algo} here, got {spec.n_learners}: {why}"
    if isinstance(spec, FitWork) and spec.data is not None:
        return ""
    return (
        f"n_learners must be 1 for a program of batches(step), got {spec.n_learners}: several share the samples of a "
        "data set, which fleet.fit takes"
    )


def make_actor(spec: RlWork) -> "Actor":
    """Return the acting side of a task's algorithm; see :class:`drlnb.rl.acting.actors.Actor`."""
    return _load(_entry(spec.algo).actor)(spec)


def make_learner(spec: RlWork, *, device: str = "cpu") -> "Learner":
    """Return the learner of a task's algorithm; see :class:`drlnb.rl.algorithms.learner.Learner`."""
    return _load(_entry(spec.algo).learner)(spec, device=device)


def off_policy(algo: str) -> bool:
    """Return whether an algorithm learns from a replay ring instead of the round's fragments."""
    return bool(_entry(algo).replay)


def make_replay(spec: RlWork) -> "Replay | None":
    """Return the memory of a task's algorithm; None if it learns from each round's fragments alone."""
    if not off_policy(spec.algo):
        return None
    return _load(_entry(spec.algo).replay)(spec)

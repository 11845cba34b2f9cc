"""Configure the rounds of a task by the work that it is."""

from drlnb.records.spec import FitWork, RlWork, WorkSpec
from drlnb.rl.algorithms.registry import off_policy, settings_of
from drlnb.rl.networks.policies import is_module
from drlnb.runtime.protocol import Plain

__all__ = ["rounds_of"]

#: Why the steps of an MLP policy are never swapped.
_UNSWAPPED = (
    "the gradient of an MLP policy is written out, and nothing of it can be swapped: a budget needs CnnPolicy, a "
    "features_extractor_class or a network of your own"
)


def rounds_of(spec: WorkSpec) -> Plain:
    """Return what a task's work says of the configuration of its round machine."""
    if isinstance(spec, FitWork):
        made = {"n_envs": 0, "n_collectors": 0, "n_steps": spec.round_steps, "can_respawn": True}
        return made | {"n_learners": spec.n_learners}
    assert isinstance(spec, RlWork)
    settings = settings_of(spec)
    return {
        "n_envs": spec.n_envs,
        "n_collectors": spec.n_collectors,
        "n_steps": settings.round_steps(),
        "n_eval_episodes": spec.eval_episodes,
        "replay": off_policy(spec.algo),
        "streams": settings.streams(spec.n_envs),
        "n_learners": spec.n_learners,
        "can_respawn": bool(spec.can_snapshot),
        "unswapped": "" if is_module(spec) else _UNSWAPPED,
    }

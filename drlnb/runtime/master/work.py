"""Configure the rounds of a task by the work that it is."""

from dataclasses import replace
from pathlib import Path

from drlnb.records.spec import FitWork, RlWork, WorkSpec
from drlnb.rl.algorithms.registry import off_policy, settings_of
from drlnb.rl.networks.policies import is_module
from drlnb.runtime.protocol import Plain

__all__ = ["located", "rounds_of"]

#: Why the steps of an MLP policy are never swapped.
_UNSWAPPED = (
    "the gradient of an MLP policy is written out, and nothing of it can be swapped: a budget needs CnnPolicy, a "
    "features_extractor_class or a network of your own"
)


def located(spec: WorkSpec, out: Path) -> WorkSpec:
    """Return a task's spec as its executors get it: with the files of a run directory where they are."""
    if not isinstance(spec, FitWork) or spec.data is None:
        return spec
    return replace(spec, program=str(out / spec.program), data=str(out / spec.data))


def rounds_of(spec: WorkSpec) -> Plain:
    """Return what a task's work says of the configuration of its round machine."""
    if isinstance(spec, FitWork):
        sizes = {"n_steps": spec.round_steps, "epoch_steps": spec.epoch_steps if spec.evaluates else 0}
        if spec.n_learners > 1:  # they share the samples of each step
            sizes |= {"n_samples": spec.n_samples, "batch_size": spec.batch_size}
        return {"n_envs": 0, "n_collectors": 0, **sizes, "n_learners": spec.n_learners, "can_respawn": True}
    assert isinstance(spec, RlWork)
    settings = settings_of(spec)
    return {
        "n_envs": spec.n_envs,
        "n_collectors": spec.n_collectors,
        "n_steps": settings.round_steps(),
        "stats_window_size": settings.to_plain()["stats_window_size"],
        "n_eval_episodes": spec.eval_episodes,
        "replay": off_policy(spec.algo),
        "streams": settings.streams(spec.n_envs),
        "n_learners": spec.n_learners,
        "can_respawn": bool(spec.can_snapshot),
        "unswapped": "" if is_module(spec) else _UNSWAPPED,
    }

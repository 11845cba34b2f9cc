"""Train a policy on pixels through an executor whose gradient steps have a budget of bytes."""

from collections.abc import Iterator

from benchmarks.efforts import Swapping
from benchmarks.frame.rows import Bar, Row
from benchmarks.frame.stage import Arguments, Stage, open_stage
from drlnb.fleet.tasks.task import Task
from drlnb.planning.swapping.trace import GIB
from drlnb.records.columns.swapping import SwapStepMeasured

__all__ = ["task", "trained"]

#: IMPALA's network, four times as wide; samples of a minibatch; of the bytes that its steps take, so many may stay.
_SCALE, _BATCHES, _SHARE = 4, (1024, 4096), 0.6
#: What a task may use that has room enough, and rounds, of eight steps each, until a plan was tried out and kept.
_ROOM_BYTES, _ROUNDS = 64 * GIB, 16
#: Rounds at the end whose steps are compared.
_LAST = 4


def task(effort: Swapping) -> Iterator[Row]:
    """Train PPO on minibatches of two sizes, with room enough and without."""
    if effort.device != "cuda":
        raise ValueError("these rows need --device cuda")
    with open_stage(cuda=True) as stage:
        for n in _BATCHES:
            yield from trained(stage, n, _SCALE)


def trained(stage: Stage, n: int, scale: int) -> Iterator[Row]:
    """Yield what gradient steps take under a budget, beside the same task's with room enough.

    Parameters
    ----------
    stage
        The cluster.
    n
        Samples of a minibatch; a round has two, four times over.
    scale
        Factor on the network's width.
    """
    roomy = _last(stage, f"roomy-{n}", n, scale, _ROOM_BYTES)
    memory_budget_bytes = int(_SHARE * max(each.peak_bytes for each in roomy))
    tight = _last(stage, f"tight-{n}", n, scale, memory_budget_bytes)
    title = f"gradient step of PPO, IMPALA x{scale}, {n} samples, under {_SHARE} of its bytes"
    peaks, bar = [float(each.peak_bytes) for each in tight], Bar("ratio", at_most=1.0)
    yield Row(f"task-{n}-peak", f"{title}: peak", peaks, "bytes", "the budget", (float(memory_budget_bytes),), bar=bar)
    took_s, plain_s = ([each.step_s for each in steps] for steps in (tight, roomy))
    yield Row(f"task-{n}-step", title, took_s, against="with room enough", baseline_samples=plain_s)


def _last(stage: Stage, name: str, n: int, scale: int, memory_budget_bytes: int) -> tuple[SwapStepMeasured, ...]:
    """Train a task, and return what its last rounds say of their steps."""
    kwargs: Arguments = {"features_extractor_class": "ImpalaCNN", "features_extractor_kwargs": {"scale": scale}}
    shape: Arguments = {"n_envs": 8, "n_steps": n // 4, "batch_size": n, "n_epochs": 4}
    of = Task(
        "drlnb/Catch-v0", name=name, policy="CnnPolicy", policy_kwargs=kwargs, n_collectors=1,
        total_timesteps=_ROUNDS * 2 * n, memory_budget=memory_budget_bytes, **shape,
    )  # fmt: skip
    return stage.train([of], name).of(SwapStepMeasured)[-_LAST:]

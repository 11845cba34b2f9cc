"""Measure single trainings, and four at once, beside Stable-Baselines3: speed, returns and time split."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import combinations

from benchmarks.efforts import Peers
from benchmarks.frame.processes import Trained, drlnb_train, train_all
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import Arguments, local_spec
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import MissingExtra

__all__ = ["WORKS", "four", "permutation_p", "require_peer", "run_own", "single"]

_PEER = "Stable-Baselines3, same settings and seed, one process and one thread"
#: The row that binds.
_BARS = {"cartpole": Bar("ratio", 1 / 2)}
#: Trainings of ``four``, slots they share, and Stable-Baselines3 processes that run at once in its second baseline.
_FOUR, _SLOTS, _TWO = 4, 2, 2
#: Episodes of a task's evaluation at the end of ``drlnb train``; its peers play as many.
_CLI_EPISODES = 20
_LONGEST_S = 900.0
#: Counts until it is asked to end, and says how far it came.
_NEIGHBOUR = """
import signal, sys
n = 0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(n)))
print(flush=True)
while True:
    n += 1
"""
#: Deterministic episodes after any other training.
N_EPISODES = 40
#: What Stable-Baselines3's PPO does where an entry names nothing.
_PPO: Arguments = {
    "total_timesteps": 100_000,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "n_epochs": 10,
    "batch_size": 64,
    "n_steps": 2048,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip_range": 0.2,
    "learning_rate": 3e-4,
    "normalize_advantage": True,
}

#: Row -> the training: keyword arguments of :class:`Task`, whose names are Stable-Baselines3's.  Every one that matters
#: is written out, so that no side falls back on a default of its own; settings are rl-baselines3-zoo's
#: (hyperparams/ppo.yml), but for what a comment names.
WORKS: dict[str, Arguments] = {
    "cartpole": {**_PPO, "env": "CartPole-v1", "n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20}
    | {"gamma": 0.98, "gae_lambda": 0.8, "learning_rate": "lin_0.001", "clip_range": "lin_0.2"},
    # A tenth of the zoo's million steps: returns are those of an unfinished training on both sides.
    "acrobot": {**_PPO, "env": "Acrobot-v1", "n_envs": 16, "n_steps": 256, "n_epochs": 4}
    | {"gae_lambda": 0.94, "normalize": True},
    # Without state-dependent exploration, and 100,000 steps.
    "pendulum": {**_PPO, "env": "Pendulum-v1", "n_envs": 4, "n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3},
}


def require_peer() -> None:
    """Refuse to go on without Stable-Baselines3.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    if find_spec("stable_baselines3") is None:
        raise MissingExtra('this row compares with stable-baselines3; install it with: pip install "drlnb[bench]"')


def run_own(works: Sequence[Arguments], at_once: int = 1, longest_s: float = _LONGEST_S) -> list[Trained]:
    """Train by drlnb in fresh processes."""
    specs = [local_spec(Task(**work, n_collectors=1)).to_plain() for work in works]
    children = [{"spec": spec, "n_eval_episodes": N_EPISODES} for spec in specs]
    return train_all(children, at_once=at_once, longest_s=longest_s)


def run_peer(works: Sequence[Arguments], at_once: int = 1, n_episodes: int = N_EPISODES) -> list[Trained]:
    """Train by Stable-Baselines3 in fresh processes."""
    children = [{"work": work, "n_eval_episodes": n_episodes} for work in works]
    return train_all(children, module="benchmarks.rl.sb3_child", at_once=at_once)


def single(effort: Peers, name: str) -> Iterator[Row]:
    """Compare one environment's trainings under the zoo's settings, each pair under a seed of its own."""
    require_peer()
    work = WORKS[name] | ({"total_timesteps": effort.steps} if effort.steps else {})
    seeded = [work | {"seed": effort.seed + n} for n in range(effort.pairs)]
    pairs = [(run_own([seeded_work])[0], run_peer([seeded_work])[0]) for seeded_work in seeded]
    mine, theirs = zip(*pairs, strict=True)
    setting = f"{work['env']}, {work['total_timesteps']} steps"
    bar = _BARS.get(name)
    for suffix, words, key in (
        ("", "whole training, time per environment step", "seconds"),
        ("-collect", "of that, collecting", "collect_s"),
        ("-update", "of that, updating", "update_s"),
    ):
        us = [[getattr(training, key) / training.n_timesteps * 1e6 for training in side] for side in (mine, theirs)]
        yield Row(f"{name}{suffix}", f"{setting}: {words}", unit="us/step", against=_PEER, bar=bar, **pair_up(*us))
        bar = None
    returns, base = ([training.mean_reward for training in side] for side in (mine, theirs))
    words = f"{setting}: mean return of {N_EPISODES} deterministic episodes after it"
    yield Row(f"{name}-return", words, returns, "reward", _PEER, base)
    words = f"{setting}: 1 - p of an exact permutation test, two-sided, that the mean returns over seeds differ"
    unlike = (1.0 - permutation_p(returns, base),)
    yield Row(f"{name}-return-unlike", words, unlike, "(1 - p)", bar=Bar("value", 0.95))


def permutation_p(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p value of the difference of means under every relabelling (Fisher's exact test).

    Parameters
    ----------
    mine, theirs
        At least one value each; at most 20 together (184,756 relabellings).

    Raises
    ------
    ValueError
        If a side is empty, or there are too many values.

    Examples
    --------
    >>> permutation_p([1.0, 2.0], [3.0, 4.0])  # 2 of 6 relabellings are as far apart
    0.3333333333333333
    """
    pooled = [*mine, *theirs]
    if not mine or not theirs or len(pooled) > 20:
        raise ValueError(f"needs 1 value a side and at most 20 in all, got {len(mine)} and {len(theirs)}")
    total, n = sum(pooled), len(mine)

    def apart(part: float) -> float:
        return abs(part / n - (total - part) / (len(pooled) - n))

    differences = [apart(sum(chosen)) for chosen in combinations(pooled, n)]
    return sum(difference >= apart(sum(mine)) - 1e-9 for difference in differences) / len(differences)


def four(effort: Peers, beside: str = "") -> Iterator[Row]:
    """Measure four CartPole trainings through the whole system, against four ordinary processes.

    With ``beside="neighbour"`` next to a process that counts as fast as it can, at the same priority.
    """
    require_peer()
    steps, bar = (50_000, 0.8) if beside else (WORKS["cartpole"]["total_timesteps"], 1 / 1.3)
    work = WORKS["cartpole"] | {"total_timesteps": effort.steps or steps}
    works = [work | {"seed": seed} for seed in range(_FOUR)]
    ways = {"mine": partial(_whole_system, works)}
    ways |= {"at once": partial(_processes, works, _FOUR), "by two": partial(_processes, works, _TWO)}
    counts: dict[str, list[float]] = {way: [] for way in ways}
    if beside:
        ways = {way: partial(_with_neighbour, measure, counts[way]) for way, measure in ways.items()}
    took = in_turn(min(effort.pairs, 3), ways)
    title = f"{_FOUR} x {work['env']}, {work['total_timesteps']} steps: drlnb train --gpus {_SLOTS}, command to exit"
    title += f", evaluation included{', beside a process that counts' if beside else ''}"
    peers = f"{_FOUR} Stable-Baselines3 processes, start to exit, evaluation included"
    better = [min(pair) for pair in zip(took["at once"], took["by two"], strict=True)]
    name = beside or "four"
    for suffix, words, base, bound in (
        ("", f"the better of both below: {peers}", better, Bar("ratio", bar)),
        ("-at-once", f"{peers}, all at once", took["at once"], None),
        ("-by-two", f"{peers}, two at a time", took["by two"], None),
    ):
        yield Row(f"{name}{suffix}", title, against=words, bar=bound, **pair_up(took["mine"], base))
    for way in ("at once", "by two") if beside else ():
        words, counted = f"the same beside Stable-Baselines3's, {way}", pair_up(counts["mine"], counts[way])
        row = f"{name}-counts-{way.replace(' ', '-')}"
        yield Row(row, "how far the neighbour counts", unit="1e6/s", against=words, **counted)


def _with_neighbour(measure: Callable[[], float], counts: list[float]) -> float:
    """Measure beside a process that counts; note how far it came, in millions a second."""
    with subprocess.Popen([sys.executable, "-c", _NEIGHBOUR], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            took = measure()
            process.terminate()
            counts.append(int(process.communicate()[0]) / 1e6 / (time.monotonic() - began))
        finally:
            process.kill()
    return took


def _processes(works: Sequence[Arguments], most: int) -> float:
    """Return the seconds that Stable-Baselines3's processes take, at most `most` at a time."""
    began = time.monotonic()
    run_peer(works, most, _CLI_EPISODES)
    return time.monotonic() - began


def _whole_system(works: Sequence[Arguments]) -> float:
    """Return the seconds that one ``drlnb train`` takes for all."""
    work = {name: str(value).lower() for name, value in works[0].items() if name not in ("env", "seed")}
    n_envs, steps = work.pop("n_envs"), work.pop("total_timesteps")
    words = [works[0]["env"], "--seeds", f"0-{len(works) - 1}", "--gpus", str(_SLOTS), "--n-envs", n_envs]
    words += ["--total-timesteps", steps, "--hyper", *(f"{name}={value}" for name, value in work.items())]
    began = time.monotonic()
    with drlnb_train(words) as (process, _):
        process.wait(_LONGEST_S)
        return time.monotonic() - began

"""Measure single trainings, and four at once, beside Stable-Baselines3: speed, returns and time split."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from itertools import combinations

from drlnb.bench.benches import Peers
from drlnb.bench.frame.processes import Trained, drlnb_train, train_all
from drlnb.bench.frame.rows import Bar, Row, in_turn, pair_up
from drlnb.bench.rl.works import WORKS, Work
from drlnb.records.errors import MissingExtra

__all__ = ["four", "permutation_p", "require_peer", "single"]

_PEER = "Stable-Baselines3, same settings and seed, one process and one thread"
#: The row that binds.
_BARS = {"cartpole": Bar("ratio", 1 / 2)}
#: Trainings of ``four``, slots they share, and Stable-Baselines3 processes that run at once in its second baseline.
_FOUR, _SLOTS, _TWO = 4, 2, 2
#: Episodes of a task's evaluation at the end of ``drlnb train``; its peers play as many.
_CLI_EPISODES = 20
_LONGEST_S = 900.0


def require_peer() -> None:
    """Refuse to go on without Stable-Baselines3.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    if find_spec("stable_baselines3") is None:
        raise MissingExtra('this row compares with stable-baselines3; install it with: pip install "drlnb[bench]"')


def run_own(works: Sequence[Work], at_once: int = 1, longest_s: float = _LONGEST_S) -> list[Trained]:
    """Train by drlnb in fresh processes."""
    children = [{"spec": work.own_spec().to_plain(), "n_eval_episodes": work.n_eval_episodes} for work in works]
    return train_all(children, at_once=at_once, longest_s=longest_s)


def run_peer(works: Sequence[Work], at_once: int = 1) -> list[Trained]:
    """Train by Stable-Baselines3 in fresh processes."""
    return train_all([asdict(work) for work in works], module="drlnb.bench.rl.sb3_child", at_once=at_once)


def single(effort: Peers, name: str) -> Iterator[Row]:
    """Compare one environment's trainings under the zoo's settings, each pair under a seed of its own."""
    require_peer()
    work = replace(WORKS[name], total_timesteps=effort.steps or WORKS[name].total_timesteps)
    seeded = [replace(work, seed=effort.seed + n) for n in range(effort.pairs)]
    pairs = [(run_own([seeded_work])[0], run_peer([seeded_work])[0]) for seeded_work in seeded]
    mine, theirs = zip(*pairs, strict=True)
    setting = f"{work.env}, {work.total_timesteps} steps"
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
    words = f"{setting}: mean return of {work.n_eval_episodes} deterministic episodes after it"
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


def four(effort: Peers) -> Iterator[Row]:
    """Measure four CartPole trainings through the whole system, against four ordinary processes."""
    require_peer()
    work = replace(WORKS["cartpole"], n_eval_episodes=_CLI_EPISODES)
    work = replace(work, total_timesteps=effort.steps or work.total_timesteps)
    works = [replace(work, seed=seed) for seed in range(_FOUR)]
    ways = {"mine": partial(_whole_system, works)}
    ways |= {"at once": partial(_processes, works, _FOUR), "by two": partial(_processes, works, _TWO)}
    took = in_turn(min(effort.pairs, 3), ways)
    title = f"{_FOUR} x {work.env}, {work.total_timesteps} steps: drlnb train --gpus {_SLOTS}, command to exit"
    title += ", evaluation included"
    peers = f"{_FOUR} Stable-Baselines3 processes, start to exit, evaluation included"
    better = [min(pair) for pair in zip(took["at once"], took["by two"], strict=True)]
    for name, words, base, bar in (
        ("four", f"the better of both below: {peers}", better, Bar("ratio", 1 / 1.3)),
        ("four-at-once", f"{peers}, all at once", took["at once"], None),
        ("four-by-two", f"{peers}, two at a time", took["by two"], None),
    ):
        yield Row(name, title, against=words, bar=bar, **pair_up(took["mine"], base))


def _processes(works: Sequence[Work], most: int) -> float:
    """Return the seconds that Stable-Baselines3's processes take, at most `most` at a time."""
    began = time.monotonic()
    run_peer(works, most)
    return time.monotonic() - began


def _whole_system(works: Sequence[Work]) -> float:
    """Return the seconds that one ``drlnb train`` takes for all."""
    work = works[0]
    hyper = [f"{name}={str(value).lower()}" for name, value in work.settings.items()]
    words = [work.env, "--seeds", f"0-{len(works) - 1}", "--gpus", str(_SLOTS), "--n-envs", str(work.n_envs)]
    began = time.monotonic()
    with drlnb_train([*words, "--total-timesteps", str(work.total_timesteps), "--hyper", *hyper]) as (process, _, _):
        process.wait(_LONGEST_S)
        return time.monotonic() - began

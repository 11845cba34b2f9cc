"""The rows of ``drlnb bench rl``: speed, returns and time split of single trainings, and four trainings at once."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from drlnb.bench.peers import WORKS, Work, answer, permutation_p, require_peer, run_own, run_peer, start
from drlnb.bench.report import Bar, Row, pair_up
from drlnb.bench.rl import Effort
from drlnb.bench.stage import virtual_devices
from drlnb.bench.training import end_family
from drlnb.records.errors import TrainingFailed

__all__ = ["acrobot", "cartpole", "four", "pendulum"]

_PEER = "Stable-Baselines3, same settings and seed, one process and one thread"
#: Trainings of ``four``, slots they share, and Stable-Baselines3 processes that run at once in its second baseline.
_FOUR, _SLOTS, _TWO = 4, 2, 2
#: Episodes after which ``drlnb train`` tells a task's evaluation; its peers play as many.
_CLI_EPISODES = 20
_LONGEST_S = 900.0


def cartpole(effort: Effort) -> tuple[Row, ...]:
    """Measure CartPole under the zoo's settings; this row binds."""
    return _single("cartpole", effort, Bar("ratio", 1 / 2))


def acrobot(effort: Effort) -> tuple[Row, ...]:
    """Measure Acrobot, with normalisation."""
    return _single("acrobot", effort, None)


def pendulum(effort: Effort) -> tuple[Row, ...]:
    """Measure Pendulum, a continuous task."""
    return _single("pendulum", effort, None)


def _single(name: str, effort: Effort, bar: Bar | None) -> tuple[Row, ...]:
    require_peer()
    base = WORKS[name]
    work = base if effort.steps is None else replace(base, total_timesteps=effort.steps)
    mine, theirs = [], []
    for n in range(effort.pairs):
        one = replace(work, seed=effort.seed + n)
        mine.append(run_own(one))
        theirs.append(run_peer(one))
    what = f"{work.env}, {work.total_timesteps} steps"

    def each(rows: Sequence[dict[str, float]], key: str) -> list[list[float]]:
        return [[row[key] / row["n_timesteps"] * 1e6] for row in rows]

    def row(suffix: str, words: str, key: str, of: Bar | None) -> Row:
        pairs = pair_up(each(mine, key), each(theirs, key))
        return Row(id=f"{name}{suffix}", what=f"{what}: {words}", unit="us/step", against=_PEER, bar=of, **pairs)

    returns = [[one["mean_reward"] for one in rows] for rows in (mine, theirs)]
    return (
        row("", "whole training, time per environment step", "seconds", bar),
        row("-collect", "of that, collecting", "collect_s", None),
        row("-update", "of that, updating", "update_s", None),
        Row(
            id=f"{name}-return",
            what=f"{what}: mean return of {work.n_eval_episodes} deterministic episodes after it",
            unit="reward",
            against=_PEER,
            samples=tuple(returns[0]),
            baseline_samples=tuple(returns[1]),
        ),
        Row(
            id=f"{name}-return-unlike",
            what=f"{what}: 1 - p of an exact permutation test, two-sided, that the mean returns over seeds differ",
            unit="(1 - p)",
            samples=(1.0 - permutation_p(*returns),),
            bar=Bar("value", 0.95),
        ),
    )


def four(effort: Effort) -> tuple[Row, ...]:
    """Measure four CartPole trainings through the whole system, against four ordinary processes."""
    require_peer()
    base = WORKS["cartpole"]
    steps = effort.steps or base.total_timesteps
    works = [replace(base, total_timesteps=steps, seed=s, n_eval_episodes=_CLI_EPISODES) for s in range(_FOUR)]
    mine, at_once, by_two = [], [], []
    for _ in range(min(effort.pairs, 3)):
        mine.append([_whole_system(works)])
        at_once.append([_processes(works, _FOUR)])
        by_two.append([_processes(works, _TWO)])
    better = [[min(a[0], b[0])] for a, b in zip(at_once, by_two, strict=True)]
    what = f"{_FOUR} x {base.env}, {steps} steps: drlnb train --gpus {_SLOTS}, command to exit, evaluation included"
    peers = f"{_FOUR} Stable-Baselines3 processes, start to exit, evaluation included"
    return (
        Row(id="four", what=what, against=f"the better of both below: {peers}", bar=Bar("ratio", 1 / 1.3),
            **pair_up(mine, better)),
        Row(id="four-at-once", what=what, against=f"{peers}, all at once", **pair_up(mine, at_once)),
        Row(id="four-by-two", what=what, against=f"{peers}, two at a time", **pair_up(mine, by_two)),
    )  # fmt: skip


def _processes(works: Iterable[Work], most: int) -> float:
    """Return the seconds that Stable-Baselines3's processes take, at most `most` at a time."""
    waiting: list[Work] = list(works)
    running: list[subprocess.Popen[bytes]] = []
    began = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                running.append(start("sb3_child", waiting.pop(0)))
            ended = next((process for process in running if process.poll() is not None), None)
            if ended is None:
                time.sleep(0.01)
                continue
            running.remove(ended)
            answer(ended)
        return time.monotonic() - began
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _whole_system(works: Sequence[Work]) -> float:
    """Return the seconds that one ``drlnb train`` takes for all."""
    work = works[0]
    hyper = [f"{name}={str(value).lower()}" for name, value in work.settings.items()]
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        words = ["train", work.env, "--seeds", f"0-{len(works) - 1}", "--gpus", str(_SLOTS)]
        words += ["--n-envs", str(work.n_envs), "--total-timesteps", str(work.total_timesteps)]
        words += ["--out", str(Path(folder) / "run"), "--hyper", *hyper]
        log = Path(folder) / "log"
        with virtual_devices(), log.open("wb") as file:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "drlnb.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            process.wait(_LONGEST_S)
            took_s = time.monotonic() - began
        finally:
            end_family(process)
        if process.returncode:
            raise TrainingFailed(f"drlnb train exited with {process.returncode}: {log.read_text('utf-8')[-300:]}")
        return took_s

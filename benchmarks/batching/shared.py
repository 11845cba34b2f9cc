"""Measure steps of `fleet.fit` that two slots share, in real processes and emulated time.

Members take the time that a trace of speeds says, whatever the machine does beside: what is measured is shares,
messages and steps, not how two processes fight for two cores.
"""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import safetensors.torch
import torch

from benchmarks.batching import work
from benchmarks.batching.emulated import Emulated
from benchmarks.efforts import BatchingLive
from benchmarks.frame.journals import round_stream
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import Arguments, Stage, open_stage, parameters
from drlnb.fleet.training import Training
from drlnb.records.columns import batching
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.round import ComputeGradient, ExecutorDied, LeaseLost
from drlnb.rl.networks.same_bits import one_thread
from drlnb.sim.batching.play import simulate_batching
from drlnb.sim.batching.traces import Contention

__all__ = ["Split", "fit_killed", "fit_simulated", "fit_unequal", "furthest", "made_again", "reached_s", "splits_of"]

#: Samples per second of the two members: the second one is four times as slow.
_SPEEDS_HZ = (2500.0, 625.0)
#: M5: most seconds to a loss / of `equal`, of which .4 is all there is; largest difference of a parameter.
_OF_EQUAL, _SAME = 0.6, 1e-6
#: M8: most a median split may differ from the simulator's, as a share of it.
_OFF = 0.10
#: M8: splits of the trace; each has its noise.
_N_SPLITS = 60
#: M11: steps; shares that have been computed when a member is killed; largest difference of a parameter.
_KILL_STEPS, _KILL_SHARES, _KILL_SAME = 20, 12, 1e-9
#: Seconds after a share at which its slot computes the next one.
_MIDST_S = 0.05
_LR, _LONGEST_S = 0.05, 300.0


class Split(NamedTuple):
    """One step that was shared."""

    #: Seconds from the orders of its shares to its last gradient, and when its step was made.
    duration_s: float
    made_t: float
    loss: float


class _Shared(NamedTuple):
    """What one training came to."""

    began_t: float
    splits: tuple[Split, ...]
    whole_s: float
    #: Leases that it lost, and steps that were made once more.
    n_lost: int
    n_again: int
    #: Its final parameters, as the file holds them.
    parameters: bytes


def splits_of(journal: Journal) -> tuple[float, tuple[Split, ...]]:
    """Return when the first split of a training was planned, in seconds, and all that were made, in their order.

    A step's loss is the mean of its shares', weighted by what they were divided by.
    """
    stream = round_stream(journal)
    shares: dict[int, dict[str, batching.ShareComputed]] = {}
    for share in stream.of(batching.ShareComputed):
        shares.setdefault(share.split, {})[share.slot] = share
    closed = {each.split: each.duration_s for each in stream.of(batching.SplitClosed)}
    made = []
    for t, applied in stream.timed(batching.GradientsApplied):
        if not applied.split:
            continue  # nothing was made
        of_split = shares[applied.split].values()
        divisor = sum(share.denominator for share in of_split)
        loss = sum(share.loss * share.denominator for share in of_split) / divisor
        made.append(Split(duration_s=closed[applied.split], made_t=t, loss=loss))
    (began_t, _), *_ = stream.timed(batching.SplitPlanned)
    return began_t, tuple(made)


def made_again(journal: Journal) -> int:
    """Return how many shared steps of a training were of no use: made once more, or their round by one slot alone."""
    stream = round_stream(journal)
    orders = {order.split: order for order in stream.of(batching.ApplyGradients)}
    made = [orders[applied.split] for applied in stream.of(batching.GradientsApplied) if applied.split]
    alone = {order.round for order in stream.of(ComputeGradient)}
    return len(made) - len({order.step for order in made if order.round not in alone})


def reached_s(began_t: float, splits: Sequence[Split], least: float) -> float:
    """Return the seconds from the first split until the mean loss of an epoch was at most `least`.

    Raises
    ------
    TrainingFailed
        If it never was.
    """
    n = work.N_SAMPLES // work.BATCH
    for epoch in (splits[start : start + n] for start in range(0, len(splits), n)):
        if sum(split.loss for split in epoch) / n <= least:
            return epoch[-1].made_t - began_t
    raise TrainingFailed(f"no epoch's mean loss was {least:.4g} or less")


def furthest(ours: bytes, theirs: Mapping[str, torch.Tensor]) -> float:
    """Return the largest difference between a module's parameters and those that it is to have."""
    loaded = safetensors.torch.load(ours)
    return max(float((loaded[f"body.{name}"] - value).abs().max()) for name, value in theirs.items())


def _begin(
    stage: Stage, name: str, speeds_hz: Sequence[Sequence[float]], n_steps: int, more: Arguments | None = None
) -> Training:
    body, data = work.small()
    given: Arguments = {"optimizer_kwargs": {"lr": _LR}, "batch_size": work.BATCH, "n_learners": 2, **(more or {})}
    given["n_epochs"] = n_steps * work.BATCH // work.N_SAMPLES
    module = Emulated(body, speeds_hz, name)
    return stage.fleet.fit(module, data, work.loss, torch.optim.SGD, out=stage.folder / name, **given)


def _ended(run: Training, began: float) -> _Shared:
    """Wait for a training's end; return what it came to."""
    task = run.wait(timeout_s=_LONGEST_S)["fit"]
    whole_s = time.monotonic() - began
    if task.state != "done":
        raise TrainingFailed(f"{run.out.name} is {task.state}: {task.failure}")
    journal = Journal.read(run.out)
    began_t, splits = splits_of(journal)
    n_lost = len(round_stream(journal).of(LeaseLost, ExecutorDied))
    made = parameters(run.out, "fit")
    n_again = made_again(journal)
    return _Shared(began_t, splits, whole_s, n_lost=n_lost, n_again=n_again, parameters=made)


def _plain(n_steps: int) -> tuple[Mapping[str, torch.Tensor], list[float]]:
    """Return the parameters that a plain loop makes, and the mean losses of its epochs."""
    module, data = work.small()
    losses: list[float] = []
    with one_thread():
        work.plain_loop(module, data, n_steps, lambda loss: losses.append(float(loss)), torch.optim.SGD, _LR)
    n = work.N_SAMPLES // work.BATCH
    return module.state_dict(), [sum(losses[start : start + n]) / n for start in range(0, len(losses), n)]


# ------------------------------------------------------------------ M5
def fit_unequal(effort: BatchingLive) -> Iterator[Row]:
    """Train with two members, one of a quarter of the speed, by the default planner and by `equal`, in turn (M5)."""
    n_steps = _whole_epochs(effort.steps)
    wanted, losses = _plain(n_steps)
    least = losses[-1] * (1 + 1e-6)
    with open_stage(slots=2) as stage:
        turn = itertools.count()

        def way(planner: str) -> Callable[[], _Shared]:
            def once() -> _Shared:
                began = time.monotonic()
                planners: Arguments = {"planners": {"batching": planner}}
                return _ended(_begin(stage, f"{planner}-{next(turn)}", [_SPEEDS_HZ], n_steps, planners), began)

            return once

        found = in_turn(effort.repeats, {"jump-reset": way("jump-reset"), "equal": way("equal")})
    yield from unequal_rows(found, wanted, least)


def unequal_rows(
    found: Mapping[str, Sequence[_Shared]], wanted: Mapping[str, torch.Tensor], least: float
) -> Iterator[Row]:
    """Return M5's figures."""
    mine, base = (
        [reached_s(each.began_t, each.splits, least) for each in found[way]] for way in ("jump-reset", "equal")
    )
    title = (
        f"seconds to a loss, fit on two members of {_SPEEDS_HZ[0]:.0f} and {_SPEEDS_HZ[1]:.0f} samples/s: jump-reset"
    )
    bar = Bar("ratio", _OF_EQUAL)
    yield Row("m5-loss", title, against="equal", bar=bar, origin="emulated", **pair_up(mine, base))
    off = max(furthest(each.parameters, wanted) for ways in found.values() for each in ways)
    title = f"largest difference of a final parameter to a plain loop's, {sum(map(len, found.values()))} trainings"
    yield Row("m5-same", title, [off], "", bar=Bar("value", _SAME), origin="emulated")


def _whole_epochs(n_steps: int) -> int:
    n = work.N_SAMPLES // work.BATCH
    return -(-n_steps // n) * n


# ------------------------------------------------------------------ M8
def fit_simulated(effort: BatchingLive) -> Iterator[Row]:
    """Train on two members whose speeds follow a trace, and play the same trace in the simulator (M8)."""
    trace = Contention(family="static", speeds=_SPEEDS_HZ, n_splits=_whole_epochs(_N_SPLITS))
    live: list[_Shared] = []
    with open_stage(slots=2) as stage:
        for number in range(effort.repeats):
            began, speeds_hz = time.monotonic(), trace.speeds_hz.tolist()
            live.append(_ended(_begin(stage, f"trace-{number}", speeds_hz, trace.n_splits), began))
    yield from simulated_rows(live, trace)


def simulated_rows(live: Sequence[_Shared], trace: Contention) -> Iterator[Row]:
    """Return M8's figures: a split from its shares' orders to the step that it made."""
    sim = simulate_batching(trace, "jump-reset")
    wholes = [[b.made_t - a.made_t for a, b in itertools.pairwise(each.splits)] for each in live]
    medians, means = [statistics.median(each) for each in wholes], [statistics.fmean(each) for each in wholes]
    words = f"{trace.n_splits} splits of two members that follow a trace"
    off = [abs(each / sim.median_s - 1.0) for each in medians]
    title, bar = f"difference of the median split to the simulated one, {words}", Bar("value", _OFF)
    yield Row("m8-off", title, off, "", bar=bar, origin="emulated")
    against = "the simulator on the same trace"
    for name, mine, theirs in (("median", medians, sim.median_s), ("mean", means, sim.split_s)):
        yield Row(
            f"m8-{name}",
            f"{name} split, {words}",
            against=against,
            origin="emulated",
            **pair_up(mine, [theirs] * len(mine)),
        )


# ------------------------------------------------------------------ M11
def fit_killed(effort: BatchingLive) -> Iterator[Row]:
    """Train with a member that is killed in the midst of a step, and without, in turn (M11)."""
    n_steps = _whole_epochs(_KILL_STEPS)
    wanted, _ = _plain(n_steps)
    with open_stage(slots=2) as stage:
        turn = itertools.count()

        def way(kill: Callable[[Path], None]) -> Callable[[], _Shared]:
            def once() -> _Shared:
                began, name = time.monotonic(), f"kill-{next(turn)}"
                run = _begin(stage, name, [_SPEEDS_HZ], n_steps)
                kill(stage.folder / name)
                return _ended(run, began)

            return once

        found = in_turn(effort.repeats, {"killed": way(_kill_a_member), "spared": way(lambda out: None)})
    yield from killed_rows(found, wanted, n_steps)


def killed_rows(
    found: Mapping[str, Sequence[_Shared]], wanted: Mapping[str, torch.Tensor], n_steps: int
) -> Iterator[Row]:
    """Return M11's figures.

    Raises
    ------
    TrainingFailed
        If a member was to be killed, and no lease was lost.
    """
    if not all(each.n_lost for each in found["killed"]):
        raise TrainingFailed("a member was killed, and its training lost no lease: it was over already")
    title = f"seconds from the call to the end of {n_steps} steps, a member killed in the midst of one"
    mine, base = ([each.whole_s for each in found[name]] for name in ("killed", "spared"))
    yield Row("m11-whole", title, against="nobody killed", origin="emulated", **pair_up(mine, base))
    title = f"steps made again of {n_steps}, beside the one that was under way, a member killed"
    yield Row("m11-again", title, [float(each.n_again) for each in found["killed"]], "", origin="emulated")
    off = max(furthest(each.parameters, wanted) for each in found["killed"])
    title = f"largest difference of a parameter to a plain loop's after {n_steps} steps (float64), a member killed"
    yield Row("m11-same", title, [off], "", bar=Bar("value", _KILL_SAME), origin="emulated")


def _kill_a_member(out: Path) -> None:
    """Kill the executor of the second slot once some shares have been computed, while it computes the next one."""
    deadline = time.monotonic() + _LONGEST_S
    while _n_shares(out) < _KILL_SHARES:
        if time.monotonic() > deadline:
            raise TrainingFailed(f"{out.name} has not computed {_KILL_SHARES} shares within {_LONGEST_S:.0f} s")
        time.sleep(0.01)
    time.sleep(_MIDST_S)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline()).split()
            if words[:2] == ["drlnb", "executor"] and words[2].endswith("cpu1"):
                process.kill()


def _n_shares(out: Path) -> int:
    """Return how many shares a training has computed so far."""
    streams = Journal.read(out).streams.values() if any(out.glob("journal/task-*.jsonl")) else ()
    return sum(len(stream.of(batching.ShareComputed)) for stream in streams)

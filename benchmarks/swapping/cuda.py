"""Measure on a CUDA device what batches fit under each way to save memory, and how fast steps are; half an hour in all.

Every way and network has a process of its own, whose memory is capped; what takes longer than the rest of its phase is
stopped.  Networks come in an order in which a run that is cut off has still said something.  Whether gradients are
plain's there is a question of ``pytest -m gpu``, which comes first.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.efforts import Swapping
from benchmarks.frame.rows import Bar, Row
from benchmarks.swapping.ways import WAYS, Way, in_child, made, offloaded, samples
from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.capacity import largest
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.trace import GIB, analytic
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.sim.swapping.nets import net_trace

__all__ = ["batches", "bracketed", "compared", "steps", "tried"]

#: What a process may reserve: 11 GiB less a context.
_CAP_BYTES = int(10.4 * GIB)
#: Networks in their order, and least multiples of plain's largest batch; a policy of reinforcement learning has no bar.
_LARGEST = {"resnet50_32": 5.0, "inception_v3_32": 6.0, "vgg16_224": 2.2, "alexnet_224": 1.7, "impala_x4": 1.0}
#: Multiple -> network -> least speed relative to plain at its largest batch.
_SPEED = {
    1.0: {},
    1.4: dict.fromkeys([*_LARGEST][:3], 0.95),
    2.0: {"resnet50_32": 0.75, "inception_v3_32": 0.9, "vgg16_224": 0.75},
}
#: Most seconds of a step relative to other ways; ``best`` is the fastest of them.
_RIVALS = {"save_on_cpu": 0.5, "offload": 0.75, "checkpoint": 0.97, "best": 1.02}
#: How much larger than under another planner a batch is at four fifths of plain's speed.
_LARGER, _SPEED_FRAC = {"vdnn_all": 1.2, "capuchin": 1.05}, 0.8
#: Steps until a plan is followed, and the first one of it; for auto also its trials.
_BEFORE = dict.fromkeys(("vdnn_all", "capuchin"), FIRST_STEPS + 1) | {"auto": FIRST_STEPS + 14}
#: Share of a batch up to which the largest one is found; seconds of a phase.
_PART, _PHASE_S = 0.02, 480.0


def bracketed(fits: Callable[[int], bool], guess: int) -> int:
    """Return the largest batch that fits to one part in fifty, by bisection from a guess; 0 if not even one does.

    Examples
    --------
    >>> bracketed(lambda n: n <= 130, 100)
    130
    """
    low, high, n = 0, 0, max(1, guess)
    while n and not (low and high):
        if fits(n):
            low, n = n, max(n + 1, n * 5 // 4)
        else:
            high, n = n, n * 4 // 5
    while high - low > max(1, int(_PART * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class _Phase:
    """Asks children as long as there is time."""

    def __init__(self, effort: Swapping) -> None:
        if effort.device != "cuda":
            raise ValueError("these rows need --device cuda")
        self._mode, self._until_s = effort.mode, time.monotonic() + _PHASE_S
        #: Why the last one did not answer.
        self.failed: dict[str, Any] = {}

    def ask(self, function: Callable[..., Any], net: str, way: str, *given: object) -> Any:
        """Return a child's answer, or None."""
        left_s = self._until_s - time.monotonic()
        self.failed = {"not_measured": "the phase is over", "skipped": True} if left_s < 1.0 else {}
        try:
            return None if self.failed else in_child(left_s, function, net, way, self._mode, *given)
        except RuntimeError as error:
            self.failed = {"not_measured": f"{way}: {error}"}
        return None


def tried(net: str, way: str, mode: str, n: int, n_steps: int, device: str = "cuda") -> tuple[list[float], Any]:
    """Return the seconds of steps, and by which shares they differ from what is predicted, None where nothing is.

    There are none if the memory does not suffice, or only by emptying the allocator's cache in each step.
    """
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode == "tf32"
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        torch.cuda.set_per_process_memory_fraction(_CAP_BYTES / torch.cuda.get_device_properties(0).total_memory)
    try:
        here, x = Way(way, made(net, device), _CAP_BYTES), samples(net, n, device)
        here.steps(x, _BEFORE.get(way, 1))
        before = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        took = here.steps(x, n_steps)
        retried = torch.cuda.memory_stats().get("num_alloc_retries", 0) - before >= n_steps
        return [] if retried else took, here.errors(took) if way in _BEFORE else None
    except torch.OutOfMemoryError:
        return [], None
    finally:
        torch.cuda.empty_cache()


def largest_batch(net: str, way: str, mode: str, guess: int, least: float) -> tuple[int, float]:
    """Return the largest batch of a way at a speed, and its samples per second."""
    speeds: dict[int, float] = {}

    def fits(n: int) -> bool:
        took = tried(net, way, mode, n, 2)[0]
        speeds[n] = n / min(took) if took else 0.0
        return speeds[n] > least

    n = bracketed(fits, guess)
    return n, speeds.get(n, 0.0)


def timed(net: str, way: str, mode: str, numbers: Sequence[int]) -> list[tuple[list[float], Any]]:
    """Return what ten steps of each batch come to."""
    return [tried(net, way, mode, n, 10) for n in numbers]


def guessed(net: str, planner: str) -> int:
    """Return the largest batch by the cost model."""

    def fits(n: int) -> bool:
        profile = analytic(net_trace(net), "2080ti", n)
        plan = SWAPPING.build(planner).plan(SwapView(profile=profile, n_samples=n, memory_budget_bytes=_CAP_BYTES))
        return predict(profile, plan, n, _CAP_BYTES).fits

    return largest(fits)


def batches(effort: Swapping) -> Iterator[Row]:
    """Find the largest batch of every way, and of planners that at four fifths of plain's speed (G1, G4)."""
    phase = _Phase(effort)
    for net, least in _LARGEST.items():
        plain: Any = None
        for way in WAYS:
            guess = guessed(net, "none" if way == "plain" else "all")
            answer = phase.ask(largest_batch, net, way, guess, 0.0)
            plain = answer if way == "plain" else plain
            title = f"largest batch of {net} by {offloaded(torch.device('cpu'))[0] if way == 'offload' else way}"
            bar = Bar("ratio", at_least=least) if way == "auto" else None
            row = partial(Row, f"batch-{net}-{way}", title, _count(answer), "samples", "plain", _count(plain), bar=bar)
            yield row(**phase.failed)
        fast = dict[str, Any]()
        for way in ("auto", *_LARGER) if plain else ():
            fast[way] = phase.ask(largest_batch, net, way, plain[0], _SPEED_FRAC * plain[1])
            if ratio := _LARGER.get(way):
                title, bar = f"batch of {net} by auto, at {_SPEED_FRAC} of plain's speed", Bar("ratio", at_least=ratio)
                mine, other = _count(fast["auto"]), _count(fast[way])
                yield Row(f"fast-{net}-{way}", title, mine, "samples", way, other, bar=bar, **phase.failed)


def _count(answer: Any) -> tuple[float, ...]:
    return (float(answer[0]),) if answer else ()


def steps(effort: Swapping) -> Iterator[Row]:
    """Time steps of every way at multiples of plain's largest batch (G2, G3, G5, G6)."""
    phase, errors = _Phase(effort), list[tuple[float, float]]()
    for net in _LARGEST:
        plain = phase.ask(largest_batch, net, "plain", guessed(net, "none"), 0.0)
        if not plain:
            yield Row(f"speed-{net}", f"steps of {net}", **phase.failed)
            continue
        numbers = [int(multiple * plain[0]) for multiple in _SPEED]
        answers = dict[str, Any]()
        for way in WAYS:
            if answer := phase.ask(timed, net, way, numbers):
                answers[way] = answer
            else:
                yield Row(f"speed-{net}-{way}", f"samples per second of {net} by {way}", **phase.failed)
        errors += [each for answer in answers.values() for _, each in answer if each]
        for i, (multiple, n) in enumerate(zip(_SPEED, numbers, strict=True)):
            yield from compared(net, multiple, n, {way: answer[i][0] for way, answer in answers.items()}, plain[1])
    for name, most, off in zip(("step", "peak"), (0.10, 0.05), zip(*errors, strict=True), strict=False):
        yield Row(
            f"predicted-{name}",
            f"{name}: difference from the prediction",
            [*map(abs, off)],
            "of it",
            bar=Bar("value", most),
        )


def compared(net: str, multiple: float, n: int, seconds: Mapping[str, Sequence[float]], speed: float) -> Iterator[Row]:
    """Yield the rows of one network and batch from the seconds of each way's steps; none: it does not fit.

    Parameters
    ----------
    net, multiple, n
        Network, multiple of plain's largest batch, and samples.
    seconds
        Way -> seconds of its steps.
    speed
        Samples per second of plain at its largest batch.
    """
    for way, took in seconds.items():
        least = _SPEED[multiple].get(net) if way == "auto" else None
        bar = None if least is None else Bar("ratio", at_least=least)
        title, reason = f"samples per second of {net} x{multiple} by {way}", "" if took else "it does not fit"
        yield Row(
            f"speed-{net}-x{multiple}-{way}",
            title,
            [n / each for each in took],
            "/s",
            "plain, largest batch",
            (speed,),
            bar=bar,
            not_measured=reason,
            skipped=True,
        )
    if "auto" not in seconds:  # nobody knows
        return
    others = {way: took for way, took in seconds.items() if took and way != "auto"}
    limits = _RIVALS | ({"plain": 1.01} if multiple == 1.0 else {})
    others |= {"best": min(others.values(), key=median)} if others else {}
    for way in [way for way in limits if way in others]:
        title, reason = f"step of {net} x{multiple} by auto", "" if seconds["auto"] else "it does not fit"
        yield Row(
            f"step-{net}-x{multiple}-{way}",
            title,
            seconds["auto"],
            against=f"by {way}",
            baseline_samples=others[way],
            bar=Bar("ratio", limits[way]),
            not_measured=reason,
        )

"""Measure on a CPU what swap plans change (nothing but bytes and seconds), and whether it is what was predicted."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.efforts import Swapping
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.swapping.ways import Way, in_child, made, samples
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fix_malloc, fixed_bytes
from drlnb.runtime.swapping.tiers.base import Meter
from drlnb.runtime.swapping.tiers.file import FileTier
from drlnb.sim.swapping.nets import net_trace

__all__ = ["gradients", "hooks", "memory", "overlap", "predicted", "squeezed"]

#: Samples of a step of each network whose gradients are compared; bytes that move are counted in the first four.
_BATCHES = {"alexnet_32": 4, "vgg16_bn_32": 2, "resnet50_32": 2, "inception_v3_32": 1,
            "impala": 2, "nature_cnn": 2, "transformer": 1}  # fmt: skip
_PLANNERS = ("all", "hybrid", "greedy:actions=derive", "greedy:actions=block")
#: Batches at which predictions are tested, and planners.
_PREDICTED = [("impala", 16), ("impala", 32), ("vgg16_bn_32", 8), ("vgg16_bn_32", 16), ("nature_cnn", 128)]
_PREDICTING = ("capuchin", "hybrid", "hybrid:actions=swap", "vdnn_all")
#: What squeezing leaves at most.
_LEFT = {"alexnet_224": 0.50, "vgg16_224": 0.65, "impala": 0.55}
#: Layers that save 16 MiB each and compute little; the plans that memory is compared under.
_LAYERS, _PLANS = 20, ("none", "hybrid:actions=swap")
#: From this share of a step on that copies take, they are to be hidden.
_COPIES_FRAC = 0.2


def _budget(name: str, n: int, share: float = 0.6) -> int:
    """Return the bytes of a step that may keep a share of what it saves."""
    return fixed_bytes(made(name)) + int(share * n * sum(row.bytes_per_sample for row in net_trace(name).rows))


def _state(net: nn.Module) -> list[Tensor]:
    return [each.detach().clone() for each in (*[p.grad for p in net.parameters()], *net.buffers())]


def gradients(effort: Swapping) -> Iterator[Row]:
    """Compare gradients and statistics with plain PyTorch's, bit by bit (C1)."""
    bar, against = Bar("value", at_most=0.0), "plain PyTorch, bit by bit"
    for name, n in _BATCHES.items():
        net, x, differing = made(name), samples(name, n), 0.0
        before = {key: each.clone() for key, each in net.state_dict().items()}
        Way("plain", net, 0).steps(x, 1)
        plain = _state(net)
        for planner in _PLANNERS:
            way = Way(planner, net, _budget(name, n, 0.3))
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # some plans do not fit
                way.steps(x, FIRST_STEPS)
                net.load_state_dict(before)
                way.steps(x, 1)
            differing += sum(not torch.equal(a, b) for a, b in zip(plain, _state(net), strict=True))
            way.swapper.close()
        title = f"gradients and statistics of {name} that differ, {len(_PLANNERS)} plans"
        yield Row(f"bits-{name}", title, (differing,), "tensors", against, bar=bar)


def _chain() -> tuple[nn.Module, Tensor]:
    layers = [each for _ in range(_LAYERS) for each in (nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.Tanh())]
    return nn.Sequential(*layers), torch.randn(32, 16, 64, 64)


def memory(effort: Swapping) -> Iterator[Row]:
    """Compare the anonymous memory of processes that swap with that of processes that do not (C3)."""
    kinds = {planner: partial(in_child, 300.0, step_memory, planner) for planner in _PLANS}
    plain, swapped = in_turn(effort.repeats, kinds).values()
    fell = [a - b for (a, _, _), (b, _, _) in zip(plain, swapped, strict=True)]
    title, pairs = (
        f"peak of anonymous memory, {_LAYERS} layers: falls by",
        pair_up(fell, [moved for _, moved, _ in swapped]),
    )
    yield Row("rss", title, unit="bytes", against="bytes swapped", bar=Bar("ratio", at_least=0.65), **pairs)
    title, off = "bytes counted at the peak: difference from the plan's", [off for _, _, off in swapped]
    yield Row("counted", title, off, "of it", bar=Bar("value", at_most=0.05))


def step_memory(planner: str) -> tuple[float, float, float]:
    """Return the peak of this process in a step that may keep a quarter, what moved, and the plan's error."""
    fix_malloc()
    net, x = _chain()
    way = Way(planner, net, fixed_bytes(net) + _LAYERS * x.nbytes // 2 if planner != "none" else 1 << 40)
    way.steps(x, FIRST_STEPS)
    net.zero_grad()
    peak, over, base = [0], threading.Event(), _anonymous_bytes()

    def look() -> None:
        while not over.wait(0.002):
            peak[0] = max(peak[0], _anonymous_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    way.steps(x, 1)
    over.set()
    looking.join()
    off = abs(way.errors([1.0])[1]) if planner != "none" else 0.0
    way.swapper.close()
    return float(peak[0] - base), float(way.step.swapped_bytes), off


def _anonymous_bytes() -> int:
    return int(Path("/proc/self/status").read_text("ascii").partition("RssAnon:")[2].split()[0]) << 10


def hooks(effort: Swapping) -> Iterator[Row]:
    """Compare steps that keep all with steps without hooks, and bytes moved with those of naive hooks (C4)."""
    net, x = made("inception_v3_32"), samples("inception_v3_32", 1)
    ways = {name: Way(name, net, 1 << 30) for name in ("none", "plain")}
    turns = [_relative_s(ways, x, turn % 2 == 1) for turn in range(1 + 12 * effort.repeats)][1:]
    ways["none"].swapper.close()
    title = "processor time of a step of inception_v3_32 whose plan keeps all, relative to one without hooks beside it"
    yield Row("hooks", title, turns, "of it", bar=Bar("value", at_most=1.03))
    for name, n in list(_BATCHES.items())[:4]:
        way, plain, x = Way("all", made(name), 1 << 30, min_bytes=0), Way("plain", made(name), 0), samples(name, n)
        own, naive = {each.data_ptr() for each in plain.net.parameters()}, list[int]()
        way.steps(x, 1)
        way.swapper.close()

        def pack(tensor: Tensor, own: set[int] = own, naive: list[int] = naive) -> Tensor:
            naive.append(0 if tensor.data_ptr() in own else tensor.nbytes)
            return tensor

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            plain.steps(x, 1)
        title, against = f"bytes of a step of {name} that are swapped", "hooks that know no storages"
        counts = [(float(way.step.swapped_bytes),), (float(sum(naive)),)]
        yield Row(f"moved-{name}", title, counts[0], "bytes", against, counts[1], bar=Bar("ratio", at_most=0.75))


def _relative_s(ways: Mapping[str, Way], x: Tensor, turned: bool) -> float:
    """Return the processor time of a step relative to a plain one; which of them comes first changes by turns."""
    took_s = dict[str, float]()
    for name in sorted(ways, reverse=turned):
        began_s = time.process_time()
        ways[name].steps(x, 1)
        took_s[name] = time.process_time() - began_s
    return took_s["none"] / took_s["plain"]


def predicted(effort: Swapping) -> Iterator[Row]:
    """Compare steps with what the cost model says of them (C5).

    Each turn records and plans anew.  What differs in the median turn is the model's; what differs once is the
    machine's, which others use while a profile is recorded, or while its plan is followed.
    """
    cases = [(*each, planner) for each in _PREDICTED for planner in _PREDICTING]
    turns = in_turn(2 * effort.repeats, {str(case): partial(_errors, *case) for case in cases}).values()
    for i, (name, most) in enumerate((("step", 0.15), ("peak", 0.05))):
        off = [abs(median(turn[i] for turn in case)) for case in turns]
        title, bar = f"{name}, difference from the prediction, by network, batch and planner", Bar("value", most)
        yield Row(f"predicted-{name}", title, off, "of it", bar=bar)
        yield Row(f"predicted-{name}-worst", f"the worst {name} of these", (max(off),), "of it", bar=bar)


def _errors(name: str, n: int, planner: str) -> tuple[float, float]:
    """Return by which shares steps differ from what is predicted, in seconds and in bytes."""
    way, x = Way(planner, made(name), _budget(name, n), min_bytes=0), samples(name, n)
    way.steps(x, FIRST_STEPS + 1)
    errors = way.errors(way.steps(x, 3))
    way.swapper.close()
    return errors


class _Inline:
    """Does at once what is submitted."""

    def submit(self, work: Callable[[object], object], box: object) -> "Future[object]":
        future: Future[object] = Future()
        future.set_result(work(box))
        return future

    def shutdown(self) -> None:
        """Nothing is under way."""


def _tier(tiers: list[FileTier], waits: bool, meter: Meter) -> FileTier:
    """Return a file tier and remember it; one that waits copies while the step stands still."""
    tiers.append(FileTier(meter))
    for thread in ("writer", "reader") if waits else ():
        getattr(tiers[-1], thread).shutdown()
        setattr(tiers[-1], thread, _Inline())
    return tiers[-1]


def overlap(effort: Swapping) -> Iterator[Row]:
    """Compare steps whose copies overlap the work with steps that wait for each copy (C6)."""
    (net, x), tiers = _chain(), list[FileTier]()
    ways = [Way("all", net, 1 << 30, tier=partial(_tier, tiers, waits), min_bytes=0) for waits in (False, True)]
    steps = {str(i): partial(way.steps, x, 1) for i, way in enumerate(ways)}
    in_turn(1, steps)
    pairs = pair_up(*in_turn(3 * effort.repeats, steps).values())
    copies_s = ways[1].step.swapped_bytes * (tiers[1].out.s_per_byte + tiers[1].back.s_per_byte)
    share = copies_s / min(pairs["baseline_samples"])
    yield Row("copies", f"share of a step of {_LAYERS} layers that waits for copies", (share,), "of it")
    bar = Bar("ratio", at_most=0.85) if share >= _COPIES_FRAC else None
    yield Row("overlap", "step whose copies overlap the work", against="waiting for each copy", bar=bar, **pairs)
    for way in ways:
        way.swapper.close()


def squeezed(effort: Swapping) -> Iterator[Row]:
    """Count the bytes that are left when all is squeezed that may be (C8)."""
    for name, most in _LEFT.items():
        title, bar = f"bytes that {name} saves per sample, squeezed", Bar("ratio", at_most=most)
        saved = [row.bytes_per_sample for row in net_trace(name).rows]
        left = sum(row.bytes_per_sample * row.squeeze_left_frac for row in net_trace(name).rows)
        yield Row(f"squeezed-{name}", title, (left,), "bytes", "whole", (sum(saved),), bar=bar, origin="counted")

"""Learn a swap plan on a part of the samples, save, and go on with all (the swapping patent, paragraphs 20, 45, 64)."""

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torch import Tensor

from benchmarks.efforts import Swapping
from benchmarks.frame.rows import Row, in_turn, pair_up
from benchmarks.swapping.ways import Way, made, samples
from drlnb.planning.swapping.machine import TRIAL_STEPS
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fixed_bytes
from drlnb.sim.swapping.nets import net_trace

__all__ = ["subset"]

#: The network, samples of a batch, batches of the set, and how many of them are the part: four fifths.
_NET, _SAMPLES, _BATCHES, _PART = "nature_cnn", 16, 10, 8
#: Trials of a course, and steps at its end that are compared.
_TRIALS, _LAST = 25, 12
#: Of what a step saves, so much may stay.
_SHARE = 0.6


def subset(effort: Swapping) -> Iterator[Row]:
    """Compare a course of trials, of which four fifths are on four fifths of the set, with one on all of it."""
    batches = samples(_NET, _BATCHES * _SAMPLES).split(_SAMPLES)
    ways = {"part": partial(_course, batches, _PART), "all": partial(_course, batches, _BATCHES)}
    part, whole = in_turn(effort.repeats, ways).values()
    what = f"{_TRIALS} trials of qtable, of which four fifths are on four fifths of the set"
    for i, (name, title) in enumerate((("course", what), ("step", f"step under the plan that is kept after {what}"))):
        pairs = pair_up([each[i] for each in part], [each[i] for each in whole])
        yield Row(f"subset-{name}", title, against="a course on all of it", **pairs)


def _course(batches: tuple[Tensor, ...], n_part: int) -> tuple[float, list[float]]:
    """Return the seconds of a course, and of each step after it; the plan goes from swapper to swapper by a file."""
    net, n_steps = made(_NET), _TRIALS * (1 + TRIAL_STEPS)
    saved = _SAMPLES * sum(row.bytes_per_sample for row in net_trace(_NET).rows)
    new = partial(Way, f"qtable:n_trials={_TRIALS}", net, fixed_bytes(net) + int(_SHARE * saved), min_bytes=0)
    began_s, first, n_first = time.perf_counter(), new(), FIRST_STEPS + n_steps * 4 // 5
    for i in range(n_first):
        first.steps(batches[i % n_part], 1)
    then = new()
    with tempfile.TemporaryDirectory() as folder:
        first.swapper.save(Path(folder) / "plan.json")
        then.swapper.load(Path(folder) / "plan.json")
    for i in range(n_steps - n_steps * 4 // 5):
        then.steps(batches[i % len(batches)], 1)
    course_s = time.perf_counter() - began_s
    last = [then.steps(batches[i % len(batches)], 1)[0] for i in range(_LAST)]
    first.swapper.close()
    then.swapper.close()
    return course_s, last

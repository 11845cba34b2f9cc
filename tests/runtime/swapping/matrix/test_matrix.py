"""C1 on what is out there: ordinary training steps, every planner, two budgets, against plain PyTorch bit by bit."""

import itertools
import warnings
from contextlib import nullcontext

import pytest

from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fixed_bytes
from tests.runtime.swapping.matrix import blocks, graphs, loops, modules, recurrent  # noqa: F401 - they fill the table
from tests.runtime.swapping.matrix.steps import STEPS, after, seeded
from tests.runtime.swapping.nets import differing
from tests.runtime.swapping.rig import swapper

PLANNERS = [
    *["none", "all", "vdnn_conv", "vdnn_all", "capuchin", "greedy", "hybrid", "auto"],
    *["qtable", *(f"greedy:actions={each}" for each in ("squeeze", "derive", "block"))],
]
#: Share of what a step saves that a budget leaves room for: plain is half as large again; next to nothing.
ROOMS = {"two thirds": 2 / 3, "tiny": 0.02}
#: Planners of the quick matrix, by turns.
QUICK = ["auto", "greedy:actions=block", "hybrid"]
#: What a compiler needs half a minute for.
LONG = {"compiled_function"}
N_STEPS = FIRST_STEPS + 4


def run(name, around=None):
    """Make the steps, and return what each of them left behind; `around` gives a context for each, or None."""
    made = seeded(STEPS[name])
    with around(made.net) if around else nullcontext() as swap:
        return [after(made, _within(swap, made.step, i)) for i in range(N_STEPS)]


def _within(swap, step, i):
    with swap.step() if swap else nullcontext():
        return step(i)


def saved_bytes(name):
    """Return what a step keeps on the device without a planner, and what stays anyway."""
    made, peaks = seeded(STEPS[name]), []
    with swapper(made.net, planner="none") as swap:
        for i in range(3):
            with swap.step() as told:
                made.step(i)
            peaks.append(told.peak_bytes)
        return max(peaks), fixed_bytes(made.net)


def compare(name, planner, room):
    """Train under a budget and without one: no bit differs, and each warning comes once."""
    plain = run(name)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        peak, own = saved_bytes(name)
        budget = own + max(int(ROOMS[room] * (peak - own)), 1)
        swapped = run(name, lambda net: swapper(net, planner=planner, budget=budget))
    for i, (one, other) in enumerate(zip(plain, swapped, strict=True)):
        assert differing(one, other) == [], f"step {i}"
    said = [str(each.message) for each in seen if "swap" in str(each.message)]
    assert len(said) == len(set(said)), said


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "planner"), [*zip([name for name in STEPS if name not in LONG], itertools.cycle(QUICK), strict=False)]
)
def test_c1_each_step_once(name, planner):
    """Each step with one planner, but for what takes long."""
    compare(name, planner, "two thirds")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("name", STEPS)
def test_c1_any_step_under_any_planner(name, planner, room):
    """The whole matrix."""
    compare(name, planner, room)

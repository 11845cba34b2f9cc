"""A budget that can be kept is kept, whatever a module's forward pass looks like; one that is not is told of."""

import re
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from drlnb import swap
from drlnb.planning.registry import PlannerFailed
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapPlan
from drlnb.runtime.swapping.client import choose
from drlnb.runtime.swapping.client import swapper as client
from drlnb.runtime.swapping.memory import fixed_bytes
from tests.planning.swapping.swap_words import having
from tests.runtime.swapping.rig import swapper


class Functional(nn.Module):
    """Eight layers without a module of their own: one call saves all rows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(64))

    def forward(self, x):
        for _ in range(8):
            x = torch.tanh(x @ self.weight)
        return x


class Last(nn.Module):
    """Two layers of an LSTM, whose last output alone is read: a slice of a storage is saved."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(64, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


NETS = {"functional": (Functional, (2048, 64)), "lstm": (Last, (64, 16, 64))}


def trained(swapped, net, x, n_steps=1):
    steps = []
    for _ in range(n_steps):
        net.zero_grad()
        with swapped.step() as step:
            net(x).square().sum().backward()
        steps.append(step)
    return steps


def need_bytes(net, x):
    """Return the peak of a step that keeps all, and what stays anyway."""
    with swapper(net, planner="none") as watched:
        (step,) = trained(watched, net, x)
        return step.peak_bytes, watched._fixed_bytes()


def share(net, x, frac):
    """Return a budget that leaves room for a share of what a plain step saves."""
    peak_bytes, fixed_bytes = need_bytes(net, x)
    return fixed_bytes + int(frac * (peak_bytes - fixed_bytes))


@pytest.mark.parametrize("planner", ["auto", "hybrid", "greedy", "capuchin"])
@pytest.mark.parametrize("name", NETS)
def test_a_module_that_saves_many_rows_in_one_call_keeps_its_budget(name, planner):
    """Its rows are not all needed at once: a plan is predicted to fit, fits, and has the predicted peak."""
    make, shape = NETS[name]
    net, x = make(), torch.randn(shape)
    with swapper(net, planner=planner, budget=(budget := share(net, x, 0.7))) as swapped:
        *_, last = trained(swapped, net, x, 9)
        report = swapped.report()
    assert report.predicted.fits
    assert last.peak_bytes <= budget
    assert last.peak_bytes == pytest.approx(report.predicted.peak_bytes, rel=0.05)


# ------------------------------------------------------------------ a budget that is not kept
@pytest.mark.parametrize(
    ("planner", "why"),
    [
        ("auto", "the least that was found takes"),
        ("capuchin", "the least that was found takes"),
        ("all", "a step takes .* with everything swapped that can be"),
        ("none", "planner none keeps everything, which takes"),
    ],
)
def test_a_budget_that_is_not_kept_is_told_once(planner, why):
    """What was asked, what it takes, and what to do: one warning in fourteen steps, and the report says it, too."""
    net, x = Functional(), torch.randn(NETS["functional"][1])
    asked = fixed_bytes(net) + 40_000
    with swapper(net, planner=planner, budget=asked) as swapped, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert min(step.peak_bytes for step in trained(swapped, net, x, 14)) > asked
        text = str(swapped.report())
    (warning,) = told
    assert str(warning.message).startswith("swapping: the budget of 71.1 KiB is not kept: ")
    (said,) = (re.sub(r"[\d.]+ [KM]iB", "", line) for line in swapped.report().said)  # the first step may take more
    assert said == re.sub(r"[\d.]+ [KM]iB", "", str(warning.message).removeprefix("swapping: "))
    assert ", ABOVE the budget, step" in text
    assert swapped.report().said[0] in text
    assert re.search(why, text)


def test_the_least_that_was_found_is_what_steps_take():
    """In bytes, beside the budget; another budget is another cause, and one that is kept is not mentioned."""
    net, x = Functional(), torch.randn(NETS["functional"][1])
    with swapper(net, planner="auto", budget=fixed_bytes(net) + 40_000) as swapped:
        with pytest.warns(RuntimeWarning, match="is not kept"):
            *_, last = trained(swapped, net, x, 14)
        assert f"found takes {last.peak_bytes / 2**20:.1f} MiB; give it as much" in swapped.report().said[0]
        swapped.set_budget(last.peak_bytes)
        trained(swapped, net, x, 10)
        assert swapped.report().said == ()
        assert "ABOVE" not in str(swapped.report())


def test_a_plan_that_was_given_is_told_of():
    """The caller's own plan is followed, and its peak is said."""
    net, x = Functional(), torch.randn(NETS["functional"][1])
    with swapper(net, planner="none") as watched:
        profile = watched.profile(lambda _: net(x).sum().backward(), (len(x),))
    with swapper(net, budget=fixed_bytes(net) + 40_000) as swapped:
        swapped.apply(SwapPlan.keeping(profile))
        with pytest.warns(RuntimeWarning, match="not kept: the plan that was given takes 4.5 MiB"):
            trained(swapped, net, x, 3)


def test_nothing_is_held_back_under_a_budget():
    """A storage that is needed again sooner than a copy takes stays where memory is not counted, and nowhere else."""
    moved = {}
    for budget in (None, "1GiB"):
        net, x = Functional(), torch.randn(NETS["functional"][1])
        with swapper(net, planner="all", budget=budget) as swapped:
            swapped._tier.out.add(1, 1e3)  # copies are said to be slow
            moved[budget] = [step.swapped_bytes for step in trained(swapped, net, x, 2)]
    assert moved[None][1] == 0 < moved[None][0]
    assert moved["1GiB"][1] == moved["1GiB"][0] > 0


# ------------------------------------------------------------------ what a module is called with
@dataclass
class Batch:
    """An input as an object."""

    weight: torch.Tensor
    rows: torch.Tensor


class Taking(nn.Module):
    """Takes whatever holds rows of 64 numbers."""

    def __init__(self, rows):
        super().__init__()
        self.inner, self.rows = Functional(), rows

    def forward(self, *given, **named):
        return self.inner(self.rows(*given, **named))


ROWS = torch.randn(2048, 64)
CALLS = {
    "dict": (lambda x: x["obs"]["deep"][0], ({"obs": {"deep": [ROWS]}},), {}, 2048),
    "keyword": (lambda x: x, (), {"x": ROWS}, 2048),
    "none first": (lambda _, x: x, (None, ROWS), {}, 2048),
    "dataclass": (lambda x: x.rows, (Batch(torch.tensor(1.0), ROWS),), {}, 2048),
    "packed": (lambda x: x.data, (pack_sequence([ROWS[:1500], ROWS[1500:]]),), {}, 2),
}


def called(swapped, net, given, named, n_steps):
    for _ in range(n_steps):
        net.zero_grad()
        with swapped.step() as step:
            net(*given, **named).square().sum().backward()
    return step


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("frac", [0.7, 2.0])
def test_samples_are_seen_in_whatever_a_module_is_called_with(name, frac):
    """So the step is recorded and planned for; where all fits, nothing is swapped any more."""
    rows, given, named, n = CALLS[name]
    net = Taking(rows)
    with swapper(net, planner="none") as watched:
        need = called(watched, net, given, named, 1).peak_bytes
    with swapper(net, planner="auto", budget=int(frac * need)) as swapped:
        step = called(swapped, net, given, named, 9)
        assert step.n_samples == n
        assert step.peak_bytes <= frac * need
        assert swapped.report().profile is not None
        assert (step.swapped_bytes == 0) == (frac > 1.0)


def test_where_samples_cannot_be_seen_a_step_counts_as_one_and_that_is_told_once():
    """It is recorded and planned for all the same."""
    net = Taking(lambda: ROWS)
    with swapper(net, planner="none") as watched:
        need = called(watched, net, (), {}, 1).peak_bytes
    with swapper(net, planner="auto", budget=int(0.7 * need)) as swapped:
        with pytest.warns(RuntimeWarning, match="each step counts as one: give step") as told:
            step = called(swapped, net, (), {}, 9)
        assert len(told) == 1
        assert step.n_samples is None
        assert step.peak_bytes <= 0.7 * need
        assert swapped.report().predicted.peak_bytes == pytest.approx(step.peak_bytes, rel=0.05)


@pytest.mark.parametrize("planner", ["auto", "hybrid", "qtable"])
def test_where_nothing_can_be_moved_nothing_is(planner):
    """All that is saved is too small: steps are plain ones, under each planner, and no plan is an error."""
    net, x = nn.Linear(4, 4), torch.randn(8, 4)
    with swap.Swapper(net, planner=planner, budget="1MiB") as swapped:
        *_, last = trained(swapped, net, x, 20)
        profile = swapped.report().profile
    assert (last.swapped_bytes, last.plan_key, profile.rows) == (0, None, ())
    assert swap.solve(profile, n_samples=8, budget="1MiB", planner=planner).key is None


# ------------------------------------------------------------------ memory of the process
def test_malloc_is_fixed_where_memory_counts(monkeypatch):
    """On the CPU, with a budget: freed tensors leave the process. Without one nothing is changed."""
    fixed = []
    monkeypatch.setattr(client, "fix_malloc", lambda: fixed.append(True))
    with swapper(nn.Linear(4, 4), planner="none") as swapped:
        assert fixed == []
        swapped.set_budget("1MiB")
        assert fixed == [True]
    with swapper(nn.Linear(4, 4), budget="1MiB"):
        assert fixed == [True, True]


def test_the_tier_keeps_no_memory_beside_what_counts():
    """What came back and was dropped is gone: no buffer waits to be used again."""
    with swapper(net := Functional()) as swapped:
        trained(swapped, net, torch.randn(NETS["functional"][1]), 2)
        assert swapped._meter.n_bytes == 0
        held = [each for each in vars(swapped._tier).values() if isinstance(each, dict | list)]
    assert held == []


#: Twelve steps of six blocks of a convolution each, as on the page, between two words; the second child swaps.
_STEPS = """
import contextlib, torch
from drlnb import swap
torch.set_num_threads(1)
Seq, Conv, Norm = torch.nn.Sequential, torch.nn.Conv2d, torch.nn.BatchNorm2d
blocks = [Seq(Conv(16, 16, 3, padding=1), Norm(16), torch.nn.ReLU()) for _ in range(6)]
net = Seq(Conv(3, 16, 3, padding=1), *blocks, torch.nn.Flatten(), torch.nn.Linear(16 * 16 * 16, 10))
optimiser = torch.optim.SGD(net.parameters(), 0.01)
print("ready", flush=True)
input()
around = {around}
for _ in range(12):
    inputs, labels = torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,))
    with around():
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        optimiser.step()
        optimiser.zero_grad()
"""
_AROUND = {"plain": "contextlib.nullcontext", "swapped": "swap.Swapper(net, budget='9MiB').step"}


def anonymous_bytes(pid):
    return int(Path(f"/proc/{pid}/status").read_text("ascii").partition("RssAnon:")[2].split()[0]) << 10


def peak_rise(around):
    """Return by how much the anonymous memory of a fresh process rises at most during its steps."""
    code = _STEPS.format(around=around)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        assert child.stdout.readline() == "ready\n"
        base = peak = anonymous_bytes(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        while child.poll() is None:
            with suppress(IndexError):  # it has ended meanwhile
                peak = max(peak, anonymous_bytes(child.pid))
    assert child.returncode == 0
    return peak - base


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is read from /proc")
def test_the_pages_example_takes_less_memory_than_plain():
    """What the process maps, not what is counted: with all that swapping itself loads, in three turns."""
    turns = [{name: peak_rise(around) for name, around in _AROUND.items()} for _ in range(3)]
    assert max(turn["swapped"] for turn in turns) < min(turn["plain"] for turn in turns)


def test_a_search_that_fails_is_told_once_and_steps_go_on(monkeypatch):
    """What a simple rule has found goes on: a search is no reason to end a step by an error."""

    def failing(command):
        raise PlannerFailed("swapping planner hybrid raised ValueError: planted")

    monkeypatch.setattr(choose, "searched", failing)
    net, x = nn.Sequential(*[each for _ in range(24) for each in (nn.Linear(8, 8), nn.Tanh())]), torch.randn(4, 8)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with swapper(net, planner="hybrid", budget=fixed_bytes(net) + 2000) as swapped:
            for _ in range(6):
                with swapped.step() as step:
                    net(x).sum().backward()
            assert "planted" in str(swapped.report())
    assert len([each for each in seen if "planted" in str(each.message)]) == 1
    assert step.swapped_bytes > 0


def test_steps_above_the_budget_are_counted_and_warnings_point_at_the_users_line():
    """The first steps are recorded and may be above it; the report says how many were, until the budget is another."""
    net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]), torch.randn(64, 8)
    with (
        warnings.catch_warnings(record=True) as seen,
        swapper(net, planner="auto", budget=fixed_bytes(net) + 10) as swapped,
    ):
        warnings.simplefilter("always")
        for n in range(1, 8):
            with swapped.step() as step:
                net(x).sum().backward()
            assert step.peak_bytes > swapped.report().memory_budget_bytes
            assert f"{n} steps were ABOVE this budget so far" in str(swapped.report())
        swapped.set_budget("1MiB")
        with swapped.step():
            net(x).sum().backward()
        assert "ABOVE" not in str(swapped.report())
    assert seen
    assert {each.filename for each in seen} == {__file__}


@pytest.mark.parametrize("types", [{"ReLU"}, {"Conv2d", "ReLU"}, {"BatchNorm2d"}, {"Conv2d", "BatchNorm2d", "ReLU"}])
def test_what_a_caller_holds_has_not_left(types):
    """A sequence holds its block's input until the block returns: the peak is the predicted one, to the byte."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(6)]
    net, x = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks), torch.randn(8, 3, 16, 16)
    with swap.Swapper(net, budget="1MiB", planner="capuchin") as swapped:
        trained(swapped, net, x, 5)
        profile = swapped.report().profile
    held = {row.name for row in profile.rows if row.free_tick > row.packed_ticks[-1]}
    assert held == {"1.0#0", *[f"{i}.2#0" for i in range(1, 6)]}, "these are the inputs of the six blocks"
    actions = {row.key: SWAP if row.layer_type in types else KEEP for row in profile.rows}
    plan = having(SwapPlan.keeping(profile), actions)
    tight = swap.simulate(profile, plan, n_samples=8, budget=int(profile.fixed_bytes)).peak_bytes
    with swap.Swapper(net, budget=int(tight), planner="all") as swapped:
        trained(swapped, net, x, 3)
        swapped.apply(plan)
        assert [step.peak_bytes for step in trained(swapped, net, x, 3)] == [tight] * 3

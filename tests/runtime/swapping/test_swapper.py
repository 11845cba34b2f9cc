"""The swapper from outside: budgets, plans, reports, files, and what it answers to wrong input."""

import gc
import os
import random
import re
import subprocess
import sys
import threading
import warnings
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from drlnb import swap
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapLink, SwapPlan
from drlnb.rl.networks.extractors import impala_layers
from drlnb.runtime.swapping import derive, engine, measure, memory, tape
from drlnb.runtime.swapping.client.choose import OwnChooser
from drlnb.runtime.swapping.driven import Driven
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.measure import Recording
from drlnb.runtime.swapping.memory import DevicePeak, fixed_bytes
from drlnb.runtime.swapping.report import SwapStep
from drlnb.runtime.swapping.squeeze import nodes
from drlnb.runtime.swapping.tiers.base import Held, Meter, Rate
from drlnb.runtime.swapping.tiers.file import FileTier
from drlnb.runtime.swapping.tiers.made import TIERS
from tests.planning.swapping.swap_words import wide
from tests.runtime.swapped_net import SlowFile
from tests.runtime.swapping.nets import differing, images, made, plain_step, state
from tests.runtime.swapping.rig import Step, everywhere, profiled, stepping, swapper

#: Parameters and gradients (2 x 7730 x 4), and buffers (5 x 72) of the residual net, counted by hand from its layers.
FIXED_BYTES = 62_200


def trained(swapped, net, x, n_steps):
    for _ in range(n_steps):
        net.zero_grad()
        with swapped.step() as step:
            plain_step(net, x)
    return step


def pooled():
    """Return IMPALA's residual layers: they save what a max-pool indexes, and no block's input."""
    torch.manual_seed(0)
    return nn.Sequential(*impala_layers(3)[0], nn.Linear(512, 10))


@pytest.mark.parametrize("action", [KEEP, SQUEEZE, DERIVE, BLOCK])
@pytest.mark.parametrize("make", [pooled, partial(made, "residual"), partial(made, "transformer")])
def test_c5_the_bytes_at_the_peak_are_the_predicted_ones(make, action):
    """What is counted is what the cost model says, to the byte.

    What is squeezed or derived goes once its caller has let go of it, which the model does not know: some bytes more.
    Forms that are made whole again count, and what a block saves that is run again.  It holds in the first step, too:
    what an operation gives a second time was tried out while steps were recorded.
    """
    net, x = make(), images()
    with swapper(net) as swapped:
        swapped.apply(everywhere(profiled(swapped, net, x), action))
        for _ in range(2):
            peak_bytes, predicted = trained(swapped, net, x, 1).peak_bytes, swapped.report().predicted.peak_bytes
            if action in {SQUEEZE, DERIVE}:
                assert predicted <= peak_bytes <= 1.02 * predicted
            else:
                assert peak_bytes == predicted


def test_what_does_not_give_the_same_bits_again_is_offered_to_no_planner(monkeypatch):
    """Two blocks' ReLUs are made of batch normalisation's input, until a trial says that other bits come of it."""
    net, x = made("residual"), images()
    offered = []
    for same in (True, False):
        monkeypatch.setattr(derive, "_same", lambda first, second, same=same: same)
        with swapper(net) as swapped:
            offered.append(sum(row.derive_from is not None for row in profiled(swapped, net, x).rows))
    assert offered[0] > 0
    assert offered[1] == 0


def test_c5_what_recording_takes_is_not_the_steps(monkeypatch):
    """The graph of each output is looked at for a second: no tick has it."""
    now_s = [0.0]

    def looked_at(output):
        now_s[0] += 1.0
        return nodes(output)

    monkeypatch.setattr(Meter, "settle", lambda _: now_s[0])
    monkeypatch.setattr(measure, "nodes", looked_at)
    net = made("mlp")
    with swapper(net) as swapped:
        ticks = profiled(swapped, net, images()).ticks
    assert now_s[0] >= len(ticks)
    assert sum(tick.forward_s[1] + tick.backward_s[1] for tick in ticks) == 0.0


def test_rows_are_born_where_they_are_made():
    """A storage that is gone is not taken for a later one of the same number: ReLU and convolution have a tick each."""
    net = pooled()
    with swapper(net) as swapped:
        for n in (1, 2):
            rows = {row.key: row for row in profiled(swapped, net, images(n)).rows}
            residual = ("2", "3", "6", "7", "10", "11")
            assert all(rows[path, 1].born_tick == rows[path, 0].born_tick + 2 for path in residual)
            ticks = [(rows[path, i].packed_ticks, rows[path, i].born_tick) for path in residual for i in (0, 1)]
            assert all(packed == (born, born + 1) for packed, born in ticks)


@pytest.mark.thorough
@pytest.mark.parametrize("planner", ["auto", "hybrid", "greedy", "capuchin"])
def test_a_step_stays_within_its_budget(planner):
    """Plain needs more than the budget; the planner's plan does not, and its peak is the one that was predicted."""
    plain, net, x = made("residual"), made("residual"), images()
    with swapper(plain, planner="none", min_bytes=8192) as watched:
        need_bytes = trained(watched, plain, x, 1).peak_bytes
    budget = FIXED_BYTES + (need_bytes - FIXED_BYTES) * 6 // 10
    plain = made("residual")
    with swapper(net, planner=planner, budget=budget, min_bytes=8192) as swapped:
        step = trained(swapped, net, x, 12)
        report = swapped.report()
        assert need_bytes > budget >= step.peak_bytes
        assert report.predicted.fits
        assert step.n_unknown == 0
    for _ in range(12):
        plain.zero_grad()
        plain_step(plain, x)
    assert differing(state(plain), state(net)) == []


def test_with_room_enough_nothing_is_moved():
    """If the step fits, the plan keeps everything."""
    net, x = made("residual"), images()
    with swapper(net, planner="auto", budget="1GiB") as swapped:
        assert trained(swapped, net, x, FIRST_STEPS + 2).swapped_bytes == 0
        assert swapped.report().plan.key is None
        assert swapped.report().plan.keys


@pytest.mark.parametrize("more", [{"planner": "none"}, {"planner": "auto", "budget": "1GiB"}])
def test_a_step_that_keeps_all_counts_what_one_that_follows_its_modules_counts(more, monkeypatch):
    """It has no name for what is saved, and says the same of it; the input, which something else holds, is not ours."""
    told = []
    for follows in (False, True):
        if follows:
            monkeypatch.setattr(OwnChooser, "keeps_all", False)
            if more["planner"] == "none":
                monkeypatch.setattr(swap.Swapper, "_action", lambda self, key: KEEP)
        net, x = made("residual"), images()
        with swapper(net, **more) as swapped:
            last = trained(swapped, net, x, FIRST_STEPS + 1)
            told.append((
                last.n_samples,
                last.peak_bytes,
                last.n_saved,
                last.n_packs,
                last.n_unknown,
                last.swapped_bytes,
            ))
            with swapped.step():
                assert bool(module_hooks._global_forward_hooks) == follows
                net(x).sum().backward()
                assert bool(module_hooks._global_forward_pre_hooks) == follows
    assert told[0] == told[1]
    assert told[0][0] == len(x)


def test_a_step_that_keeps_all_sees_an_edit_in_place():
    """As plain autograd does: what was saved is what the backward pass needs."""
    linear = nn.Linear(8, 8)
    with swapper(linear, planner="none") as swapped, swapped.step():
        y = linear(torch.randn(4, 8)).exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_the_module_itself_is_counted():
    """Parameters, gradients and buffers, each storage once."""
    linear = nn.Linear(3, 2)
    linear.register_buffer("again", linear.weight.detach())
    assert fixed_bytes(linear) == 2 * (6 + 2) * 4
    assert fixed_bytes(made("residual")) == FIXED_BYTES


def test_the_budget_can_be_changed_between_steps():
    """A smaller one is obeyed in the next step, None lets everything stay."""
    net, x = made("residual"), images()
    with swapper(net, planner="capuchin", budget="1GiB") as swapped:
        wide = trained(swapped, net, x, FIRST_STEPS + 2).peak_bytes
        narrow = FIXED_BYTES + (wide - FIXED_BYTES) // 2
        swapped.set_budget(narrow)
        assert trained(swapped, net, x, 1).peak_bytes <= narrow
        swapped.set_budget(None)
        assert trained(swapped, net, x, 1).swapped_bytes == 0


def test_a_plan_of_one_batch_serves_another():
    """Rows are known by module and number, so a short last batch follows the same plan."""
    net = made("residual")
    with swapper(net) as swapped:
        swapped.apply(everywhere(profiled(swapped, net, images(2)), SWAP))
        for n in (2, 1, 5):
            with swapped.step() as step:
                plain_step(net, images(n))
            assert (step.n_samples, step.n_unknown) == (n, 0)
            assert step.swapped_bytes > 0


class Growing(nn.Module):
    """A net that saves more once `more` is set."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.more = nn.Linear(64, 64), nn.Linear(64, 64), False

    def forward(self, x):
        y = self.first(x).tanh()
        return self.second(y.sin() if self.more else y).tanh()


def test_what_the_plan_does_not_know_stays_and_is_learnt():
    """A step that saves other tensors keeps them, and is recorded anew for the machine of `auto`."""
    net, x = Growing(), torch.randn(32, 64)
    with swapper(net, planner="auto", budget=fixed_bytes(net) + 25_000) as swapped:
        n_rows = []
        for more in (False, True):
            net.more = more
            steps = []
            for _ in range(FIRST_STEPS + 8):
                with swapped.step() as step:
                    net(x).square().sum().backward()
                steps.append(step)
            assert bool(sum(step.n_unknown for step in steps)) == more
            assert steps[-1].n_unknown == 0
            n_rows.append(len(swapped.report().profile.rows))
        assert n_rows[1] == n_rows[0] + 1  # the input of the sine


def test_two_recorded_batches_give_bytes_per_sample_and_those_that_do_not_grow():
    """Of two batches, a row of the batch's size grows, and batch statistics do not."""
    net = made("residual")
    with swapper(net) as swapped:
        profile = swapped.profile(lambda n: plain_step(net, images(n)), batches=(2, 4))
    rows = {row.key: (row.bytes_per_sample, row.bytes_fixed) for row in profile.rows}
    assert rows["1", 0] == (8 * 32 * 32 * 4, 0.0)  # input of the first batch normalisation
    assert rows["1", 1] == (0.0, 8 * 4.0)  # its mean
    assert profile.fixed_bytes == FIXED_BYTES
    assert {block.path for block in profile.blocks} >= {"4", "5"}


def test_solve_simulate_and_max_batch_work_on_a_recorded_profile():
    """What the door offers without a step: a plan that fits, its prediction, and the largest batch."""
    net = made("residual")
    with swapper(net) as swapped:
        profile = swapped.profile(lambda n: plain_step(net, images(n)), batches=(2, 4))
    need_bytes = swap.simulate(profile, SwapPlan.keeping(profile), n_samples=64).peak_bytes
    budget = int(need_bytes * 0.7)
    plan = swap.solve(profile, n_samples=64, budget=budget, planner="greedy")
    said = swap.simulate(profile, plan, n_samples=64, budget=budget)
    assert said.fits
    assert said.peak_bytes <= budget < need_bytes
    plain = swap.max_batch(profile, budget=budget, planner="none", min_throughput_frac=0.0)
    assert plain < 64 <= swap.max_batch(profile, budget=budget, planner="all", min_throughput_frac=0.0)
    with pytest.raises(swap.BudgetTooSmall, match=r"the least that was found is 4.. MiB, got 64.0 KiB") as small:
        swap.solve(profile, n_samples=64, budget="64KiB", planner="greedy")
    assert small.value.smallest_bytes > 64 << 10
    assert set(small.value.plan.actions) != {KEEP}


def test_a_plan_is_saved_and_loaded(tmp_path):
    """Another swapper of the same module follows it from its first step; one of another module refuses it."""
    net, x, path = made("residual"), images(), tmp_path / "plan.json"
    with swapper(net) as swapped:
        with pytest.raises(ValueError, match="no profile to save yet"):
            swapped.save(path)
        plan = everywhere(profiled(swapped, net, x), SWAP)
        swapped.apply(plan)
        swapped.save(path)
    with swapper(made("residual"), planner="auto", budget="1GiB") as other:
        other.load(path)
        assert other.report().plan == plan
        assert trained(other, other.module, x, 2).plan_key == plan.key
    with (
        swapper(made("mlp")) as foreign,
        pytest.raises(ValueError, match=r"plan of module Sequential-\w+, this one is"),
    ):
        foreign.load(path)


def test_the_report_is_a_table_with_reasons():
    """Each row with its action and why; what stays against the plan is named, too."""
    net, x = made("residual"), images()
    with swapper(net) as swapped:
        swapped.apply(everywhere(profiled(swapped, net, x), SWAP))
        trained(swapped, net, x, 2)
        text = str(swapped.report())
    assert "planner all, no budget: peak" in text
    assert "0#0 stays: something else holds it" in text
    assert "ReLU" in text


def out_of_memory():
    raise torch.OutOfMemoryError("no memory left")


def out_of_memory_within(swapped, net, x):
    with swapped.step():
        plain_step(net, x)
        out_of_memory()


def test_memory_that_does_not_suffice_passes_as_budget_exceeded():
    """The error is torch's kind with the plan in it; the next step swaps whatever it can."""
    net, x = made("residual"), images()
    with swapper(net, planner="capuchin", budget="1GiB") as swapped:
        trained(swapped, net, x, FIRST_STEPS + 1)
        with pytest.raises(swap.BudgetExceeded, match="no memory left; the step ran so: planner capuchin"):
            out_of_memory_within(swapped, net, x)
        assert issubclass(swap.BudgetExceeded, torch.OutOfMemoryError)
        assert trained(swapped, net, x, 1).swapped_bytes > 0


def test_run_makes_the_step_again_as_if_nothing_had_happened():
    """Random numbers, batch statistics, frozen parameters and gradients are as before the step that failed."""
    plain, net, x = made("residual"), made("residual"), images()
    net.counter = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
    tries = []

    def step():
        torch.rand(3)
        plain_step(net, x)
        net.counter += 1
        tries.append((torch.rand(1).item(), random.random(), np.random.rand()))  # noqa: NPY002
        if len(tries) == 1:
            out_of_memory()

    plain_step(net, x)
    plain_step(plain, x)
    with swapper(net) as swapped:
        swapped.run(step)
    plain_step(plain, x)
    assert len(tries) == 2
    assert tries[0] == tries[1]
    assert net.counter == 1
    assert differing(state(plain), state(net)) == []


def test_a_training_counts_a_batch_once_whose_gradient_is_made_twice():
    """Statistics and draws of the gradient that was made again are those of plain PyTorch, which had room."""
    plain, net, x = made("residual"), made("residual"), images()
    tries = []

    def gradient(net):
        net.zero_grad()
        plain_step(net, x)
        tries.append(random.random())
        if len(tries) == 1:
            out_of_memory()

    driven = Driven(net)
    driven.around(2, lambda: gradient(net))
    driven.close()
    gradient(plain)
    assert tries[0] == tries[1]
    assert differing(state(plain), state(net)) == []


@pytest.mark.thorough
def test_a_step_that_fails_leaves_nothing_and_the_next_one_works():
    """After any exception no byte is held, no place is taken, and steps can be made."""
    net, x = made("residual"), images()
    with swapper(net) as swapped:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), swapped.step():
                net(x).sum() / 0 * (1 // 0)
            gc.collect()
            assert (swapped._meter.n_bytes, swapped._tier.places.n_taken) == (0, 0)
        assert trained(swapped, net, x, 1).swapped_bytes > 0


def test_a_nan_loss_is_the_users_affair():
    """Gradients are NaN where plain's are."""
    plain, net, x = made("residual"), made("residual"), images() * torch.nan
    plain_step(plain, x)
    with swapper(net) as swapped:
        trained(swapped, net, x, 1)
    assert differing(state(plain), state(net)) == []


def test_graphs_outlive_the_swapper():
    """A loss made within a step can be differentiated after the step, and after the swapper was closed."""
    plain, net, x = made("residual"), made("residual"), images()
    with swapper(net) as swapped, swapped.step():
        loss = net(x).square().sum()
    loss.backward()
    plain(x).square().sum().backward()
    assert differing(state(plain), state(net)) == []


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"budget": "0"}, ValueError, "^budget: .*from 1 byte to .*'0'"),
        ({"budget": -5}, ValueError, "^budget: .* got -5"),
        ({"budget": "a lot"}, ValueError, "^budget: .*'a lot'"),
        ({"budget": "1KiB"}, ValueError, "above the 60.7 KiB of the module's parameters.*got 1.0 KiB"),
        ({"planner": "magic"}, ValueError, "magic"),
        ({"tier": "cuda"}, ValueError, "tier must be auto, file .*'cuda' on cpu"),
        ({"module": [1]}, TypeError, "needs a torch.nn.Module, got list"),
        ({"module": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1, device="meta")])}, ValueError, "one device"),
        ({"folder": "/no/such/folder"}, OSError, "No such file"),
    ],
)
def test_wrong_input_is_told_in_a_line(wrong, error, words):
    """The message has the name, the limit and the value."""
    arguments = {"module": made("residual"), **wrong}
    with pytest.raises(error, match=words) as told:
        swap.Swapper(arguments.pop("module"), **arguments)
    assert "\n" not in str(told.value)


def test_wrong_calls_are_told_in_a_line():
    """Nested steps, a plan of other rows, wrong batches to record."""
    net, x = made("residual"), images()
    with swapper(net) as swapped:
        with swapped.step(), pytest.raises(RuntimeError, match="steps do not nest"), swapped.step():
            pass
        profile = profiled(swapped, net, x)
        with pytest.raises(ValueError, match=f"not of the {len(profile.rows)} of"):
            swapped.apply(SwapPlan(keys=(("9", 0),), actions=(SWAP,)))
        with pytest.raises(ValueError, match=r"one or two numbers of samples, got \(1, 2, 3\)"):
            swapped.profile(lambda n: None, batches=(1, 2, 3))
    with pytest.warns(RuntimeWarning, match="does nothing from now on: tier file: it is closed"), swapped.step():
        plain_step(net, x)


def test_no_space_on_the_disk_costs_memory_and_one_warning(monkeypatch):
    """What cannot be written stays in memory: the gradients are plain's, and nothing is swapped from then on."""
    written = os.pwrite
    left = [100_000]

    def pwrite(fd, data, offset):
        if left[0] < len(data):
            raise OSError(28, "No space left on device")
        left[0] -= len(data)
        return written(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    plain, net, x = made("residual"), made("residual"), images()
    plain_step(plain, x)
    with swapper(net) as swapped:
        step = trained(swapped, net, x, 1)
        assert 0 < step.swapped_bytes < 340_000
        assert differing(state(plain), state(net)) == []
        with pytest.warns(RuntimeWarning, match="No space left on device"):
            step = trained(swapped, net, x, 1)
        assert step.swapped_bytes == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained(swapped, net, x, 1)  # told once
        assert "No space left" in swapped.report().reason


def test_a_short_read_is_an_error_not_a_wrong_gradient():
    """A file that lost its end raises where its bytes are needed."""
    with swapper(net := made("residual")) as swapped, swapped.step():
        loss = net(images()).square().sum()
        swapped._tape.part(with_all=True)
        while swapped._tier.relieve():
            pass
        os.truncate(swapped._tier.file, 0)
        with pytest.raises(OSError, match="swap file ends before byte"):
            loss.backward()


def test_importing_the_door_loads_no_torch():
    """Names load on first use."""
    code = "import sys; from drlnb import swap; print('torch' in sys.modules, 'dask' in sys.modules, len(swap.__all__))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split()[:2] == ["False", "False"]
    assert all(getattr(swap, name) is not None for name in swap.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        swap.nothing  # noqa: B018


@pytest.mark.thorough
def test_freed_tensors_leave_the_process_once_malloc_is_fixed():
    """Glibc takes the threshold; in a process of its own, since it cannot be taken back."""
    code = "from drlnb import swap; print(swap.fix_malloc())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_places_of_a_file_are_used_again_in_every_step():
    """The file does not grow with the steps, and starts anew when nothing is in it."""
    tier = FileTier(Meter())
    first = [tier.places.take(5000) for _ in range(3)]
    assert [place.offset for place in first] == [0, 8192, 16384]
    second = first.pop(1)
    assert tier.places.take(100).offset == 24576
    del second
    assert tier.places.take(8192).offset == 8192
    first.clear()
    assert tier.places.n_taken == 0
    assert tier.places.take(100).offset == 0
    tier.close()


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_is_wanted_back_before_it_has_left_stays(forgotten):
    """Others are not promised its room: it counts until it was read, or nobody wants it any more."""
    meter, may_write = Meter(), threading.Event()
    tier = FileTier(meter)
    tier.writer.submit(may_write.wait)
    storage = torch.arange(4096.0).untyped_storage()
    ticket = tier.store(Held(meter, storage))
    ticket.load()
    may_write.set()
    while tier.relieve():
        pass
    assert ticket.copy_s > 0
    assert meter.n_bytes == storage.nbytes()
    if forgotten:
        ticket.forget()
        assert meter.n_bytes == 0
    held = ticket.wait()
    assert (held.storage.data_ptr() == storage.data_ptr()) == (not forgotten)
    assert torch.equal(torch.tensor([], dtype=torch.float32).set_(held.storage), torch.arange(4096.0))
    del held
    assert meter.n_bytes == 0
    del ticket
    tier.close()


def test_what_stays_because_it_was_asked_for_is_not_taken_for_held():
    """A second backward pass finds it written and still here: that is the tier's doing, nobody else's."""
    may_write = threading.Event()
    tier = FileTier(Meter())
    tier.writer.submit(may_write.wait)
    step = Step(tier)
    x, y = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
    with step.open() as tape:
        first, second = x.exp().sum(), y.exp().sum()
        second.backward()  # asks for what `first` needs, which has not left
        may_write.set()
        step.away()
        first.backward()
    assert tape.others == {}
    assert torch.equal(x.grad, x.exp())
    tier.close()


@pytest.mark.thorough
def test_a_slow_disk_is_measured_as_it_is():
    """64 KiB at 2 MB/s take 33 ms and more, each way."""
    tier, seconds = SlowFile(Meter()), 65_536 / 2e6
    tier.bytes_per_s = 2e6
    ticket = tier.store(Held(tier.meter, torch.arange(65_536, dtype=torch.uint8).untyped_storage()))
    while tier.relieve():
        pass
    assert ticket.copy_s >= seconds
    assert bytes(ticket.wait().storage) == bytes(range(256)) * 256
    assert tier.back.s_per_byte >= 1 / 2e6
    del ticket
    tier.close()


def test_another_tier_may_stand_in_the_place_of_a_devices_own(monkeypatch):
    """Whoever tries one out puts it there, for this process alone."""
    monkeypatch.setitem(TIERS, "cpu", lambda device, meter, folder: SlowFile(meter, folder))
    with swapper(made("mlp"), tier="auto") as swapped:
        assert type(swapped._tier) is SlowFile


def test_a_rate_is_that_of_the_newest_copies():
    """Of copies that are alike it is theirs; after 200 of another rate nothing is left of the former."""
    rate = Rate()
    for _ in range(300):
        rate.add(1000, 1.0)
    assert rate.s_per_byte == pytest.approx(1e-3)
    for _ in range(200):
        rate.add(1000, 4.0)
    assert rate.s_per_byte == pytest.approx(4e-3, rel=0.02)


def test_a_drift_is_in_the_reasons_of_the_next_plan():
    """Once the link was measured anew, the report's copies take as long as they did."""
    chooser = OwnChooser("auto", 0)
    chooser.memory_budget_bytes = 45
    chooser.take(wide(6, link=SwapLink.of(20.0)), 1)
    for _ in range(60):
        chooser.measured(SwapStep(step_s=20.0, peak_bytes=40), SwapLink.of(0.5))
    for _ in range(8):
        chooser.measured(SwapStep(step_s=40.0, peak_bytes=40), SwapLink.of(0.5))
    assert chooser.profile.link == SwapLink.of(0.5)


def test_the_pages_example_stays_within_its_budget(capsys):
    """Word for word: six steps of 64 pictures, within 6 MiB where plain asks for more."""
    page = Path(__file__).parents[3] / "docs/swapping.md"
    code, *_ = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    peak, swapped = (float(number) for number in re.findall(r"([\d.]+) MiB", capsys.readouterr().out.splitlines()[0]))
    assert 4.0 < peak <= 6.0
    assert swapped > 0.0


class _Lazy:
    """A thread that writes nothing until somebody waits for it: the slowest disk there is."""

    class _Copy:
        def __init__(self, work, box):
            self._work, self._box = work, box

        def done(self):
            return self._work is None

        def result(self):
            work, self._work = self._work, None
            if work is not None:
                work(self._box)

    def submit(self, work, box):
        return self._Copy(work, box)

    def shutdown(self):
        """End nothing."""


def test_what_comes_back_waits_for_what_is_still_leaving():
    """With a disk that never writes by itself, two of three storages are there at most; the gradient is plain's."""
    n_bytes = 4096 * 4
    with stepping(tier="file") as step:
        step.tier.writer.shutdown()
        step.tier.writer, step.tier._in_flight_bytes = _Lazy(), 1 << 30
        step.meter.limit_bytes = 2.5 * n_bytes
        for _ in range(3):
            x = torch.linspace(-1.0, 1.0, 4096, requires_grad=True)
            with step.open():
                step.meter.restart()
                (x * 1).sin().sin().sin().sum().backward()
            assert step.tape.n_saved == 3
            assert step.meter.peak_bytes <= 2 * n_bytes
            y = x.detach()
            assert torch.allclose(x.grad, y.cos() * y.sin().cos() * y.sin().sin().cos())


def test_what_a_step_needs_beside_its_rows_is_recorded_by_tick(monkeypatch):
    """A device whose allocator counts: the most bytes since the last look, less what is fixed and saved."""
    seen = iter([FIXED_BYTES + 1e9] * 10_000)
    monkeypatch.setattr(DevicePeak, "_latest", lambda peak: int(next(seen)))
    net = made("residual")
    with swapper(net) as swapped:
        profile = swapped.profile(lambda n: plain_step(net, images(n)), batches=(2,))
        kept = swap.simulate(profile, SwapPlan.keeping(profile), n_samples=2)
    forward = [tick.forward_transient_bytes[1] * 2 for tick in profile.ticks]
    backward = [tick.backward_transient_bytes[1] * 2 for tick in profile.ticks]
    assert forward == sorted(forward, reverse=True), "the more is saved, the less is left of it"
    assert forward[0] > 0.99e9
    assert max(backward) > 0.99e9
    assert kept.peak_bytes > FIXED_BYTES + 1e9


class _Allocator:
    """Counts as that of a CUDA device does."""

    def __init__(self, monkeypatch):
        self.now_bytes = self.peak_bytes = 0
        monkeypatch.setattr(memory, "allocated", lambda device: memory.Allocated(self.now_bytes, self.peak_bytes))
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def reset(self, device):
        self.peak_bytes = self.now_bytes

    def add(self, n_bytes):
        self.now_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)


def test_bytes_are_compared_with_those_that_were_counted_when_they_were_there(monkeypatch):
    """A saved storage that leaves within a tick is nobody's transient bytes; nor are those of what is left out."""
    allocator, meter, peak = _Allocator(monkeypatch), Meter(), DevicePeak(torch.device("cuda"))
    allocator.add(1000)
    peak.restart(fixed_bytes=1000)
    meter.beside = peak
    storage = torch.UntypedStorage(5000)
    allocator.add(5000)
    weakref.finalize(storage, allocator.add, -5000)
    held = Held(meter, storage)
    del storage
    assert peak.beyond() == 5000, "before it was counted"
    allocator.add(200)
    del held
    assert (allocator.now_bytes, meter.n_bytes) == (1200, 0)
    allocator.add(100)
    allocator.add(-300)
    with meter.aside():
        allocator.add(7000)
        allocator.add(-7000)
    meter.compare()
    assert (peak.beyond(), peak.beyond()) == (300, 0)
    assert peak.read() == 8000


def test_the_time_of_a_tick_is_the_modules_own(monkeypatch):
    """Whatever the hooks do in a recorded step takes seconds that no step takes without a recording."""
    clock = [0.0]

    class Slow(nn.Linear):
        def forward(self, x):
            clock[0] += 1.0
            return super().forward(x)

    def part(tape, *, with_all=False):
        clock[0] += 100.0

    monkeypatch.setattr("drlnb.runtime.swapping.tiers.base.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(tape.Tape, "part", part)
    net = nn.Sequential(Slow(4, 4), nn.Tanh(), Slow(4, 4), nn.Tanh())
    with swapper(net) as swapped:
        profile = swapped.profile(lambda n: net(torch.ones(n, 4)).sum().backward(), batches=(2,))
        assert swapped._tape.stall_s == 0.0, "no hook is a wait"
    assert sum(tick.forward_s[1] * 2 for tick in profile.ticks) == pytest.approx(2.0)
    assert sum(tick.backward_s[1] for tick in profile.ticks) == 0.0


def test_the_cpu_counts_no_transients():
    """Its allocator tells nobody what it holds."""
    peak = DevicePeak(torch.device("cpu"))
    peak.restart(0)
    peak.counted(0)
    assert (peak.read(), peak.beyond()) == (0, 0.0)


def test_each_batch_is_recorded_thrice_and_the_middle_second_of_each_tick_counts(monkeypatch):
    """What the first step of a size has to do besides, and what others do in another one, is left out."""
    net, made_steps, took = made("mlp"), [], []
    ticks = Recording.ticks
    own = iter([(9.0, 0.5), (2.0, 4.0), (1.0, 0.25)] * 2)

    def seconds(recording):
        (forward, backward), columns = next(own), ticks(recording)
        n_ticks = len(columns[0])
        took.append(n_ticks)
        return [forward] * n_ticks, [backward] * n_ticks, columns[2], columns[3]

    def step(n):
        made_steps.append(n)
        plain_step(net, images(n))

    monkeypatch.setattr(Recording, "ticks", seconds)
    with swapper(net) as swapped:
        profile = swapped.profile(step, batches=(2,))
    assert made_steps == [2, 2, 2]
    assert {(tick.forward_s, tick.backward_s) for tick in profile.ticks} == {((0.0, 1.0), (0.0, 0.25))}
    assert len(profile.ticks) == took[0]


def test_steps_that_are_recorded_on_the_way_are_those_of_the_last_ones_size():
    """Three are, then the planner chooses; what was recorded of another size is left out."""
    net = made("mlp")
    with swapper(net, planner="capuchin", budget="1GiB") as swapped:
        for n, known in ((4, False), (2, False), (4, False), (4, True)):
            assert swapped.report().profile is None
            trained(swapped, net, images(n), 1)
            assert (swapped.report().profile is not None) == known
        assert {row.bytes_fixed for row in swapped.report().profile.rows} == {0.0}


def test_what_a_slow_disk_takes_is_no_ticks_time(monkeypatch):
    """Where nothing takes time but a file of 2 MB/s, no tick has any, forward or backward: all of it is waiting."""
    now_s = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now_s.append(now_s.pop() + seconds))
    net = nn.Sequential(*[each for _ in range(4) for each in (nn.Linear(64, 64), nn.Tanh())])
    x, row_bytes = torch.randn(64, 64), 64 * 64 * 4
    with swapper(net, planner="capuchin", budget=fixed_bytes(net) + 5 * row_bytes // 2, tier=SlowFile) as swapped:
        swapped._tier.bytes_per_s = 2.0**21
        for thread in ("writer", "reader"):
            getattr(swapped._tier, thread).shutdown()
            setattr(swapped._tier, thread, _Lazy())
        for _ in range(FIRST_STEPS):
            with swapped.step() as step:
                net(x).square().sum().backward()
        ticks = swapped.report().profile.ticks
    assert {(*tick.forward_s, *tick.backward_s) for tick in ticks} == {(0.0,) * 4}
    assert step.stall_s == pytest.approx(step.step_s)
    assert step.stall_s >= 2 * 2 * row_bytes / 2**21, "two rows have left, and come back"


class Queue:
    """A device whose work takes time only once somebody waits for it; what it was given is not done before."""

    def __init__(self):
        self.queued_s, self.now_s = 0.0, 0.0

    def settle(self, *_):
        self.now_s += self.queued_s
        self.queued_s = 0.0
        return self.now_s

    def perf_counter(self):
        return self.now_s

    def give(self, seconds):
        self.queued_s += seconds


class Launched(nn.Linear):
    """Takes 1 s of a queue forward, and 2 s before its backward; its caller goes on at once."""

    def __init__(self, queue):
        super().__init__(256, 256)
        self.queue = queue

    def forward(self, x):
        self.queue.give(1.0)
        y = super().forward(x)
        y.register_hook(lambda _: self.queue.give(2.0))
        return y


@pytest.fixture
def queue(monkeypatch):
    """Read every clock of a step from a queue."""
    queue = Queue()
    for module in (engine, tape):
        monkeypatch.setattr(module, "time", queue)
    monkeypatch.setattr(Meter, "settle", queue.settle)
    return queue


def test_seconds_are_the_devices(queue):
    """Whoever launches work does not wait for it: ticks and steps end when the device has done it."""
    net, x = nn.Sequential(*[Launched(queue) for _ in range(3)]), torch.randn(64, 256, requires_grad=True)
    with swapper(net, planner="none") as swapped:
        ticks = swapped.profile(lambda _: net(x).sum().backward(), [64]).ticks
        assert [round(64 * tick.forward_s[1], 9) for tick in ticks[:3]] == [1.0, 1.0, 1.0]
        assert sum(64 * (tick.forward_s[1] + tick.backward_s[1]) for tick in ticks) == pytest.approx(9.0)
        queue.give(5.0)  # such as the optimiser's, of the step before
        with swapped.step() as step:
            net(x).sum().backward()
        assert step.step_s == 9.0


def test_a_wait_for_a_copy_is_no_ticks_time(queue):
    """On the device, too: a storage takes 10 s to come back, and no tick takes longer for it."""
    net, x = nn.Sequential(*[Launched(queue) for _ in range(3)]), torch.randn(64, 256, requires_grad=True)
    with swapper(net, planner="all", budget="1GiB") as swapped:
        net.zero_grad()
        whole = tape.Saved.restored

        def slow(saved):
            queue.give(10.0 * (saved.held is None and saved.buffer is None))
            return whole(saved)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tape.Saved, "restored", slow)
            recording = swapped._recording = swapped._new_recording()
            with swapped.step() as step:
                net(x).sum().backward()
                forward_s, backward_s, *_ = recording.ticks()
        assert step.step_s > 9.0 + 10.0, "copies were waited for"
        # 2 s before anything is read back are the turn's; the tier's thread has a clock of its own.
        assert sum(forward_s) == pytest.approx(5.0, abs=0.5)
        assert sum(backward_s) == pytest.approx(4.0, abs=0.5)


@pytest.mark.parametrize(
    ("use", "error", "said"),
    [
        (
            lambda swapper, path: swapper.apply("plan"),
            TypeError,
            "plan must be a SwapPlan, such as swap.solve returns, got 'plan'",
        ),
        (lambda swapper, path: swapper.run(None), TypeError, "run takes a function without arguments, .* got None"),
        (lambda swapper, path: swapper.load(None), TypeError, "named by a path, got None"),
        (lambda swapper, path: swapper.load(path), ValueError, "was not written by Swapper.save: .* No such file"),
        (lambda swapper, path: swapper.load(path.parent), ValueError, "was not written by Swapper.save: "),
    ],
    ids=["apply", "run", "load", "missing", "folder"],
)
def test_wrong_arguments_are_one_line(tmp_path, use, error, said):
    """They name what is taken, and what was given."""
    with swap.Swapper(nn.Linear(4, 2)) as swapper, pytest.raises(error, match=said) as told:
        use(swapper, tmp_path / "plan")
    assert len(str(told.value).splitlines()) == 1

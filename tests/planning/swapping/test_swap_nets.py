"""Facts of known networks that their papers fix, and what planners and the roofline make of them."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.cost import Walker, predict
from drlnb.planning.swapping.profile import DERIVE, KEEP, SQUEEZE, SWAP, SwapPlan, read, written
from drlnb.planning.swapping.trace import DEVICES, GIB, analytic, packed, unpacked
from drlnb.sim.swapping.nets import net_names, net_trace, plain_batch

#: Network -> its convolutions, and how many different tensors these read: shortcuts and branches share theirs.
CONVOLUTIONS = {
    "alexnet_32": (5, 5), "alexnet_224": (5, 5), "vgg16_bn_32": (13, 13), "vgg16_224": (13, 13),
    "resnet50_32": (53, 49), "resnet50_224": (53, 49), "nature_cnn": (3, 3), "impala": (15, 15), "transformer": (0, 0),
    "inception_v3_32": (94, 70), "inception_v3_299": (94, 70),
}  # fmt: skip
SMALL = ("alexnet_32", "impala", "nature_cnn")


def view_of(name, n, memory_budget_bytes, device="2080ti"):
    return SwapView(profile=analytic(net_trace(name), device, n), n_samples=n, memory_budget_bytes=memory_budget_bytes)


def plan_of(planner, view):
    return SWAPPING.ask(SWAPPING.build(planner), view)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_vdnn_conv_moves_what_convolutions_read(name):
    """As many storages as there are different inputs; of each, every operation that reads it is a reason."""
    trace = net_trace(name)
    n_convolutions, n_inputs = CONVOLUTIONS[name]
    assert Counter(op.name for op in trace.ops)["conv2d"] == n_convolutions
    plan = plan_of("vdnn_conv", view_of(name, 4, GIB))
    moved = [row for row in trace.rows if plan.action_of[row.key] == SWAP]
    assert len(moved) == n_inputs
    assert all("conv2d" in row.consumers for row in moved)


def test_half_of_what_resnet_saves_is_read_by_batch_normalisation():
    """So vDNN's convolutions alone leave that half on the device, whatever they are given to move (trap 26)."""
    view = view_of("resnet50_32", 64, GIB)
    plan = plan_of("vdnn_conv", view)
    size = {row.key: row.bytes(64) for row in view.profile.rows}
    moved = sum(size[key] for key, action in plan.action_of.items() if action == SWAP)
    norm = sum(size[row.key] for row in view.profile.rows if row.consumers == ("batch_norm",))
    assert 0.45 < norm / sum(size.values()) < 0.55
    assert moved + norm <= sum(size.values())
    assert predict(view.profile, plan, 64).peak_bytes > view.profile.fixed_bytes + norm


@pytest.mark.parametrize("name", net_names())
def test_rows_are_made_before_they_are_read_and_derived_from_what_is_older(name):
    """In every shipped trace; a row's source is made earlier, blocks lie within the step and nest or are apart."""
    trace = net_trace(name)
    rows = {row.key: row for row in trace.rows}
    for row, operations in zip(trace.rows, trace.derive_ops, strict=True):
        assert -1 <= row.born_tick <= row.packed_ticks[0] <= row.packed_ticks[-1] < len(trace.ops)
        assert list(row.packed_ticks) == sorted(set(row.packed_ticks))
        assert (row.derive_from is not None) == bool(operations)
        assert len(operations) <= 3
        if row.derive_from is not None:
            assert rows[row.derive_from].born_tick < row.born_tick
            assert row.born_tick in operations, "a result in place of another one lies where that was made"
            assert max(operations) <= row.packed_ticks[0]
    for one, other in itertools.combinations(trace.blocks, 2):
        shared = set(one.rows) & set(other.rows)
        apart = one.last_tick < other.first_tick or other.last_tick < one.first_tick
        assert apart <= (not shared)
        assert not shared or shared in (set(one.rows), set(other.rows))


@pytest.mark.parametrize("name", SMALL)
def test_a_profile_of_a_network_comes_back_from_its_json(name):
    """With its key and its times; its trace comes back from its columns."""
    trace = net_trace(name)
    profile = analytic(trace, "2080ti", 32)
    again = read(type(profile), written(profile))
    assert (again, again.key) == (profile, profile.key)
    assert unpacked(packed(trace)) == trace


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("device", DEVICES)
def test_a_step_is_as_long_as_its_roofs(name, device):
    """Summed by hand: each operation at the slower of its roofs, and its launches."""
    n, trace, card = 64, net_trace(name), DEVICES[device]
    expected = 0.0
    for op in trace.ops:
        for flops, moved, fixed, launches in (
            (op.flops, op.in_bytes + op.out_bytes, op.param_bytes, 1),
            (2 * op.flops, 2 * op.in_bytes + op.out_bytes, 3 * op.param_bytes, 2 if op.flops else 1),
        ):
            expected += max(n * flops / card.flops_per_s, (n * moved + fixed) / card.bytes_per_s) + launches * 6e-6
    profile = analytic(trace, device, n)
    assert predict(profile, SwapPlan.keeping(profile), n).step_s == pytest.approx(expected)


@pytest.mark.parametrize("name", SMALL)
def test_the_largest_plain_batch_is_the_last_that_fits(name):
    """One more sample does not; a faster device with the same memory holds as many."""
    trace, budget = net_trace(name), GIB
    n = plain_batch(trace, "2080ti", budget)
    fits = []
    for samples in (n, n + 1):
        profile = analytic(trace, "2080ti", samples)
        fits.append(predict(profile, SwapPlan.keeping(profile), samples, budget).fits)
    assert fits == [True, False]
    assert plain_batch(trace, "h200_tf32", budget) == n


@pytest.mark.parametrize("name", SMALL)
def test_capuchin_moves_what_waits_longest(name):
    """Whatever it swaps is not needed for at least as long, copies taken off, as anything that it keeps."""
    view = view_of(name, plain_batch(net_trace(name), "2080ti", GIB) * 5 // 4, GIB)
    plan = plan_of("capuchin:actions=swap", view)
    numbers = Walker(view.profile, view.n_samples)

    def idle_s(i):
        last = numbers.last[i]
        between = sum(numbers.forward_s[last + 1 :]) + sum(numbers.backward_s[last + 1 :])
        return between - numbers.out_s[i] - numbers.in_s[i]

    swapped, kept = ([i for i, action in enumerate(plan.actions) if action == each] for each in (SWAP, KEEP))
    assert swapped
    assert min(map(idle_s, swapped)) >= max(map(idle_s, kept), default=-1.0) - 1e-9
    assert predict(view.profile, plan, view.n_samples, GIB).fits


@pytest.mark.thorough
def test_squeezing_a_policys_frames_costs_no_time():
    """IMPALA at a quarter over plain's batch: what is squeezed is not moved, and the step is no longer."""
    view = view_of("impala", plain_batch(net_trace("impala"), "2080ti", GIB) * 5 // 4, GIB)
    plan = plan_of("hybrid", view)
    plain = predict(view.profile, SwapPlan.keeping(view.profile), view.n_samples)
    assert SQUEEZE in plan.actions
    assert predict(view.profile, plan, view.n_samples, GIB).step_s == pytest.approx(plain.step_s)


@pytest.mark.thorough
def test_a_link_as_fast_as_memory_makes_swapping_free():
    """And one that stands still makes every other action better than it."""
    view = view_of("impala", plain_batch(net_trace("impala"), "2080ti", GIB) * 3 // 2, GIB)
    plain_s = predict(view.profile, SwapPlan.keeping(view.profile), view.n_samples).step_s
    for bytes_per_s, actions in ((1e15, {KEEP, SWAP}), (1e3, {KEEP, SQUEEZE, DERIVE, "block"})):
        link = type(view.profile.link).of(bytes_per_s)
        other = replace(view, profile=replace(view.profile, link=link))
        planner = "hybrid:actions=swap" if bytes_per_s > 1e9 else "hybrid"
        plan = plan_of(planner, other)
        said = predict(other.profile, plan, view.n_samples, GIB)
        assert said.fits
        assert set(plan.actions) <= actions
        if bytes_per_s > 1e9:
            assert said.step_s == pytest.approx(plain_s, rel=1e-3)

"""Profiles without hardware: a roofline by hand, and traces as compact JSON."""

import json

import pytest

from drlnb.planning.swapping.profile import SwapBlock
from drlnb.planning.swapping.trace import DEVICES, GIB, Device, Op, SwapTrace, analytic, packed, unpacked
from tests.planning.swapping.swap_words import row

PAPER = Device(flops_per_s=100.0, bytes_per_s=10.0, link_bytes_per_s=5.0, context_bytes=7.0)


def op(**given):
    values = {"flops": 0.0, "in_bytes": 20.0, "out_bytes": 10.0, "param_bytes": 0.0, "transient_bytes": 1.0}
    return Op(name="op", **values | {"gradient_bytes": 2.0} | given)


def traced(*ops, derive_ops=((),), **more):
    rows = tuple(row(f"l{i}", i, i) for i in range(len(derive_ops)))
    return SwapTrace(shape_key="net", param_bytes=4.0, ops=ops, rows=rows, derive_ops=derive_ops, **more)


@pytest.fixture
def paper(monkeypatch):
    """Let there be a device with round numbers."""
    monkeypatch.setitem(DEVICES, "paper", PAPER)
    return "paper"


def test_memory_is_the_roof_of_what_computes_little(paper):
    """Thirty bytes at ten per second, and six microseconds; back it reads its input twice."""
    (tick,) = analytic(traced(op()), paper, 8).ticks
    assert tick.forward_s == pytest.approx((6e-6, 3.0))
    assert tick.backward_s == pytest.approx((6e-6, 5.0))
    assert (tick.forward_transient_bytes, tick.backward_transient_bytes) == ((0.0, 1.0), (0.0, 2.0))


def test_parameters_are_read_once_and_their_gradients_written(paper):
    """Whatever the batch: one byte of each forward, three back."""
    (tick,) = analytic(traced(op(param_bytes=20.0)), paper, 8).ticks
    assert tick.forward_s == pytest.approx((6e-6 + 2.0, 3.0))
    assert tick.backward_s == pytest.approx((6e-6 + 6.0, 5.0))


def test_arithmetic_is_the_roof_of_what_computes_much(paper):
    """Twice of it back, in two launches; which roof it is depends on the batch."""
    heavy = traced(op(flops=1000.0, param_bytes=200.0))
    (tick,) = analytic(heavy, paper, 8).ticks
    assert tick.forward_s == pytest.approx((6e-6, 10.0))
    assert tick.backward_s == pytest.approx((12e-6, 20.0))
    (alone,) = analytic(heavy, paper, 1).ticks
    assert alone.forward_s == pytest.approx((6e-6 + 20.0, 3.0)), "a single sample waits for the parameters"


def test_what_is_derived_takes_its_operations_again(paper):
    """Each reads and writes once, and is launched once for all samples."""
    of = analytic(traced(op(), op(in_bytes=10.0), derive_ops=((), (0, 1))), paper, 2)
    assert [each.derive_s_per_sample for each in of.rows] == pytest.approx([0.0, 5.0 + 6e-6])


def test_a_device_has_a_context_and_a_link(paper):
    """Parameters stand there three times: themselves, their gradients and the momentum."""
    of = analytic(traced(op()), paper, 1)
    assert of.fixed_bytes == 7.0 + 3 * 4.0
    assert of.link.d2h == of.link.h2d == ((0, 5.0),)
    assert (of.device_kind, of.shape_key) == ("paper", "net")


def test_the_presets_are_those_of_the_page():
    """RTX 2080 Ti and H200 with TF32, under the same cap."""
    old, new = DEVICES["2080ti"], DEVICES["h200_tf32"]
    assert (old.flops_per_s, old.bytes_per_s, old.link_bytes_per_s) == (8.0e12, 431e9, 11.5e9)
    assert (new.flops_per_s, new.bytes_per_s, new.link_bytes_per_s) == (67e12, 3.1e12, 50e9)
    assert old.memory_bytes == new.memory_bytes == 11 * GIB


def test_a_trace_comes_back_from_its_columns():
    """With blocks or without; names stand once."""
    blocks = (SwapBlock(path="b", first_tick=0, last_tick=1, rows=(("l0", 0), ("l1", 0))),)
    for of in (traced(op()), traced(op(), op(flops=3.0), derive_ops=((), (0,)), blocks=blocks)):
        text = packed(of)
        assert unpacked(text) == of
        assert text.count("transient_bytes") == 1
    assert json.loads(text)["ops"]["flops"] == [0.0, 3.0]

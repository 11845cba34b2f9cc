"""Processes that share devices evenly: by hand, by laws, and against small steps of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.views.leasing.ghosts import Process, ends

SECONDS = st.integers(0, 40).map(lambda n: n / 8)


@st.composite
def processes(draw):
    n = draw(st.integers(0, 4))
    pieces = draw(st.lists(st.tuples(SECONDS, SECONDS), min_size=n, max_size=n))
    devices = draw(st.sampled_from([(0,), (1,), (0, 1)]))
    return Process(
        rests=tuple(r for r, _ in pieces), computes=tuple(c for _, c in pieces), last_rest=draw(SECONDS),
        devices=devices,
    )  # fmt: skip


def alone(one):
    return sum(one.rests) + sum(one.computes) + one.last_rest


def in_steps(many, step):
    """Return the same ends by moving all of them on in equal steps: slower, and less exact."""
    state = [[x for pair in zip(one.rests, one.computes, strict=True) for x in pair] + [one.last_rest] for one in many]
    at, left, ended, t = [0] * len(many), [parts[0] for parts in state], [None] * len(many), 0.0
    while any(end is None for end in ended):
        for i, parts in enumerate(state):
            while ended[i] is None and left[i] <= 1e-9:
                at[i] += 1
                if at[i] == len(parts):
                    ended[i] = t
                else:
                    left[i] = parts[at[i]]
        busy = [i for i in range(len(many)) if ended[i] is None and at[i] % 2]
        for i in range(len(many)):
            if ended[i] is None:
                n = max(sum(d in many[k].devices for k in busy) for d in many[i].devices) if i in busy else 1
                left[i] -= step / n
        t += step
    return ended


def test_three_on_one_device_by_hand():
    """A computes from 0, b and c from 1: a third each until a's last 1 s is done at 4; then a half each.

    B has 3 - 1 = 2 s left at 4 and c 1: c ends at 6, b, alone by then with 1 s left, at 7.
    """
    a, b, c = (Process(rests=(r,), computes=(s,)) for r, s in ((0.0, 2.0), (1.0, 3.0), (1.0, 2.0)))
    assert ends([a, b, c]) == pytest.approx((4.0, 7.0, 6.0))


def test_a_process_on_two_devices_is_as_slow_as_on_the_busiest():
    """Beside one neighbour on one of its devices, it is at half speed, and so is the neighbour."""
    gang = Process(rests=(0.0,), computes=(1.0,), devices=(0, 1))
    assert ends([gang, Process(rests=(0.0,), computes=(1.0,), devices=(1,))]) == pytest.approx((2.0, 2.0))


def test_nothing_to_do_ends_at_once():
    """No processes, no pieces."""
    assert ends([]) == ()
    assert ends([Process(rests=(), computes=(), last_rest=2.0)]) == (2.0,)


@given(st.lists(processes(), max_size=4))
def test_nobody_is_faster_than_alone_and_no_device_than_its_work(many):
    """Each takes its time alone at least, and at most that and the others' computing; a device works at full speed."""
    found = ends(many)
    total = sum(sum(one.computes) for one in many)
    for one, end in zip(many, found, strict=True):
        assert alone(one) - 1e-6 <= end <= alone(one) + total * 1.001 + 1e-6
    for device in (0, 1):
        mine = [(one, end) for one, end in zip(many, found, strict=True) if one.devices == (device,)]
        work = sum(sum(one.computes) for one, _ in mine)
        assert max((end for _, end in mine), default=0.0) >= work - 1e-6


@given(st.lists(processes(), max_size=3))
def test_one_by_one_on_devices_of_their_own_they_are_as_alone(many):
    """Who shares nothing waits for nobody."""
    own = [
        Process(rests=one.rests, computes=one.computes, last_rest=one.last_rest, devices=(k,))
        for k, one in enumerate(many)
    ]
    assert ends(own) == pytest.approx([alone(one) for one in many])


def test_against_small_steps():
    """Three processes with several pieces on two devices: the same ends within the steps' error."""
    many = [
        Process(rests=(0.5, 1.0, 0.25), computes=(1.0, 0.5, 2.0), last_rest=0.5, devices=(0,)),
        Process(rests=(0.25, 0.5), computes=(2.0, 1.0), devices=(0,)),
        Process(rests=(1.0, 0.125), computes=(0.75, 1.5), devices=(0, 1)),
    ]
    assert ends(many) == pytest.approx(in_steps(many, 1 / 1024), abs=0.02)

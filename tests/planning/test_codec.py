"""A machine's state survives the way through JSON, and what is not of it is refused."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.codec import TRANSIENT, from_plain, to_plain
from drlnb.records.columns.leasing import LeaseRenewed
from drlnb.records.ids import Fence


@dataclass(slots=True)
class Inner:
    n: int = 0
    at_s: float | None = None


@dataclass(slots=True)
class State:
    phase: Literal["new", "old"] = "new"
    inner: Inner = field(default_factory=Inner)
    by_number: dict[int, Inner] = field(default_factory=dict)
    by_name: Mapping[str, object] = field(default_factory=dict)
    fence: Fence | None = None
    pairs: tuple[tuple[int, str], ...] = ()
    seen: set[int] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    story: deque[LeaseRenewed] = field(default_factory=lambda: deque(maxlen=2))
    planner: object = field(default=None, metadata=TRANSIENT)


def through_json(state, **given_):
    return from_plain(type(state), json.loads(json.dumps(to_plain(state))), **given_)


def test_every_kind_of_field_comes_back():
    """Numbers stay numbers as keys, a deque keeps its length, a fence and a record are themselves again."""
    fence = Fence(epoch=1, token=2)
    event = LeaseRenewed(t=1.0, fence=fence)
    state = State(
        phase="old", inner=Inner(2, 1.5), by_number={3: Inner(4)}, by_name={"a": (1, None)}, fence=fence,
        pairs=((1, "x"),), seen={3, 1}, names=["b", "a"], story=deque([event, event, event], maxlen=2),
    )  # fmt: skip
    back = through_json(state)
    assert back == state
    assert back.story.maxlen == 2
    assert list(back.by_number) == [3]


def test_a_header_may_have_turned_lists_into_tuples():
    """Whatever sequence holds a field's values, the field's own type comes back."""
    plain = to_plain(State(names=["a"], seen={1})) | {"names": ("a",), "seen": (1,)}
    assert from_plain(State, plain) == State(names=["a"], seen={1})


def test_a_transient_field_is_given_anew():
    """No snapshot holds it."""
    planner = object()
    assert "planner" not in to_plain(State(planner=planner))
    assert through_json(State(planner=planner), planner=planner).planner is planner
    assert through_json(State(planner=planner)).planner is None


def test_equal_sets_have_equal_snapshots():
    """In whichever order their items came."""
    assert to_plain(State(seen={8, 1, 16})) == to_plain(State(seen={16, 8, 1}))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"phas": 1}, "unknown field 'phas'"), ({"phase": None}, "no field 'phase'")],
)
def test_a_snapshot_of_something_else_is_refused(change, words):
    """By the name of the field that is missing, or too much."""
    plain = to_plain(State())
    plain = {k: v for k, v in plain.items() if k not in change} | {k: v for k, v in change.items() if v}
    with pytest.raises(ValueError, match=words):
        from_plain(State, plain)


def test_what_has_no_plain_form_is_named():
    """A function in a state is a defect that is told at once."""
    with pytest.raises(TypeError, match="no plain form of complex 1j"):
        to_plain(State(by_name={"a": 1j}))


def test_an_annotation_without_a_decoder_is_named():
    """Told when a state of this kind is read for the first time."""

    @dataclass
    class Odd:
        z: complex

    with pytest.raises(TypeError, match="no decoder for <class 'complex'>"):
        from_plain(Odd, {"z": 1})

    @dataclass
    class Either:
        z: complex | int

    with pytest.raises(TypeError, match="no decoder for one of"):
        from_plain(Either, {"z": 1})


@given(st.dictionaries(st.integers(), st.builds(Inner, st.integers(), st.none() | st.floats(allow_nan=False))))
def test_restored_is_equal(by_number):
    """For any numbers."""
    assert through_json(State(by_number=by_number)).by_number == by_number

"""Colours and words: the same in Python, in JavaScript, and tomorrow."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.views.drawing import theme, words

GOLDEN = json.loads((Path(__file__).parent / "js" / "words.golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "arguments", "said"), GOLDEN["words"])
def test_words_are_the_golden_ones(name, arguments, said):
    """One file fixes what both languages say."""
    assert getattr(words, name)(*arguments) == said


def test_styles_are_the_golden_ones():
    """Colour, letter and hatch of the first and later things."""
    found = theme.styles(f"t{i}" for i in range(30))
    assert [[s.letter, s.colour, s.hatch] for s in found] == GOLDEN["styles"]


@given(names=st.lists(st.text(max_size=4), unique=True, max_size=60), n=st.integers(0, 60))
def test_a_name_appended_changes_no_earlier_style(names, n):
    """Colours are stable under append, and no two things look alike."""
    assert theme.styles(names)[:n] == theme.styles(names[:n])
    looks = {(s.colour, s.hatch) for s in theme.styles(names[:40])}
    assert len(looks) == len(names[:40])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_not_known_is_a_dash(value):
    """No figure says nan."""
    assert {words.duration(value), words.percent(value), words.number(value), words.milliseconds(value)} == {"-"}


def test_a_number_beyond_all_floats_is_a_dash():
    """Shares of a vanishing span are finite, and a hundred times as much is not."""
    assert {words.percent(1e307), words.percent(-1e307), words.milliseconds(1e307)} == {"-"}
    assert words.axis_seconds(0.0, 1e-312) == "0.000000000000", "a tick of a vanishing span has twelve digits"


@given(seconds=st.floats(-1e7, 1e7))
def test_a_duration_has_a_unit(seconds):
    """Every duration ends in a unit, and none says 60 s or 60 min."""
    said = words.duration(seconds)
    assert said.endswith((" ms", " s", " min"))
    assert " 60 s" not in f" {said}"
    assert " 60 min" not in f" {said}"


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (words.slots_busy(1, 1), "1 of 1 slots busy"),
        (words.slots_busy(0, 0), "no slots yet"),
        (words.plural(1, "task"), "1 task"),
        (words.plural(20480, "step"), "20,480 steps"),
    ],
)
def test_sentences(sentence, said):
    """Word for word."""
    assert sentence == said

"""What is no data is refused with the fragment, in one line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.rl.zoo.literals import ACTIVATIONS, parse_data

KINDS = "literals, dict(...) and activations such as nn.ReLU are taken, nothing is ever executed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dict(a=1, b=f(2))", f"is not data: f(2) ({KINDS})"),
        ("[1, x]", f"is not data: x ({KINDS})"),
        ("nn.Bilinear", f"is not data: nn.Bilinear ({KINDS})"),
        ("os.nn.ReLU", f"is not data: os.nn.ReLU ({KINDS})"),
        ("ReLU", f"is not data: ReLU ({KINDS})"),
        ("--1", f"is not data: --1 ({KINDS})"),
        ("1j", f"is not data: 1j ({KINDS})"),
        ("{1, 2}", "is not data: {1, 2} (" + KINDS + ")"),
        ("dict([1])", f"is not data: dict([1]) ({KINDS})"),
        ("x" * 100, f"is not data: {'x' * 77}... ({KINDS})"),
        ("{'a': 1, 'a': 2}", "names 'a' twice"),
        ("{**{'a': 1}}", "takes texts as keys, not **"),
        ("{a: 1}", "takes texts as keys, not a"),
        ("dict(**b)", "takes no ** in dict(...): b"),
        ("[" * 22 + "]" * 22, "is nested deeper than 20 levels"),
        ("a b", "cannot be read as data (invalid syntax): a b"),
        ("\x00", "cannot be read as data (source code string cannot contain null bytes): \x00"),
        ("1" * 10_001, "text must have at most 10000 characters, got 10001"),
    ],
)
def test_the_fragment_is_quoted(text, said):
    """Only the part that is wrong, cut where it is long."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        parse_data(text)


@given(st.integers(0, 10**20) | st.floats(0, 1e300), st.sampled_from(["", "-", "+"]))
def test_signs_are_read(number, sign):
    """A sign before a number is the only operator."""
    assert parse_data(f"{sign}{number!r}") == (-number if sign == "-" else number)


@pytest.mark.parametrize("module", ["nn", "th.nn", "torch.nn"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_read_by_their_names(module, name):
    """Wherever the zoo takes the class from, in any depth."""
    assert parse_data(f"dict(a=[({module}.{name},)])") == {"a": [[name.lower()]]}


def test_twenty_levels_below_the_first_are_read():
    """The limit itself is good."""
    found, depth = parse_data("[" * 21 + "]" * 21), 0
    while found:
        (found,) = found
        depth += 1
    assert depth == 20

"""Errors of a user's functions travel as themselves, or in words."""

import pytest

from drlnb.runtime.ipc.pickling import JobFailed, pack_error, unpack_error


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


class MuteLater(Exception):
    """It has words where it was raised; what is rebuilt of it has none."""

    def __init__(self, words=None):
        super().__init__()
        self.words = words

    def __str__(self):
        return self.words or 1 / 0

    def __reduce__(self):
        return MuteLater, ()


def test_an_error_comes_back_as_itself():
    """With where it was raised."""
    back = unpack_error(pack_error(ValueError("mine")))
    assert (type(back), str(back)) == (ValueError, "mine")
    assert "ValueError: mine" in str(back.__cause__)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Mute(), "Mute: no words of its own, its __str__ raises RuntimeError"),
        (KeyboardInterrupt("now"), "KeyboardInterrupt: now"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_one_that_cannot_travel_is_told_in_words(error, words):
    """Whoever gets it can ask for its text."""
    back = unpack_error(pack_error(error))
    assert (type(back), str(back)) == (JobFailed, words)


def test_one_whose_words_are_lost_on_the_way_is_told_in_those_that_it_had():
    """It is rebuilt without what they were made of."""
    assert str(unpack_error(pack_error(MuteLater("here")))) == "MuteLater: here"

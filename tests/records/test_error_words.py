"""What an error says."""

import pickle

import pytest

from drlnb.records import errors


def test_a_config_error_lists_all_problems():
    """One problem may come as plain text."""
    assert str(errors.ConfigError(["a is 1", "b is 2"])) == "a is 1; b is 2"
    assert errors.ConfigError("a is 1").problems == ("a is 1",)


def test_a_forbidden_transition_tells_the_story():
    """Machine, state, event and the last records are in the message."""
    error = errors.InvalidTransition("round of a", "paused", "event", ["one", "two"])
    assert str(error) == "round of a in state paused cannot take event\n    one\n    two"
    assert error.story == ("one", "two")
    assert str(errors.InvalidTransition("pool", "x", "y")) == "pool in state x cannot take y"


def test_a_peers_fault_names_the_peer():
    """And it is a ConnectionError, as a caller expects."""
    error = errors.PeerError("n0", "no answer in 15 s")
    assert str(error) == "n0: no answer in 15 s"
    assert isinstance(error, ConnectionError)


def test_a_lost_lease_comes_back_from_another_process():
    """Fence and reason survive the way, and are said."""
    error = pickle.loads(pickle.dumps(errors.LeaseLost("#7", "nobody renewed it")))
    assert (error.fence, error.reason) == ("#7", "nobody renewed it")
    assert str(error) == "lease #7 is lost: nobody renewed it"


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name[0].isupper()])
def test_input_errors_are_what_a_person_can_mend(name):
    """They exit with 2; the world's faults and ours do not."""
    ours = {"InvalidTransition", "LeaseLost", "NonFinite", "PeerError", "TrainingFailed"}
    assert issubclass(getattr(errors, name), errors.InputError) == (name not in ours)

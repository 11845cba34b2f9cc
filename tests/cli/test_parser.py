import argparse

import pytest

from drlnb.cli.main import build_parser
from drlnb.cli.parser import UsageError, parse, reading, seed_list
from drlnb.cli.train import key_values
from drlnb.records.settings import SECONDS, count


@pytest.mark.parametrize(("text", "number"), [("5", 5), ("100_000", 100_000), ("1e5", 100_000), ("1", 1)])
def test_whole_numbers_are_read_in_each_common_form(text, number):
    """A person may write 1e5."""
    assert reading(count(1))(text) == number


@pytest.mark.parametrize("text", ["0", "-3", "abc", "1.5", "nan", "inf", "", "0x10"])
def test_other_numbers_are_refused_with_limit_and_value(text):
    """The message holds what was typed."""
    with pytest.raises(argparse.ArgumentTypeError, match=f"must be a whole number >= 1, got '{text}'"):
        reading(count(1))(text)


@pytest.mark.parametrize("text", ["0", "-1", "1e-7", "1e300", "soon", "nan", "inf", ""])
def test_a_time_limit_is_a_number_of_seconds_that_a_clock_can_keep(text):
    """Or none, for all time; anything else is told with its value."""
    seconds = reading(SECONDS, "none")
    assert (seconds("2.5"), seconds("1e2"), seconds("None")) == (2.5, 100.0, None)
    with pytest.raises(
        argparse.ArgumentTypeError, match=f"must be a number of seconds from 0.001 to 1e7, or none, got '{text}'"
    ):
        seconds(text)


def test_the_deadline_of_environments_is_an_option():
    """60 s where nothing is said, as of `fleet.train`."""
    assert parse(build_parser(), ["train", "A-v0"]).env_timeout == 60.0
    assert parse(build_parser(), ["train", "A-v0", "--env-timeout", "5"]).env_timeout == 5.0


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("1,5,9", [1, 5, 9]), ("3-3,0", [3, 0]), ("1,0-2", [1, 0, 2])]
)
def test_seeds_are_ranges_and_lists(text, seeds):
    """Both ends belong to a range; a seed twice would train the same task twice, so it counts once."""
    assert seed_list(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [("a", "as 0 or 0-4 or 0, 3, got 'a'"), ("4-0", "must go up"), ("-1", "as 0 or 0-4"), ("0-1000", "at most 1000")],
)
def test_seeds_that_make_no_sense_are_refused(text, message):
    """The message has what was typed, or the limit."""
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        seed_list(text)


def test_keys_and_values_are_split_at_the_first_sign():
    """A value may hold the sign itself; the same key twice is a slip."""
    assert key_values("--hyper", ["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UsageError, match="--hyper names a twice"):
        key_values("--hyper", ["a=1", "a=2"])


def test_environments_may_follow_options():
    """Train takes them wherever they stand (not right after an option that takes several words)."""
    args = parse(build_parser(), ["train", "A-v0", "--gpus", "2", "B-v0", "--hyper", "a=1", "b=2", "--hyper", "c=3"])
    assert (args.envs, args.gpus, args.hyper) == (["A-v0", "B-v0"], 2, ["a=1", "b=2", "c=3"])


def test_nothing_is_chosen_where_nothing_is_said():
    """Defaults of the main job: None leaves the choice to the tuned settings and to the cluster."""
    args = parse(build_parser(), ["train", "A-v0"])
    assert (args.algo, args.seed, args.seeds, args.on_existing, args.json) == (None, 0, None, "error", False)
    chosen = (args.gpus, args.workers, args.client, args.collectors, args.n_envs, args.total_timesteps, args.out)
    assert chosen == (None,) * 7


def test_options_are_never_guessed_from_their_beginning():
    """An option of a later release must not change what an old command line means."""
    with pytest.raises(UsageError, match=r"unknown option --work; did you mean '--workers'\?"):
        parse(build_parser(), ["train", "A-v0", "--work", "2"])

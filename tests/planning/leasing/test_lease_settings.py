"""Settings of leasing are checked together, and every problem is listed."""

from dataclasses import asdict

import pytest

from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.leasing.settings import HOLD_PLANNERS, LeasingSettings
from drlnb.records.errors import ConfigError


def test_defaults():
    """Defaults are behaviour."""
    assert asdict(LeasingSettings()) == {
        "hold": "yield",
        "queue": "fifo",
        "age_quantum_s": 30.0,
        "switch_limit_frac": 0.2,
        "ttl_s": 10.0,
        "holder_ttl_s": 8.0,
        "renew_s": 2.0,
        "poll_s": 20.0,
        "lost_polls": 3,
        "reap_s": 0.25,
        "lag_threshold_s": 0.5,
        "max_hold_s": 120.0,
        "max_hold_factor": 8.0,
        "compute_timeout_s": 60.0,
        "kill_grace_s": 3.0,
        "strikes": 3,
        "quarantine": True,
        "residency": True,
        "estimates": True,
    }


def test_from_mapping_keeps_the_other_defaults():
    """Only the given keys differ."""
    settings = LeasingSettings.from_mapping({"hold": "last", "ttl_s": 30})
    assert (settings.hold, settings.ttl_s, settings.holder_ttl_s) == ("last", 30, 8.0)


def test_every_problem_is_reported_at_once():
    """One error lists the unknown keys with their nearest names, and all wrong values."""
    with pytest.raises(ConfigError) as caught:
        LeasingSettings.from_mapping({
            "ttl": 5,
            "qqq": 1,
            "hold": "best",
            "queue": "lifo",
            "strikes": 0,
            "lost_polls": -1,
            "poll_s": float("inf"),
            "max_hold_factor": -1,
            "switch_limit_frac": None,
            "estimates": 1,
        })
    assert caught.value.problems == (
        "unknown key 'ttl'; did you mean 'ttl_s'?",
        "unknown key 'qqq'",
        "hold planner must be one of round, yield, last, got 'best'",
        "queue must be one of fifo, drr, got 'lifo'",
        "strikes must be a whole number >= 1, got 0",
        "lost_polls must be a whole number >= 0, got -1",
        "poll_s must be a number of seconds from 0.001 to 1e7, got inf",
        "max_hold_factor must be a number from 0 to 1e9, got -1",
        "switch_limit_frac must be a number from 0 to 1e9, got None",
        "estimates must be true or false, got 1",
    )


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "2", None, True])
def test_durations_are_finite_and_positive(value):
    """Zero, negative, not a number, text, nothing and yes are no durations."""
    with pytest.raises(ConfigError, match=r"ttl_s must be a number of seconds from 0.001 to 1e7, got"):
        LeasingSettings(ttl_s=value)


@pytest.mark.parametrize("value", [0, 1.5, True, "3"])
def test_strikes_are_counted(value):
    """Strikes are a whole number from 1."""
    with pytest.raises(ConfigError, match=f"strikes must be a whole number >= 1, got {value!r}"):
        LeasingSettings(strikes=value)


@pytest.mark.parametrize("changed", [{"renew_s": 8.0}, {"holder_ttl_s": 10.0}, {"holder_ttl_s": 1.0}, {"ttl_s": 8.0}])
def test_a_holder_must_stop_before_the_table_gives_up(changed):
    """The order renew < holder_ttl < ttl is strict."""
    with pytest.raises(ConfigError, match="renew_s < holder_ttl_s < ttl_s must hold"):
        LeasingSettings(**changed)


@pytest.mark.parametrize("name", HOLD_PLANNERS)
def test_each_hold_setting_names_a_planner(name):
    """What the settings accept exists."""
    assert HOLD.build(name).name == name

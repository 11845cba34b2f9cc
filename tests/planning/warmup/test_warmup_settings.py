"""The settings of warm-up."""

import re

import pytest

from drlnb.planning.warmup import WARMUP, WarmupSettings
from drlnb.records.errors import ConfigError


def test_defaults():
    """Defaults are behaviour: saa on parked, forked collectors, equal prices, 64 / 32 / 8 rounds, 25 candidates."""
    settings = WarmupSettings()
    assert (settings.planner, settings.collector_mode, settings.start_mode) == ("saa", "park", "zygote")
    assert (settings.rho, settings.kappa) == (1.0, 1.0)
    assert (settings.window, settings.filter_window, settings.min_rounds, settings.n_candidates) == (64, 32, 8, 25)
    assert "patent" in WARMUP.names


def test_everything_that_is_wrong_is_told_at_once():
    """Unknown keys with the nearest one, values with their limits."""
    wrong = {
        "planer": "saa", "planner": "ssa", "collector_mode": "stop", "start_mode": "fork", "rho": 0,
        "kappa": float("inf"), "window": 1, "min_rounds": 2.0, "n_candidates": True,
    }  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        WarmupSettings.from_mapping(wrong)
    assert caught.value.problems == (
        "unknown key 'planer'; did you mean 'planner'?",
        "warmup planner must be one of cold, keep, patent, saa, got 'ssa'; did you mean 'saa'?",
        "collector_mode must be one of park, respawn, got 'stop'",
        "start_mode must be one of zygote, spawn, got 'fork'",
        "rho must be a number from 1e-9 to 1e9, got 0",
        "kappa must be a number from 1e-9 to 1e9, got inf",
        "window must be a whole number >= 2, got 1",
        "min_rounds must be a whole number >= 2, got 2.0",
        "n_candidates must be a whole number >= 2, got True",
    )


@pytest.mark.parametrize("change", [{"window": 7}, {"filter_window": 7}])
def test_fewer_rounds_than_a_plan_needs_are_refused(change):
    """With a window below `min_rounds` nothing would ever be planned; the message holds both numbers."""
    with pytest.raises(ConfigError, match=re.escape("min_rounds must be <= window and filter_window (7), got 8")):
        WarmupSettings(**change)


def test_a_key_like_nothing_known_gets_no_hint():
    """Nothing is near: nothing is suggested."""
    with pytest.raises(ConfigError, match=r"^unknown key 'zzz'$"):
        WarmupSettings.from_mapping({"zzz": 1})


def test_keys_that_are_not_given_keep_their_defaults():
    """Only what is named changes."""
    assert WarmupSettings.from_mapping({"rho": 10}) == WarmupSettings(rho=10)

"""Which settings of scheduling can change while tasks train, and what is said of a wrong one."""

import re
from pathlib import Path

import pytest

from drlnb.planning.live_settings import POOL_KEYS, SCHEDULING_KEYS, TASK_KEYS, owner, setting_problem

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_each_key_has_one_owner():
    """A task's own or the pool's, never both."""
    assert not set(TASK_KEYS) & set(POOL_KEYS)
    assert {owner(key) for key in TASK_KEYS} == {"task"}
    assert {owner(key) for key in POOL_KEYS} == {"pool"}
    assert owner("rl.gamma") == owner("leasing") == owner("") == ""


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("leasing.hold", "never", "leasing.hold: hold must be one of round, yield, last, got 'never'"),
        ("leasing.ttl_s", 0, "leasing.ttl_s: ttl_s must be a finite number > 0 s, got 0"),
        ("leasing.ttl_s", float("nan"), "ttl_s must be a finite number > 0 s, got nan"),
        ("leasing.ttl_s", 7.0, "renew_s < holder_ttl_s < ttl_s must hold, got 2 s, 8 s, 7 s"),
        ("leasing.queue", "lifo", "queue must be one of fifo, drr, got 'lifo'"),
        ("task.priority", "high", "task.priority must be a whole number in"),
        ("agent.collector_slots", 0, "agent.collector_slots must be 'auto' or a whole number in 1..1024, got 0"),
        ("task.priority", True, "task.priority must be a whole number in"),
        ("warmup.planner", "oracle", "planner must be one of cold, keep, seed, mean, quantile, saa, progress"),
        ("warmup.rho", float("inf"), "rho must be a finite number > 0, got inf"),
        ("warmup.window", 4, "min_rounds must be <= window and filter_window (4), got 8"),
        ("warmup.colour", 1, "unknown setting 'warmup.colour'"),
        ("leasing.ttl", 1, "unknown setting 'leasing.ttl'; did you mean 'leasing.ttl_s'?"),
    ],
)
def test_wrong_values_are_one_clear_line(key, value, said):
    """Key, limit, value, and the nearest name."""
    assert said in setting_problem(key, value)


def test_collectors_are_ended_only_where_environments_go_on():
    """The same value, judged by what the probe has found."""
    assert "frozen and thawed exactly" in setting_problem("warmup.collector_mode", "respawn")
    assert setting_problem("warmup.collector_mode", "respawn", can_snapshot=True) == ""
    assert setting_problem("warmup.collector_mode", "keep") == ""


def test_every_setting_is_on_its_page():
    """Each key as code, alone or as `.name` after the first of its group."""
    words = set(re.findall(r"`([^`]+)`", PAGE.read_text(encoding="utf-8")))
    missing = [key for key in SCHEDULING_KEYS if key not in words and f".{key.partition('.')[2]}" not in words]
    assert not missing

"""Which settings of scheduling can change while tasks train, and what is said of a wrong one."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.settings import (
    SETTINGS,
    TASK_KEYS,
    begun_with,
    owner,
    setting_problem,
    settings_problems,
    takes_effect,
    unknown_setting,
)
from drlnb.planning.warmup import WarmupSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_each_key_has_one_owner():
    """A task's own or the pool's, never both."""
    assert {owner(key) for key in TASK_KEYS} == {"task"}
    assert {owner(key) for key in SETTINGS.keys() - {*TASK_KEYS}} == {"pool"}
    assert owner("rl.gamma") == owner("leasing") == owner("") == ""


def test_every_setting_of_the_rooms_can_be_changed():
    """A field that is new there is a key here, with its owner and its time."""
    rooms = {f"leasing.{field.name}" for field in fields(LeasingSettings)}
    rooms |= {f"warmup.{field.name}" for field in fields(WarmupSettings)}
    others = {"task.priority", "agent.collector_slots", "slot.drain", "slot.undrain"}
    gathering = ("quorum", "deadline_s", "max_age_s", "late", "steal")
    others |= {f"batching.{name}" for name in ("planner", "collect", *gathering)}
    others |= {"distribution.plan", "placement.planner", "placement.allowed", "placement.locality_frac"}
    others |= {f"swapping.{name}" for name in ("planner", "memory_budget_bytes", "pin")}
    assert set(SETTINGS) == rooms | others


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "swapping.memory_budget_bytes",
            "12 apples",
            "swapping.memory_budget_bytes must be a size from 1B to 8388607TiB, or none, got '12 apples'",
        ),
        ("swapping.memory_budget_bytes", 0, "must be a size from 1B to 8388607TiB, or none, got 0"),
        ("swapping.planner", "qtable:w=2", "swapping planner qtable:w=2.0: w must be a number from 0 to 1, got 2.0"),
        ("swapping.planner", "qtable:v=1", "swapping planner qtable takes n_trials, alpha, gamma, epsilon, w, got"),
        ("swapping.planner", "clever", "swapping planner must be one of none, all, vdnn_conv,"),
        (
            "swapping.pin",
            ["conv#0"],
            "swapping.pin must be rows such as net.features.0#0, each with one of keep,",
        ),
        (
            "swapping.pin",
            {"conv#0": "burn"},
            "each with one of keep, squeeze, derive, swap, block, got {'conv#0': 'burn'}",
        ),
        ("leasing.hold", "never", "leasing.hold: hold planner must be one of round, yield, last, got 'never'"),
        ("leasing.renew_s", 1e-320, "renew_s must be a number of seconds from 0.001 to 1e7, got 1e-320"),
        ("leasing.reap_s", 1e-9, "reap_s must be a number of seconds from 0.001 to 1e7, got 1e-09"),
        (
            "leasing.compute_timeout_s",
            1e-9,
            "compute_timeout_s must be a number of seconds from 0.001 to 1e7, got 1e-09",
        ),
        (5, 0, "a setting is named by a word such as 'warmup.rho', got 5"),
        ("leasing.ttl_s", 0, "leasing.ttl_s: ttl_s must be a number of seconds from 0.001 to 1e7, got 0"),
        ("leasing.ttl_s", float("nan"), "ttl_s must be a number of seconds from 0.001 to 1e7, got nan"),
        ("leasing.ttl_s", 7.0, "renew_s < holder_ttl_s < ttl_s must hold, got 2 s, 8 s, 7 s"),
        ("leasing.queue", "lifo", "queue must be one of fifo, drr, got 'lifo'"),
        ("task.priority", "high", "task.priority must be a whole number in"),
        ("agent.collector_slots", 0, "agent.collector_slots must be 'auto' or a whole number in 1..1024, got 0"),
        ("warmup.collector_mode", "keep", "collector_mode must be one of park, respawn, got 'keep'"),
        ("task.priority", True, "task.priority must be a whole number in"),
        ("warmup.planner", "oracle", "planner must be one of cold, keep, patent, saa"),
        ("warmup.rho", float("inf"), "rho must be a number from 1e-9 to 1e9, got inf"),
        ("warmup.window", 4, "min_rounds must be <= window and filter_window (4), got 8"),
        ("warmup.colour", 1, "unknown setting 'warmup.colour'"),
        ("leasing.ttl", 1, "unknown setting 'leasing.ttl'; did you mean 'leasing.ttl_s'?"),
    ],
)
def test_wrong_values_are_one_clear_line(key, value, said):
    """Key, limit, value, and the nearest name."""
    assert said in setting_problem(key, value)


LEASE = {"leasing.renew_s": 1.0, "leasing.holder_ttl_s": 3.0, "leasing.ttl_s": 4.0}


@pytest.mark.parametrize(
    ("key", "value", "in_force", "said"),
    [
        ("leasing.ttl_s", 5.0, LEASE, ""),
        ("leasing.ttl_s", 3.0, LEASE, "must hold, got 1 s, 3 s, 3 s"),
        ("leasing.renew_s", 8.0, {"leasing.holder_ttl_s": 20.0, "leasing.ttl_s": 30.0}, ""),
        ("warmup.min_rounds", 40, {"warmup.filter_window": 50}, ""),
        ("warmup.window", 16, {"warmup.min_rounds": 20}, "min_rounds must be <= window and filter_window (16), got 20"),
        # What holds elsewhere, or is no setting, says nothing here.
        ("warmup.rho", 2.0, {**LEASE, "warmup.min_rounds": 20, "rl.gamma": 0.9, "task.priority": 3}, ""),
    ],
)
def test_a_value_is_judged_beside_what_is_in_force(key, value, in_force, said):
    """Not beside the defaults: 8 s of `holder_ttl_s`, 32 of `filter_window`."""
    problem = setting_problem(key, value, in_force=in_force)
    assert said in problem if said else problem == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"warmup.min_rounds": 40, "warmup.filter_window": 40}, []),
        (
            {"warmup.window": 16, "warmup.min_rounds": 20},
            ["warmup.min_rounds: min_rounds must be <= window and filter_window (16), got 20: nothing would ever be p"],
        ),
        (
            {"warmup.rho": 0, "warmup.lead": 3, "leasing.switch_limit_frac": -1},
            [
                "unknown setting 'warmup.lead'",
                "leasing.switch_limit_frac: switch_limit_frac must",
                "warmup.rho: rho must",
            ],
        ),
        (
            {"leasing.renew_s": 9, "leasing.holder_ttl_s": 5},
            ["leasing.renew_s: renew_s < holder_ttl_s < ttl_s must hold, got 9 s, 5 s, 10 s"],
        ),
        (
            {"leasing.holder_ttl_s": 5, "leasing.ttl_s": 5},
            ["leasing.holder_ttl_s, leasing.ttl_s: renew_s < holder_ttl_s < ttl_s must hold, got 2 s, 5 s, 5 s"],
        ),
    ],
)
def test_what_is_given_together_is_judged_together(changes, said):
    """Each complaint names the setting that it begins with, or all that were given of its room."""
    problems = settings_problems(changes)
    assert len(problems) == len(said)
    assert all(problem.startswith(begin) for problem, begin in zip(problems, said, strict=True))


def test_what_a_run_begins_with_has_the_names_of_its_settings():
    """Its planners too; what is no setting of scheduling is left out."""
    planners = {"hold": "last", "warmup": "keep", "batching": "equal", "swapping": "none"}
    settings = {"env_timeout_s": 60.0, "switch_limit_frac": 0.5, "warmup": {"rho": 2.0}, "priority": 1}
    settings["swapping"] = {"memory_budget_bytes": 5}
    assert begun_with(planners, settings) == {
        "leasing.hold": "last",
        "warmup.planner": "keep",
        "batching.planner": "equal",
        "swapping.planner": "none",
        "swapping.memory_budget_bytes": 5,
        "leasing.switch_limit_frac": 0.5,
        "warmup.rho": 2.0,
    }
    assert begun_with({}, {}) == {}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("warmup.lead", "did you mean 'warmup.planner' or 'warmup.kappa' or 'warmup.window'?"),
        ("ttl_s", "did you mean 'leasing.ttl_s'?"),
        ("warmup.ttl_s", "did you mean 'leasing.ttl_s'?"),
        ("learning_rate", "did you mean 'rl.learning_rate'?"),
        ("slot.dran", "did you mean 'slot.drain' or 'slot.undrain'?"),
        (
            "qqq",
            "; known are leasing.NAME, warmup.NAME, batching.NAME, placement.NAME, distribution.NAME, "
            "swapping.NAME, task.NAME, agent.NAME, slot.NAME, rl.NAME",
        ),
    ],
)
def test_an_unknown_setting_is_told_with_the_nearest(key, said):
    """Alike in letters, or the same name in another room."""
    problem = unknown_setting(key, ["rl.learning_rate"])
    assert problem.startswith(f"unknown setting {key!r}")
    assert problem.endswith(said)


@pytest.mark.parametrize(
    ("value", "slots", "said"),
    [
        ("n0/gpu0", ["n0/gpu1", "n0/gpu0"], ""),
        ("n0/gpu7", ["n0/gpu1", "n0/gpu0"], "slot.drain: the pool has no slot 'n0/gpu7'; it has n0/gpu0, n0/gpu1"),
        ({"n0/gpu0"}, ["n0/gpu0"], "slot.drain: the pool has no slot {'n0/gpu0'}; it has n0/gpu0"),
        ("n0/gpu0", [], "slot.drain: the pool has no slot 'n0/gpu0'; it has none yet"),
    ],
)
def test_a_slot_is_one_of_the_pool(value, slots, said):
    """Those that there are are named."""
    assert setting_problem("slot.drain", value, slots=slots) == said


def test_collectors_are_ended_only_where_environments_go_on():
    """The same value, judged by what the probe has found."""
    assert "frozen and thawed exactly" in setting_problem("warmup.collector_mode", "respawn")
    assert setting_problem("warmup.collector_mode", "respawn", can_snapshot=True) == ""
    assert setting_problem("warmup.collector_mode", "park") == ""


def rows_of_the_page():
    """Yield section, keys, defaults and last cell of each row of the page's tables of settings."""
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        section = line[3:] if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and section[:4] in {"Each", "The "}:
            codes = re.findall(r"`([^`]+)`", cells[0])
            room = codes[0].partition(".")[0]
            yield section, [room + code if code.startswith(".") else code for code in codes], cells[-3], cells[-1]


def test_the_page_says_of_every_setting_when_it_counts():
    """In the last column of its row, in the words that a terminal says, too."""
    told = {key: counts for _, keys, _, counts in rows_of_the_page() for key in keys}
    assert told == {key: takes_effect(key) for key in (*SETTINGS, "rl.NAME")}


def test_the_page_says_whose_each_setting_is_and_its_default():
    """Its section is its owner's; several defaults stand in the order of their keys."""
    for section, keys, cell, _ in rows_of_the_page():
        defaults = [text.strip("`") for text in cell.split(", ")] if cell else [""] * len(keys)
        for key, said in zip(keys, defaults, strict=True):
            if key in SETTINGS:
                default = SETTINGS[key].default
                is_short = isinstance(default, float) and key != "batching.quorum"  # of which 1 would be a count
                assert SETTINGS[key].owner == ("task" if section.startswith("Each task") else "pool")
                assert said == ("" if default is None else f"{default:g}" if is_short else f"{default}".lower())


def test_a_planner_of_the_users_own_is_judged_by_whoever_has_it():
    """The setting's kind lets its name pass: only the run that was given it knows it."""
    assert setting_problem("distribution.plan", "own:mine") == ""
    assert "must be one of" in setting_problem("distribution.plan", "mine")

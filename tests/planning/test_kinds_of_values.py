"""The kinds of values that settings have, at their bounds, and what is said of a value that is none."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.planning.placement.cpu_slots import CPU_SLOTS
from drlnb.planning.placement.seats import ISOLATION, SEATS, virtual_limit
from drlnb.planning.registry import planner
from drlnb.planning.settings import SETTINGS, SLOT_KEYS, as_config, begun_with, owner, read_setting, setting_problem
from drlnb.planning.warmup.settings import mode_problem
from drlnb.records.errors import ConfigError
from drlnb.records.settings import (
    ANYTHING,
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    SECONDS,
    SHARE,
    choice,
    count,
    fitting,
    is_whole,
    optional,
    quoted,
    size,
)

TINY, NONE = 5e-324, [math.nan, math.inf, -math.inf, "1", None, True, False, [1]]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        (
            SECONDS,
            [0.001, 1, 0.5, 10**7],
            [0, 0.0, TINY, 1e-9, -1, 1e8, 10**400, *NONE],
            "a number of seconds from 0.001 to 1e7",
        ),
        (POSITIVE, [1e-9, 1, 1e9], [0, -1, TINY, 1e308, *NONE], "a number from 1e-9 to 1e9"),
        (NOT_NEGATIVE, [0, 0.0, TINY, 7], [-TINY, -1, 1e10, *NONE], "a number from 0 to 1e9"),
        (SHARE, [0, 0.0, 0.5, 1, 1.0], [-TINY, 1.0000000000000002, 2, *NONE], "a number from 0 to 1"),
        (FLAG, [True, False], [0, 1, "true", None], "true or false"),
        (count(0), [0, 1, 2**63 - 1], [-1, 0.0, 1.0, *NONE], "a whole number >= 0"),
        (count(5), [5], [2**63, 10**400], f"a whole number in 5..{2**63 - 1}"),
        (count(2, 4), [2, 3, 4], [1, 5, 2.0, *NONE], "a whole number in 2..4"),
        (count(-1, 0), [-1, 0], [-2, 1, -0.5, *NONE], "a whole number in -1..0"),
        (choice("a", "b"), ["a", "b"], ["c", "", "A", None, 1], "one of a, b"),
        (PRIORITIES, [-100, 0, 100], [-101, 101, 0.0, *NONE], "a whole number in -100..100"),
        (CPU_SLOTS, ["auto", 1, 1024], ["Auto", 0, 1025, 1.0, *NONE[:3]], "'auto' or a whole number in 1..1024"),
        (fitting("short", lambda value: len(value) < 2), ["", "a"], ["ab"], "short"),
    ],
)
def test_a_kind_takes_what_lies_within_its_bounds_and_names_what_does_not(kind, good, bad, words):
    """The bounds themselves, their nearest neighbours, and what is no number at all."""
    assert [value for value in good if kind.problem("x", value)] == []
    assert [kind.problem("x", value) for value in bad] == [f"x must be {words}, got {quoted(value)}" for value in bad]


@given(st.integers(), st.integers(), st.integers())
def test_a_count_is_a_range(value, least, most):
    """It is that of Python."""
    assert is_whole(value, least, most) == (value in range(least, most + 1))
    assert (count(least, most).problem("x", value) == "") == (value in range(least, most + 1))


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("swapping.planner", "none", "none"),
        ("swapping.memory_budget_bytes", "none", None),
        ("swapping.memory_budget_bytes", "20MiB", "20MiB"),
        ("warmup.window", "1e2", 100),
        ("warmup.rho", "1", 1),
        ("leasing.quarantine", "False", False),
        ("leasing.queue", "drr", "drr"),
        ("warmup.rho", "much", "much"),
        ("rl.clip_range", "lin_0.2", "lin_0.2"),
        ("rl.target_kl", "none", None),
        ("unknown", "5", 5),
    ],
)
def test_a_text_means_what_its_setting_can_be(key, text, value):
    """The planner that swaps nothing is called none; a budget of none is no budget; 1e2 is a count where counts go."""
    read = read_setting(key, text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (count(1), 3.0, 3),
        (SECONDS, 3.0, 3.0),
        (count(1), "7", 7),
        (optional(FLAG), "none", None),
        (size(), "2 GB", "2 GB"),
    ],
)
def test_a_kind_reads_what_is_given(kind, given, value):
    """As text, or as a float where only whole numbers are good; what is right stays as it is."""
    assert (kind.read("x", given), type(kind.read("x", given))) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (count(1), "0", "x must be a whole number >= 1, got '0'"),
        (count(1), 2.5, "x must be a whole number >= 1, got 2.5"),
        (optional(count(1)), "-1", "x must be a whole number >= 1, or none, got '-1'"),
        (optional(ANYTHING), None, ""),
        (optional(planner(DISTRIBUTION)), "ring", "distribution planner must be one of auto, star"),
        (size("1MB", "1TB"), "9kB", "x must be a size from 1MB to 1TB, got '9kB'"),
        (choice(1, "a"), 2, "x must be one of 1, a, got 2"),
    ],
)
def test_what_cannot_be_read_is_said_as_it_was_given(kind, given, said):
    """One form for all: name, limit, value."""
    if not said:
        assert kind.read("x", given) == given
        return
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        kind.read("x", given)


def test_words_are_listed_for_forms():
    """A choice knows its words, a planner's name those of its decision; a number has none."""
    assert (choice("b", "a").values, count(1).values) == (("b", "a"), ())
    assert planner(DISTRIBUTION).values == DISTRIBUTION.names
    assert ANYTHING.problem("x", object()) == ""


def test_the_name_of_a_users_own_planner_is_left_to_whoever_has_it():
    """Every other name must be one of the decision's."""
    kind = planner(DISTRIBUTION)
    assert kind.problem("distribution.plan", "own:mine") == ""
    assert kind.problem("distribution.plan", "chain") == ""
    assert kind.problem("distribution.plan", "ring").startswith("distribution planner must be one of auto, star")
    assert kind.problem("distribution.plan", 7).startswith("distribution planner must be one of auto, star")


@pytest.mark.parametrize("key", [key for key in SETTINGS if key not in SLOT_KEYS])
def test_every_default_is_a_value_of_its_kind(key):
    """A setting that is put back to its default is never refused."""
    assert SETTINGS[key].kind.problem(key, SETTINGS[key].default) == ""
    assert setting_problem(key, SETTINGS[key].default, can_snapshot=True) == ""


#: What takes a setting back that nothing has been set to: no budget, no pins.
TAKEN_BACK = {
    "swapping.memory_budget_bytes": [None],
    "swapping.pin": [None, {}],
    "batching.deadline_s": [None],
    "batching.max_age_s": [None],
}


@pytest.mark.parametrize("key", TAKEN_BACK)
def test_what_nobody_need_set_can_be_taken_back(key):
    """By the value that they have where nobody has set one."""
    assert [setting_problem(key, value) for value in TAKEN_BACK[key]] == [""] * len(TAKEN_BACK[key])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in sorted(SETTINGS.keys() - SLOT_KEYS)
        for value in (None, math.nan, [], {}, object)
        if value not in TAKEN_BACK.get(key, [])
    ],
)
def test_no_setting_takes_what_is_no_value(key, value):
    """The complaint names the setting, and holds the value."""
    problem = setting_problem(key, value, can_snapshot=True)
    assert repr(value) in problem or str(value) in problem
    assert "\n" not in problem


@pytest.mark.parametrize("key", SLOT_KEYS)
@pytest.mark.parametrize(
    ("value", "slots", "said"),
    [
        ("n0/a", ("n0/a",), ""),
        ("n0/b", ("n0/c", "n0/a"), "the pool has no slot 'n0/b'; it has n0/a, n0/c"),
        ("n0/b", (), "the pool has no slot 'n0/b'; it has none yet"),
        (7, ("7",), "the pool has no slot 7; it has 7"),
        (None, (), "the pool has no slot None; it has none yet"),
    ],
)
def test_a_slot_must_be_one_of_the_pools(key, value, slots, said):
    """They are listed in the order of their names."""
    assert setting_problem(key, value, slots=slots) == (said and f"{key}: {said}")


@pytest.mark.parametrize("mode", ["park", "respawn"])
@pytest.mark.parametrize("can_snapshot", [True, False])
def test_only_respawn_needs_environments_that_can_be_frozen(mode, can_snapshot):
    """It is said alike wherever the mode is asked for."""
    problem = mode_problem(mode, can_snapshot=can_snapshot)
    assert bool(problem) == (mode == "respawn" and not can_snapshot)
    said = setting_problem("warmup.collector_mode", mode, can_snapshot=can_snapshot)
    assert said == (problem and f"warmup.{problem}")


@pytest.mark.parametrize("isolation", ["shared", "process"])
def test_how_tasks_share_a_process(isolation):
    """All in one, or each in its own."""
    assert ISOLATION.problem("isolation", isolation) == ""
    assert ISOLATION.problem("isolation", f"{isolation}!") == (
        f"isolation must be one of shared, process, got '{isolation}!'"
    )


@pytest.mark.parametrize(("seats", "good"), [
    (1, True), (4, True), (0, False), (5, False), (-1, False), (2.0, False), (True, False), ("auto", False),
    ("2", False), (None, False),
])  # fmt: skip
def test_a_number_of_seats_is_whole(seats, good):
    """The limits and the value are named."""
    assert SEATS.problem("seats", seats) == ("" if good else f"seats must be a whole number in 1..4, got {seats!r}")


@given(st.integers(1, 64), st.integers(1, 16))
def test_virtual_devices_never_ask_for_more_cores_than_there_are(n_cpus, n_devices):
    """Beyond one seat each; the reason says what bounds them."""
    n_seats, why = virtual_limit(n_cpus, n_devices)
    assert 1 <= n_seats <= 4
    assert n_seats == 1 or n_seats * n_devices <= n_cpus
    assert n_seats == 4 or (n_seats + 1) * n_devices > n_cpus
    assert (why == "at most 4 seats") == (n_seats == 4)


# ------------------------------------------------------------------ from keys to a machine's configuration and back
@pytest.mark.parametrize(
    ("changes", "planners", "settings"),
    [
        ({}, {}, {}),
        ({"leasing.hold": "last"}, {"hold": "last"}, {}),
        ({"leasing.switch_limit_frac": 0.5}, {}, {"switch_limit_frac": 0.5}),
        ({"warmup.planner": "saa", "warmup.rho": 2}, {"warmup": "saa"}, {"warmup": {"rho": 2}}),
        ({"warmup.rho": 2, "warmup.kappa": 3}, {}, {"warmup": {"rho": 2, "kappa": 3}}),
        (
            {"distribution.plan": "chain", "placement.planner": "pack"},
            {"distribution": "chain", "placement": "pack"},
            {},
        ),
        ({"batching.planner": "ewma"}, {"batching": "ewma"}, {}),
        ({"batching.collect": "proportional"}, {"collect": "proportional"}, {}),
        ({"task.priority": 5, "leasing.ttl_s": 9.0, "agent.collector_slots": 2}, {}, {}),
        ({"rl.gamma": 0.9, "slot.drain": "n0/a", "nonsense": 1}, {}, {}),
    ],
)
def test_a_round_machine_is_configured_by_what_is_a_tasks_own(changes, planners, settings):
    """The pool's settings, the algorithm's, and what the pool holds for a task are left out."""
    assert as_config(changes) == {"planners": planners, "settings": settings}


@given(st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.integers(0, 9)))
def test_what_a_run_is_configured_with_is_what_it_begins_with(changes):
    """Both ways between keys and configuration agree, for every setting that is a task's own."""
    config = as_config(changes)
    mine = {key: value for key, value in changes.items() if owner(key) == "task" and key != "task.priority"}
    assert begun_with(config["planners"], config["settings"]) == mine

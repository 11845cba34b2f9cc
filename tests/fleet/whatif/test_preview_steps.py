"""What a preview says of swapping: the recorded step, planned again by the cost model."""

import pytest

from drlnb.fleet.whatif.preview import preview
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapLink
from drlnb.records.errors import ConfigError
from tests.planning.swapping.swap_words import SECOND, acting, profile, row
from tests.views.swapping.steps import MIB, belt, planned, profiled, step

#: Three layers of 10 MiB: 1 s forward, 2 s backward, a copy takes 1 s; 28 MiB fit.
NET = profile([row(f"l{i}", i - 1, i, size=10.0 * MIB) for i in range(3)], [SECOND] * 3, link=SwapLink.of(10.0 * MIB))
SWAPPED = acting(NET, l0=SWAP)
#: A step that takes a ninth longer than it was expected to.
SAID_S = predict(NET, SWAPPED, 1, 28 * MIB).step_s
RECORDS = (profiled(of=NET), planned(SWAPPED, predicted_s=SAID_S), step(SAID_S / 0.9, 28, 2.0, plan=SWAPPED.key))
JOURNAL = belt(*RECORDS, budget=28 * MIB)


def asked(key, value, journal=JOURNAL, task=None, tasks=("a",)):
    return preview(journal, f"swapping.{key}", value, task, tasks=tasks)


def test_a_budget_is_looked_at_before_it_is_set():
    """Seconds and peak of the plan in force, and of what the planner would do under the new one: as worked out."""
    said = asked("memory_budget_bytes", "100MiB")
    (row,) = said.rows()
    swapped, kept = (
        predict(NET, acting(NET, **how), 1, limit) for how, limit in (({"l0": SWAP}, 28 * MIB), ({}, None))
    )
    assert row == {
        "task": "a", "step_s now": swapped.step_s, "step_s then": kept.step_s, "fits then": True,
        "peak_bytes now": swapped.peak_bytes, "peak_bytes then": kept.peak_bytes,
    }  # fmt: skip
    assert said.calibration_frac == {"a": pytest.approx(-0.1)}
    first, second, third = repr(said).splitlines()
    assert first == "if swapping.memory_budget_bytes were '100MiB' (computed from the recorded step):"
    assert second.startswith("  a: a step ")
    assert second.endswith("; as things are, steps come out -10%")
    assert third.startswith("    a, hybrid: keep 3; predicted ")


def test_what_does_not_fit_is_said():
    """The least that was found is drawn."""
    said = asked("memory_budget_bytes", "5MiB", task="a")
    assert said.rows()[0]["fits then"] is False
    assert "which does not fit; as things are" in repr(said)


@pytest.mark.parametrize(
    ("key", "value", "actions"),
    [
        ("planner", "all", {SWAP}),
        ("planner", "none", {KEEP}),
        ("pin", {"l0#0": SWAP, "l1#0": SWAP, "l2#0": SWAP}, {SWAP}),
        ("memory_budget_bytes", None, {KEEP}),
    ],
)
def test_planner_and_pins_are_looked_at_too(key, value, actions):
    """Nothing is written into the journal, which is what it is."""
    said = asked(key, value)
    assert {row["action"] for row in said.then["a"].rows} == actions
    assert {row["action"] for row in said.now["a"].rows} == {SWAP, KEEP}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "memory_budget_bytes",
            "much",
            "swapping.memory_budget_bytes must be a size from 1B to 8388607TiB",
        ),
        ("planner", "qtable:w=7", "swapping planner qtable:w=7.0: w must be a number from 0 to 1, got 7.0"),
        ("pin", {"l0#0": "burn"}, "swapping.pin must be rows such as"),
        ("budget", 7, "'swapping.budget' cannot be tried out"),
    ],
)
def test_wrong_values_are_one_line(key, value, said):
    """As `run.set` says it."""
    with pytest.raises(ConfigError, match=f"^{said}") as refused:
        asked(key, value)
    assert "\n" not in str(refused.value)


def test_a_task_that_was_not_profiled_says_so():
    """Among several, those that were are answered for."""
    with pytest.raises(ConfigError, match="no step has been profiled yet: that takes a memory budget and two steps"):
        asked("planner", "all", belt(budget=28 * MIB))
    assert asked("planner", "all", tasks=("a", "b")).now.keys() == {"a"}
    with pytest.raises(ConfigError, match="no step has been profiled yet"):
        asked("planner", "all", task="b", tasks=("a", "b"))

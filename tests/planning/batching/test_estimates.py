"""What planners remember of members' speeds, and what they expect: worked by hand, a split at a time."""

import pytest

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.batching import BATCHING, BatchReport, BatchView, Member

NAMES = ("proportional", "static", "ewma", "jump-reset", "seasonal")
LEARNING = NAMES[1:]


def view(n_units=100, memory=None, speeds_hz=(1.0, 1.0), role="update", **more):
    members = tuple(Member(id=name, speed_hz=hz, **more) for name, hz in zip("abcdefgh", speeds_hz, strict=False))
    return BatchView(round=1, role=role, n_units=n_units, members=members, memory=memory)


def report(sizes, compute_s, *, n_done=None, elapsed_s=None, duration_s=None, **more):
    n = len(sizes)
    return BatchReport(
        round=1,
        members=tuple("abcdefgh"[:n]),
        sizes=tuple(sizes),
        n_done=tuple(sizes if n_done is None else n_done),
        compute_s=tuple(compute_s),
        elapsed_s=tuple(elapsed_s or (None,) * n),
        duration_s=max([s for s in compute_s if s is not None], default=0.0) if duration_s is None else duration_s,
        **more,
    )


def after(name, *speeds, n=100):
    """Return what a planner remembers of one member that has worked at these speeds, a split each."""
    memory = None
    for hz in speeds:
        memory = BATCHING.observe(BATCHING.build(name), memory, report([n], [n / hz]))
    return memory


def expected(name, memory, **more):
    """Return the speed at which a planner expects the one member."""
    (hz,) = BATCHING.ask(BATCHING.build(name), view(memory=memory, speeds_hz=(1.0,), **more)).speeds_hz
    return hz


@pytest.mark.parametrize("name", NAMES)
def test_2_9_the_first_plan_has_what_the_view_knows(name):
    """Mechanism 2-9: every performance parameter is 1, so shares are as the speeds of the probe, alike without one."""
    assert BATCHING.ask(BATCHING.build(name), view()).sizes == (50, 50)
    assert BATCHING.ask(BATCHING.build(name), view(speeds_hz=(30.0, 10.0))).sizes == (75, 25)


def test_equal_does_not_look_at_speeds():
    """Whole units go to the first ones."""
    assert BATCHING.ask(BATCHING.build("equal"), view(5, speeds_hz=(30.0, 1.0, 1.0))).sizes == (2, 2, 1)
    assert BATCHING.ask(BATCHING.build("equal"), view(1, speeds_hz=(30.0, 1.0, 1.0))).sizes == (1, 0, 0)


@pytest.mark.parametrize("name", LEARNING)
def test_after_one_split_shares_are_as_the_measured_speeds(name):
    """The second split: 50 units in 1 s and in 4 s make 80 and 20."""
    memory = BATCHING.observe(BATCHING.build(name), None, report([50, 50], [1.0, 4.0]))
    plan = BATCHING.ask(BATCHING.build(name), view(memory=memory))
    assert (plan.sizes, plan.speeds_hz) == ((80, 20), (50.0, 12.5))


def test_a_moving_average_goes_three_tenths_of_the_way():
    """10, then 20 a second: 13; then 5: 10.6."""
    assert expected("ewma", after("ewma", 10, 20)) == pytest.approx(13.0)
    assert expected("ewma", after("ewma", 10, 20, 5)) == pytest.approx(10.6)


def test_a_jump_is_taken_over_at_once():
    """Within .6 and 1.6 times it goes a tenth of the way; outside it is there, down and up."""
    assert expected("jump-reset", after("jump-reset", 10, 12)) == pytest.approx(10.2)
    assert expected("jump-reset", after("jump-reset", 10, 3)) == pytest.approx(3.0)
    assert expected("jump-reset", after("jump-reset", 10, 3, 10)) == pytest.approx(10.0)
    assert expected("jump-reset", after("jump-reset", 10, 6.01)) == pytest.approx(9.601)


def test_few_samples_are_no_jump():
    """Three of them say little; where a unit is a fragment of many samples one is enough."""
    planner = BATCHING.build("jump-reset")
    before = after("jump-reset", 10)
    few = BATCHING.observe(planner, before, report([3], [1.0]))
    assert expected("jump-reset", few) == pytest.approx(9.3)
    assert expected("jump-reset", BATCHING.observe(planner, before, report([4], [1.0]))) == pytest.approx(4.0)
    many = BATCHING.observe(planner, before, report([3], [1.0], unit_samples=2048.0))
    assert expected("jump-reset", many) == pytest.approx(3.0)


def test_the_long_run_speed_is_not_moved_by_contention():
    """A thousandth of the way down to .3 times; to what is about as fast, or faster, the mean, then .03 of the way."""
    assert expected("static", after("static", 10, 3)) == pytest.approx(9.993)
    assert expected("static", after("static", 10, 7)) == pytest.approx(8.5)
    assert expected("static", after("static", 10, 20)) == pytest.approx(15.0)
    assert expected("static", after("static", *[10] * 40, 7)) == pytest.approx(9.91)
    assert expected("static", after("static", *[10] * 40, 20)) == pytest.approx(10.3)


def test_a_member_that_was_first_measured_under_contention_is_known_soon():
    """After nine splits at 10 a second one at 2.5 counts as one of ten."""
    assert expected("static", after("static", 2.5, *[10] * 9)) == pytest.approx(9.25)


def test_2_7_sizes_follow_from_long_run_speed_and_performance_alone():
    """Mechanism 2-7: the parameter p lies between .1 and 4; the same memory gives the same sizes."""
    assert expected("jump-reset", after("jump-reset", 10, 0.01)) == pytest.approx(0.1 * 9.99001)
    assert expected("jump-reset", after("jump-reset", *[10] * 40, 1000)) == pytest.approx(4 * 39.7)
    memory = BATCHING.observe(BATCHING.build("ewma"), None, report([50, 50], [1.0, 4.0]))
    assert BATCHING.build("ewma").plan(view(memory=memory)) == BATCHING.build("ewma").plan(view(memory=memory))


def test_overheads_are_measured_too():
    """What passes beside the computing: .5 s, then .7 s at a tenth; the one that has it gets less."""
    planner = BATCHING.build("ewma")
    memory = BATCHING.observe(planner, None, report([50, 50], [1.0, 1.0], elapsed_s=[1.5, 1.0]))
    # o + b / 50: 37.5 and 62.5 would both be done at 1.25 s
    assert BATCHING.ask(planner, view(memory=memory)).sizes == (38, 62)
    memory = BATCHING.observe(planner, memory, report([38, 62], [0.76, 1.24], elapsed_s=[1.46, 0.0]))
    assert memory["a"]["overhead_s"] == pytest.approx(0.52)
    assert memory["b"]["overhead_s"] == 0.0, "less than nothing is a clock's fault"
    assert BATCHING.observe(planner, memory, report([38, 62], [0.76, 1.24]))["a"]["overhead_s"] == pytest.approx(0.52)


@pytest.mark.parametrize("name", LEARNING[1:])
def test_trap_7_who_does_not_answer_is_not_expected_as_fast_as_before(name):
    """Trap 7: it was no faster than what it would have been in time, so it gets less; by its answer it recovers."""
    planner = BATCHING.build(name)
    memory = BATCHING.observe(planner, None, report([50, 50], [1.0, 1.0]))
    unheard = BATCHING.observe(planner, memory, report([50, 50], [1.0, None], n_done=[50, 0], duration_s=4.0))
    plan = BATCHING.ask(planner, view(memory=unheard))
    assert plan.sizes == (80, 20)
    for _ in range(30):
        unheard = BATCHING.observe(planner, unheard, report([50, 50], [1.0, 1.0]))
    assert BATCHING.ask(planner, view(memory=unheard)).sizes == (50, 50)


@pytest.mark.parametrize("name", [*LEARNING, "ddqn", "patent"])
def test_trap_8_all_slow_at_once_leave_the_sizes_as_they_are(name):
    """Trap 8: what slows everybody down is no reason to deal anew: 60, 30 and 10 a second, then .3 of it, then again.

    Overheads are alike, and nothing is noisy.
    """
    planner, memory, sizes = BATCHING.build(name), None, (34, 33, 33)
    for slow in [1.0] * 6 + [0.3] * 6 + [1.0] * 6:
        worked = [n / hz / slow for n, hz in zip(sizes, (60.0, 30.0, 10.0), strict=True)]
        told = report(sizes, worked, elapsed_s=[s + 0.01 for s in worked])
        memory = BATCHING.observe(planner, memory, told)
        sizes = BATCHING.ask(planner, view(memory=memory, speeds_hz=(1.0,) * 3)).sizes
        assert sizes == (60, 30, 10)


def test_who_was_slower_already_is_not_made_faster_by_silence():
    """The limit is from above; nothing follows where less than the overhead was waited, or before any measurement."""
    planner = BATCHING.build("ewma")
    memory = BATCHING.observe(planner, None, report([10, 10], [1.0, 10.0], elapsed_s=[1.0, 12.0]))
    for duration_s in (4.0, 1.5):
        silent = report([10, 10], [1.0, None], n_done=[10, 0], duration_s=duration_s)
        assert BATCHING.observe(planner, memory, silent)["b"]["speed_hz"] == 1.0
    assert BATCHING.observe(planner, None, report([10], [None], n_done=[0], duration_s=1.0)) == {}
    unmeasured = report([10, 10], [1.0, None])
    assert BATCHING.observe(planner, memory, unmeasured)["b"] == memory["b"], "done, but nobody took its time"


@pytest.mark.parametrize("name", LEARNING)
def test_trap_7_who_had_no_share_for_long_gets_one_unit(name):
    """Trap 7: without a share there is no recovery; the others share the rest, and it waits longer each time."""
    planner = BATCHING.build(name)
    memory = BATCHING.observe(planner, None, report([50, 50], [1.0, 1.0], elapsed_s=[1.0, 9.0]))
    for n_without in (1, 2, 4, 8, 16, 31, 31):
        for _ in range(n_without):
            assert BATCHING.ask(planner, view(memory=memory)).sizes == (100, 0)
            memory = BATCHING.observe(planner, memory, report([100, 0], [2.0, None]))
        assert BATCHING.ask(planner, view(memory=memory)).sizes == (99, 1)
        memory = BATCHING.observe(planner, memory, report([99, 1], [2.0, 0.02]))
    # a share right after another one: what kept it out is over
    memory = BATCHING.observe(planner, memory, report([50, 50], [1.0, 1.0], elapsed_s=[1.0, 9.0]))
    memory = BATCHING.observe(planner, memory, report([100, 0], [2.0, None]))
    assert BATCHING.ask(planner, view(memory=memory)).sizes == (99, 1)
    # one unit alone goes to who is faster; bounds of the others come first
    for _ in range(32):
        memory = BATCHING.observe(planner, memory, report([100, 0], [2.0, None]))
    assert BATCHING.ask(planner, view(1, memory=memory)).sizes == (1, 0)
    assert BATCHING.ask(planner, view(100, memory=memory, n_max=99)).sizes == (99, 1)
    assert BATCHING.ask(planner, view(100, memory=memory, n_max=50)).sizes == (50, 50)


def test_who_is_new_is_expected_as_the_others():
    """As their median, where the view knows nothing of it either; else as it says."""
    planner = BATCHING.build("jump-reset")
    memory = BATCHING.observe(planner, None, report([50, 50], [1.0, 4.0]))
    assert BATCHING.ask(planner, view(memory=memory, speeds_hz=(1.0, 1.0, 1.0))).speeds_hz == (50.0, 12.5, 50.0)
    assert BATCHING.ask(planner, view(memory=memory, speeds_hz=(9.0, 9.0, 7.0))).speeds_hz == (50.0, 12.5, 7.0)
    without = report([100, 0, 0], [2.0, None, None])
    assert "c" not in BATCHING.observe(planner, memory, without), "nothing is known of who had no share"
    away = report([], [], duration_s=1.0)
    assert BATCHING.observe(planner, memory, away) == memory, "who is not there is remembered"


def slow_each(period, *, n_splits=64, depth=0.25):
    """Return speeds of a member that is slow in two splits of each period, the newest one last."""
    return [10.0 * (depth if k % period in {2, 3} else 1.0) for k in range(n_splits)]


@pytest.mark.parametrize("period", [5, 8, 13, 21])
def test_a_season_is_foreseen(period):
    """The split after the last one: slow if the one a period ago was, by as much; else at the long-run speed."""
    for n_splits in range(3 * period + 4, 4 * period + 4):
        speeds = slow_each(period, n_splits=n_splits)
        hz = expected("seasonal", after("seasonal", *speeds))
        assert hz == pytest.approx(2.5 if n_splits % period in {2, 3} else 10.0, rel=0.02)


def test_without_a_season_it_is_as_a_jump():
    """Two slow splits are no season, nor are twelve at random."""
    for slow in ({3, 4}, {1, 2, 9, 11, 20, 21, 24, 30, 37, 38, 45, 51}):
        speeds = [3.0 if k in slow else 10.0 for k in range(52)]
        assert expected("seasonal", after("seasonal", *speeds)) == expected("jump-reset", after("jump-reset", *speeds))


def test_how_slow_a_season_is_follows_the_latest():
    """.25 of the long-run speed, then .5 by a fifth: .3."""
    speeds = slow_each(8, n_splits=42)
    memory = after("seasonal", *speeds)
    assert memory["seasons"]["a"]["depth"] == pytest.approx(0.25, rel=0.02)
    memory = BATCHING.observe(BATCHING.build("seasonal"), memory, report([100], [20.0]))
    assert memory["seasons"]["a"]["depth"] == pytest.approx(0.3, rel=0.02)


def test_a_season_goes_on_while_a_member_has_no_share():
    """A split without one counts as not slow; one that was not answered counts as slow as it must have been."""
    planner = BATCHING.build("seasonal")
    memory = BATCHING.observe(planner, None, report([50, 50], [1.0, 1.0]))
    memory = BATCHING.observe(planner, memory, report([50, 50], [1.0, None], n_done=[50, 0], duration_s=4.0))
    assert memory["seasons"]["b"] == {"slow": 0b01, "n_seen": 2, "depth": 0.25}
    memory = BATCHING.observe(planner, memory, report([100, 0], [2.0, None]))
    assert memory["seasons"]["b"] == {"slow": 0b010, "n_seen": 3, "depth": 0.25}
    memory = BATCHING.observe(planner, memory, report([100], [2.0]))
    assert memory["seasons"]["b"] == {"slow": 0b010, "n_seen": 3, "depth": 0.25}, "it was not there"

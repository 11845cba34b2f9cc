"""Small simulated cases worked out by hand, and laws of durations, of the clock and of shared devices."""

import contextlib
import functools
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.cli.main import main
from drlnb.planning.leasing.load import bound, expected_load
from drlnb.records.columns.leasing import LeaseGranted
from drlnb.records.columns.warmup import WarmupMeasured
from drlnb.records.errors import ConfigError
from drlnb.records.round import MetricsRecorded
from drlnb.sim.costs import Costs, RoundCosts, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.faults import FAULT_KINDS, fault_rates, rate_problems
from drlnb.sim.leasing.colocated import colocated_rounds_hz
from drlnb.sim.leasing.compare import LeasingWorkload
from drlnb.sim.report import chosen_names, figure_row, table_lines
from drlnb.sim.training.report import simulate_train
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup

#: No spread and nothing on the way: what is left are sums of a few numbers.
PLAIN = Costs(
    collect_s=3.0, compute_s=1.0, finish_s=0.5, publish_s=0.25, start_s=0.0, rpc_s=0.0, gather_s=0.0, write_s=0.0,
    episode_s=0.0, collect_cv=0.0, service_cv=0.0,
)  # fmt: skip


def round_times(result, task="sim0"):
    return [row.metrics["round/time_s"] for row in result.streams[f"task-{task}-a1"].of(MetricsRecorded)]


# ------------------------------------------------------------------ one task
@pytest.mark.parametrize("hold", ["round", "yield", "last"])
@pytest.mark.parametrize("n_collectors", [1, 2, 4])
def test_a_round_of_a_task_alone_is_the_sum_of_its_parts(hold, n_collectors):
    """3 s acting, 1 s of gradients over all collectors, 0.5 s of update, 0.25 s of sending: 4.75 s, whoever holds."""
    result = simulate_train(1, 1, 4, n_collectors, hold, costs=PLAIN)
    assert round_times(result)[1:] == pytest.approx([4.75] * 3)
    assert result.makespan_s == pytest.approx(0.5 + 4 * 4.75, abs=0.26), "the first parameters, then four rounds"
    assert result.inflation == pytest.approx(1.0)


def test_a_task_alone_waits_for_its_slowest_collector():
    """Each round lasts as long as its longest act, as its durations were drawn, and what is computed after it."""
    costs = replace(PLAIN, collect_cv=0.5)
    result = simulate_train(1, 1, 5, 3, "last", seed=4, costs=costs)
    work = Workload(costs, seed=4, task=0, n_collectors=3)
    drawn = [max(work.round(k).collect_s) + 1.0 + 0.5 + 0.25 for k in range(1, 6)]
    assert round_times(result)[1:] == pytest.approx(drawn[1:], abs=1e-5)


@pytest.mark.parametrize(("hold", "held_s"), [("last", 1.5), ("round", 1.5), ("yield", 1.5)])
def test_a_slot_is_held_for_what_is_computed_where_all_send_together(hold, held_s):
    """1 s of gradients and 0.5 s of update: no rule holds a slot for longer if nobody is late."""
    result = simulate_train(1, 1, 6, 2, hold, costs=PLAIN)
    released = [record.held_s for record in result.streams["broker-e1"].records if hasattr(record, "held_s")]
    assert released[1:] == pytest.approx([held_s] * 6)


# ------------------------------------------------------------------ several learners
@pytest.mark.parametrize("hold", ["round", "yield", "last"])
def test_two_learners_halve_the_gradients_of_a_round_and_nothing_else(hold):
    """3 s acting, 1 s of gradients on two slots, .5 s of update, .25 s of sending: 4.25 s, four times after .5 s.

    Both slots are held for 1 s a round, of which they compute .5 and 1 s: of 2 x 17.5 s 6.5 are computed, 8.5 held (the
    first parameters are made on one slot).  Alone it is the same, and theory knows no leases of two slots.
    """
    result = simulate_train(1, 2, 4, 2, hold, n_learners=2, costs=PLAIN)
    assert round_times(result)[1:] == pytest.approx([4.25] * 3)
    assert result.makespan_s == pytest.approx(17.5, abs=0.01)
    assert result.utilisation_frac == pytest.approx(6.5 / 35, abs=0.001)
    assert result.held_frac == pytest.approx(8.5 / 35, abs=0.001)
    assert result.duty_frac == (pytest.approx(6.5 / 35, abs=0.001),)
    assert result.bound_frac == pytest.approx(6.5 / 35, abs=0.001)
    assert result.inflation == pytest.approx(1.0)
    assert (result.expected_utilisation_frac, result.expected_inflation) == (None, None)


def test_three_gangs_take_turns_on_two_slots():
    """A lease is 2 s of gradients on two slots and .5 s of update, 1.5 s; three of them are a period of 4.5 s.

    Alone a round is .5 + 1.5 + .25 = 2.25 s: twice as fast.  Of 3 slot seconds that are held 2.5 are computed.
    """
    busy = replace(PLAIN, collect_s=0.5, compute_s=2.0)
    result = simulate_train(3, 2, 24, 2, "last", n_learners=2, costs=busy)
    for i in range(3):
        assert round_times(result, f"sim{i}")[3:-1] == pytest.approx([4.5] * 20)
    assert result.held_frac == pytest.approx(1.0, abs=0.03)
    assert result.utilisation_frac == pytest.approx(2.5 / 3, abs=0.03)
    assert result.duty_frac == (pytest.approx(2.5 / (2 * 2.25), abs=0.01),) * 3
    assert result.bound_frac == 1.0
    assert result.inflation == pytest.approx(2.0, rel=0.03)


# ------------------------------------------------------------------ several tasks
@pytest.mark.thorough
@pytest.mark.parametrize("n_tasks", [2, 3, 5])
def test_a_busy_slot_serves_tasks_in_turn(n_tasks):
    """Tasks that would keep one slot busy for longer than a round alone takes: their period is what they compute."""
    busy = replace(PLAIN, collect_s=0.5, compute_s=2.0)
    result = simulate_train(n_tasks, 1, 8, 1, "last", costs=busy)
    alone_s, slot_s = 0.5 + 2.0 + 0.5 + 0.25, n_tasks * 2.5
    for i in range(n_tasks):
        assert round_times(result, f"sim{i}")[3:-1] == pytest.approx([max(alone_s, slot_s)] * 4)
    assert result.utilisation_frac == pytest.approx(1.0, abs=0.06)
    assert result.inflation == pytest.approx(slot_s / alone_s, rel=0.12)


def test_as_many_slots_as_tasks_leave_each_alone():
    """Nobody waits: the same rounds as alone, and every grant comes at once."""
    result = simulate_train(3, 3, 4, 2, "round", costs=PLAIN)
    assert {round(s, 6) for i in range(3) for s in round_times(result, f"sim{i}")[1:]} == {4.75}
    assert {grant.waited_s for grant in result.streams["broker-e1"].of(LeaseGranted)} == {0.0}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_more_slots_never_compute_less(seed):
    """In the same time, or a shorter one: the run with more slots ends no later, beyond what luck of order costs."""
    costs = Costs(collect_s=1.0, compute_s=1.0)
    ends = [simulate_train(4, n_slots, 6, 2, "last", seed, costs=costs).makespan_s for n_slots in (1, 2, 4)]
    assert ends[0] > 1.2 * ends[1] > 1.2 * 0.9 * ends[2]


@given(st.integers(1, 12), st.integers(1, 6), st.floats(0.02, 0.95))
def test_theory_lies_between_its_bounds(n_tasks, n_slots, d):
    """Utilisation is below its bound and above what one round after the other would give; more slots slow nobody."""
    load = expected_load(n_tasks, n_slots, d)
    assert load.bound_frac == bound([d] * n_tasks, n_slots)
    assert min(n_tasks, n_slots) * d / n_slots - 1e-9 <= load.utilisation_frac <= load.bound_frac + 1e-9
    assert load.inflation >= 1.0 - 1e-9
    assert expected_load(n_tasks, n_slots + 1, d).inflation <= load.inflation + 1e-9
    assert expected_load(n_tasks + 1, n_slots, d).inflation >= load.inflation - 1e-9


# ------------------------------------------------------------------ durations and the clock
@given(st.floats(0.1, 9.0), st.integers(1, 5), st.integers(0, 9), st.sampled_from(["lognormal", "exponential"]))
def test_another_scale_draws_the_same_noise(factor, n, seed, shape):
    """Means k times as long give durations k times as long, to the microsecond that is kept."""
    costs = Costs(shape=shape)
    longer = replace(costs, **{name: factor * getattr(costs, name) for name in ("collect_s", "compute_s", "finish_s")})
    one, other = (Workload(each, seed=seed, task=1, n_collectors=n).round(2) for each in (costs, longer))
    slack = 1e-6 * (1 + factor)
    assert other.collect_s == pytest.approx([factor * s for s in one.collect_s], abs=slack)
    assert other.stage_s == pytest.approx([factor * s for s in one.stage_s], abs=slack)
    assert other.finish_s == pytest.approx(factor * one.finish_s, abs=slack)
    assert other.publish_s == one.publish_s


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 6))
def test_calls_are_made_in_the_order_of_their_times(delays, until):
    """A stable sort by time; what is later than the end waits."""
    clock, made = Clock(), []
    for i, delay in enumerate(delays):
        clock.after(delay, made.append, (delay, i))
    clock.run(until)
    assert made == sorted((delay, i) for i, delay in enumerate(delays) if delay <= until)
    clock.run()
    assert made == sorted((delay, i) for i, delay in enumerate(delays))
    assert clock.now == max(delays, default=0)


class Fixed:
    """A task whose every round takes the same time."""

    def __init__(self, collect_s, stage_s):
        self.costs = Costs()
        self.now = RoundCosts(collect_s=collect_s, stage_s=stage_s, finish_s=0.5, publish_s=0.25, rpc_s=0.0)

    def round(self, k):
        return self.now

    def start_s(self, command):
        return 0.0


tasks_drawn = st.lists(
    st.lists(st.tuples(st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.25, 1.0])), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


@given(tasks_drawn, st.integers(1, 3))
def test_a_shared_device_does_no_more_work_than_its_time(drawn, n_devices):
    """Seconds of compute per second are at most the devices; one task on one device is as fast as alone."""
    tasks = [Fixed(*zip(*pairs, strict=True)) for pairs in drawn]
    hz = colocated_rounds_hz(tasks, n_devices=n_devices, n_rounds=12, warm_up=0.1)
    least_s = min(sum(task.now.stage_s) + 0.5 for task in tasks)
    assert hz * least_s <= min(n_devices, len(tasks)) * 1.25
    apart = sum(colocated_rounds_hz([task], n_devices=1, n_rounds=12, warm_up=0.1) for task in tasks)
    assert hz <= apart * 1.2
    if n_devices >= len(tasks):
        assert hz == pytest.approx(apart)


# ------------------------------------------------------------------ warm-up by hand
def test_starts_that_always_take_as_long_are_planned_to_the_point():
    """No jitter, and starts of nearly one length: saa waits and idles for next to nothing once it knows enough."""
    sure = WarmupWorkload(n_rounds=30, n_workers=2, jitter_frac=0.0, start_p95_s=1.3601)
    cold, planned = (simulate_warmup(sure, name) for name in ("cold", "saa"))
    assert cold.wait_s == pytest.approx(1.36, abs=0.001)
    late = planned.stream.of(WarmupMeasured)[12:]
    assert max(each.wait_s + each.idle_s for each in late) < 0.005


@pytest.mark.parametrize("planner", ["cold", "keep", "saa"])
def test_a_dearer_wait_changes_the_price_and_not_what_cold_and_keep_do(planner):
    """The cost is rho waits and the idle time; only who plans by rho may do otherwise."""
    work = WarmupWorkload(n_rounds=20, n_workers=2)
    one, other = (simulate_warmup(work, planner, settings={"rho": rho}) for rho in (1.0, 7.0))
    assert one.cost_s == one.wait_s + one.idle_s
    assert other.cost_s == pytest.approx(7.0 * other.wait_s + other.idle_s)
    if planner != "saa":
        assert (one.wait_s, one.idle_s) == (other.wait_s, other.idle_s)
    assert other.wait_s <= one.wait_s + 1e-9


# ------------------------------------------------------------------ words and tables
@given(st.dictionaries(st.sampled_from(FAULT_KINDS), st.floats(0.0, 3600.0), max_size=4))
def test_rates_come_back_from_their_text(rates):
    """In their order; blanks around the commas say nothing."""
    text = " , ".join(f"{kind}={rate!r}" for kind, rate in rates.items())
    assert fault_rates(text) == tuple(rates.items())
    assert rate_problems(dict(fault_rates(text))) == []


@pytest.mark.parametrize("rate", [-0.1, 3600.1, float("nan"), float("inf")])
def test_a_rate_out_of_its_range_is_named(rate):
    """With its kind, and what it may be; a workload refuses it alike."""
    line = f"faults of slot must be in 0..3600 per hour, got {rate}"
    assert rate_problems({"slot": rate}) == [line]
    with pytest.raises(ConfigError) as caught:
        LeasingWorkload(faults=(("slot", rate), ("node", 1.0)))
    assert caught.value.problems == (
        "faults must name some of collector, executor, holder, frozen, slot, got 'node'", line,
    )  # fmt: skip


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6))
def test_names_are_taken_once_in_their_order(names):
    """Whatever stands around the commas; all of them by one word, an unknown one by none."""
    assert chosen_names("--x", " , ".join(names), "abcd") == list(dict.fromkeys(names))
    assert chosen_names("--x", "all", "abcd") == list("abcd")
    with pytest.raises(ConfigError, match="--x must name some of a, b, c, d, or be all; got 'e'"):
        chosen_names("--x", ",".join([*names, "e"]), "abcd")


def test_a_table_has_the_first_column_at_the_left():
    """Names of columns, then the rows; each column is as wide as what is in it, one without a name is text."""
    rows = [{"name": "a", "x": "1", "y": "22", "": "so"}, {"name": "bb", "x": "333", "": "and so"}]
    assert table_lines(rows) == ["name    x   y", "a       1  22  so", "bb    333      and so"]
    assert table_lines(rows, n_left=2) == ["name  x     y", "a     1    22  so", "bb    333      and so"]


@pytest.mark.parametrize(("value", "base", "ratio"), [(3.0, 2.0, 1.5), (3.0, 0.0, None), (0.0, 2.0, 0.0)])
def test_a_figure_stands_beside_what_it_is_compared_with(value, base, ratio):
    """Their ratio, where there is one."""
    row = figure_row("id", "what", value, "bound", base)
    assert (row["value"], row["baseline"], row["ratio"]) == (value, f"bound {base:.6f}", ratio)


# ------------------------------------------------------------------ every option says something
BASE = {
    "train": "--tasks 2 --gpus 1 --rounds 3 --collectors 1 --seed 0 --hold yield",
    "leasing": "--tasks 2 --gpus 1 --workers 2 --rounds 20 --seeds 0 --hold round --collect 2 --compute 0.5",
    "warmup": "--workers 1 --rounds 20 --seeds 0 --planners saa --rho 1 --kappa 1",
}
#: Command, option, and words that both runs get beside it.
OPTIONS = [
    ("train", "--tasks 3", ""), ("train", "--gpus 2", ""), ("train", "--rounds 4", ""), ("train", "--seed 1", ""),
    ("train", "--collectors 2", ""), ("train", "--hold round", "--collectors 2"),
    ("leasing", "--tasks 3", ""), ("leasing", "--gpus 2", ""), ("leasing", "--workers 1", ""),
    ("leasing", "--rounds 21", ""), ("leasing", "--seeds 1", ""), ("leasing", "--hold last", ""),
    ("leasing", "--collect 3", ""), ("leasing", "--compute 0.25", ""), ("leasing", "--cv 0.5", ""),
    ("leasing", "--switch 0.3", ""), ("leasing", "--unequal 0.5", ""), ("leasing", "--faults holder=400", ""),
    ("leasing", "--no-stream", "--hold yield"), ("leasing", "--queue drr", "--tasks 4 --cv 1"),
    ("warmup", "--workers 2", ""), ("warmup", "--rounds 21", ""), ("warmup", "--seeds 1", ""),
    ("warmup", "--planners patent", ""), ("warmup", "--rho 4", ""), ("warmup", "--kappa 9", ""),
    ("warmup", "--gap 4", ""), ("warmup", "--jitter 0.3", ""), ("warmup", "--shape outliers", ""),
    ("warmup", "--start-mode zygote", ""), ("warmup", "--start-p95 4", ""),
]  # fmt: skip


@functools.cache
def figures(what, words):
    """Return what a command reports as JSON, without the words that it was called by."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["simulate", what, *words.split(), "--json"]) == 0
    report = json.loads(out.getvalue().splitlines()[-1])
    return [(row["value"], row.get("spread"), row["baseline"]) for row in report["rows"]]


@pytest.mark.thorough
@pytest.mark.parametrize(("what", "option", "more"), OPTIONS, ids=lambda part: part.strip("-"))
def test_every_option_changes_what_is_measured(what, option, more):
    """Another value gives other figures."""
    assert figures(what, f"{BASE[what]} {more} {option}") != figures(what, f"{BASE[what]} {more}")

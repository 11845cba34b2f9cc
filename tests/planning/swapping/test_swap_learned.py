"""The patent's table of costs: SARSA of four trials by hand, the sign of the cost, and what it finds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.swapping.trials import learn
from drlnb.planning.registry import PlannerFailed
from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.learned import OVERFLOW, QTable, cost, predicted_cost, swapped_types
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapLink, read, written
from drlnb.planning.swapping.search import Search
from tests.planning.swapping.swap_words import SECOND, acting, chain, profile, row
from tests.strategies import fewer


class Chosen:
    """A generator that explores never, or as it is told, and takes the numbers it is given."""

    def __init__(self, *numbers, explores=()):
        self._numbers, self._explores, self._n = iter(numbers), set(explores), 0

    def random(self):
        self._n += 1
        return 0.0 if self._n in self._explores else 0.99

    def integers(self, n):
        number = next(self._numbers)
        assert number < n, "fewer are equal than the test expects"
        return number


# ------------------------------------------------------------------ the cost
@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 1.0))
def test_the_cost_lies_between_time_and_memory(time, memory, w):
    """The time alone at w = 0, the memory alone at w = 1 (paragraphs 35-37)."""
    assert cost(time, memory, 0.0) == time
    assert cost(time, memory, 1.0) == pytest.approx(memory)
    assert min(time, memory) - 1e-9 <= cost(time, memory, w) <= max(time, memory) + 1e-9
    assert cost(time, memory, w) == pytest.approx((1 - w) * time + w * memory)


# ------------------------------------------------------------------ four trials
def test_four_trials_by_hand():
    """Two types; the first plan swaps nothing, costs are 2, 1, 3 and 4; of equal ones the first is taken."""
    table, generator = QTable(n_types=2), Chosen(0, 0, 0, 0)
    # Trial 1 ran 00: nothing was changed, so nothing is learned; both changes cost 0, the first one is taken.
    assert table.step(2.0, generator) == 0b01
    assert (table.table, table.changed, table.best) == ({}, 0, (2.0, 0b00))
    # Trial 2 ran 01. Next: 00 by type 0 or 11 by type 1, both 0; the first: 00.
    # Q(01, 0) = 0 + 0.5 (1 + 0.9 Q(00, 0) - 0) = 0.5
    assert table.step(1.0, generator) == 0b00
    assert table.table == {(0b01, 0): 0.5}
    # Trial 3 ran 00. Next: 01 by type 0 costs 0.5, 10 by type 1 costs 0: 10.
    # Q(00, 0) = 0 + 0.5 (3 + 0.9 Q(10, 1) - 0) = 1.5
    assert table.step(3.0, generator) == 0b10
    assert table.table == {(0b01, 0): 0.5, (0b00, 0): 1.5}
    # Trial 4 ran 10. Next: 11 by type 0 or 00 by type 1, both 0; the first: 11.
    # Q(10, 1) = 0 + 0.5 (4 + 0.9 * 0 - 0) = 2
    assert table.step(4.0, generator) == 0b11
    assert table.table == {(0b01, 0): 0.5, (0b00, 0): 1.5, (0b10, 1): 2.0}
    assert (table.best, table.n_trials, table.plan, table.changed) == ((1.0, 0b01), 4, 0b11, 0)


def test_what_is_chosen_is_what_is_learned_from():
    """SARSA: an explored change counts with its own cost, not with the least (paragraph 40)."""
    table = QTable(n_types=2, plan=0b01, changed=0, table={(0b00, 0): 4.0, (0b11, 1): 1.0, (0b01, 0): 2.0})
    assert table.step(1.0, Chosen(0, explores={1})) == 0b00
    assert table.table[0b01, 0] == pytest.approx(2.0 + 0.5 * (1.0 + 0.9 * 4.0 - 2.0))
    greedy = QTable(n_types=2, plan=0b01, changed=0, table={(0b00, 0): 4.0, (0b11, 1): 1.0, (0b01, 0): 2.0})
    assert greedy.step(1.0, Chosen(0)) == 0b11
    assert greedy.table[0b01, 0] == pytest.approx(2.0 + 0.5 * (1.0 + 0.9 * 1.0 - 2.0))


def test_a_trial_changes_one_type_and_never_stays():
    """Whatever was learned."""
    table, generator = QTable(n_types=3), np.random.default_rng(1)
    plans = [table.plan, *[table.step(float(generator.random()), generator) for _ in range(50)]]
    assert all((a ^ b).bit_count() == 1 for a, b in itertools.pairwise(plans))


def test_the_rates_are_those_that_are_given():
    """Step size and discount."""
    table = QTable(n_types=1, alpha=1.0, gamma=0.0, changed=0, table={(0, 0): 7.0, (1, 0): 9.0})
    table.step(3.0, Chosen(0))
    assert table.table[0, 0] == 3.0


def test_a_table_is_saved_and_learns_on():
    """Through JSON: the same trials afterwards (paragraphs 43 and 45)."""
    costs = [1.0, 0.5, 2.0, 0.7]
    one = QTable(n_types=2, epsilon=0.0)
    generator = Chosen(*[0] * 12)
    for each in costs:
        one.step(each, generator)
    two = read(QTable, written(one), epsilon=0.0)
    assert two == one
    assert [one.step(each, Chosen(0)) for each in costs] == [two.step(each, Chosen(0)) for each in costs]
    assert one.table == two.table


def test_learning_says_what_was_best_and_what_would_run_next():
    """The cheapest plan that ran, the trial in which it ran first, and the one chosen at the end."""
    values = {0b00: 3.0, 0b01: 2.0, 0b10: 1.0, 0b11: 4.0}
    table = QTable(n_types=2)
    learned = learn(table, values.__getitem__, 40, np.random.default_rng(0))
    assert (learned.best, len(learned.costs), learned.chosen) == (0b10, 40, table.plan)
    assert learned.costs[learned.found_at - 1] == 1.0
    assert 1.0 not in learned.costs[: learned.found_at - 1]
    assert table.best == (1.0, 0b10)


# ------------------------------------------------------------------ on the cost model
def typed(rate=10.0):
    rows = [row(f"l{i}", i - 1, i, layer_type="abc"[i % 3], size=10.0 * (1 + i % 3)) for i in range(6)]
    return profile(rows, [SECOND] * 6, link=SwapLink.of(rate))


@pytest.mark.parametrize(("w", "best"), [(0.0, 0b000), (1.0, 0b111)])
def test_the_sign_of_the_cost(w, best):
    """Where swapping takes time and saves memory: w = 0 learns to swap nothing, w = 1 to swap all (trap 27)."""

    def measure(bits):
        n = bits.bit_count()
        return cost(1.0 + 0.1 * n, 1.0 - 0.2 * n, w)

    assert learn(QTable(n_types=3), measure, 60, np.random.default_rng(0)).best == best


def test_costs_are_relative_to_a_step_that_keeps_all():
    """Or to the budget where that is less; what does not fit costs five."""
    of = chain()
    search = Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=20.0))
    said = predict(of, acting(of, l0=SWAP, l1=SWAP, l2=SWAP), 1, 20.0)
    every = search.every(SWAP)
    assert predicted_cost(search, every, 0.0) == pytest.approx(said.step_s / 9.0)
    assert predicted_cost(search, every, 1.0) == pytest.approx(20.0 / 20.0)
    assert predicted_cost(search, search.every(KEEP), 0.5) == OVERFLOW
    wide = Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=1000.0))
    assert predicted_cost(wide, wide.every(KEEP), 0.3) == pytest.approx(1.0)


def test_a_number_is_a_set_of_types():
    """Bit i is type i."""
    search = Search(SwapView(profile=typed(), n_samples=1, memory_budget_bytes=1000.0))
    assert set(swapped_types(search, 0).actions) == {KEEP}
    assert swapped_types(search, 0b101).actions == (SWAP, KEEP, SWAP, SWAP, KEEP, SWAP)


def test_the_table_finds_the_best_set_of_types():
    """Eight plans, sixty trials."""
    of = typed()
    view = SwapView(profile=of, n_samples=1, memory_budget_bytes=90.0, seed=3)
    plan = SWAPPING.build("qtable:n_trials=60").plan(view)
    search = Search(view, (SWAP,))
    best = min(range(8), key=lambda bits: predicted_cost(search, swapped_types(search, bits), 0.5))
    assert plan == search.plan(swapped_types(search, best))


@fewer(10)
@given(st.integers(0, 1000))
def test_the_optimum_of_types_is_visited(seed):
    """Within three hundred trials, whatever the seed (bar C7 asks for 95 of 100)."""
    search = Search(SwapView(profile=typed(), n_samples=1, memory_budget_bytes=90.0))
    values = [predicted_cost(search, swapped_types(search, bits), 0.5) for bits in range(8)]
    learned = learn(QTable(n_types=3), values.__getitem__, 300, np.random.default_rng(seed))
    assert values[learned.best] == min(values)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("n_trials=1", "a whole number from 2 to 100000"),
        ("n_trials=100001", "a whole number from 2 to 100000"),
        *[
            (f"{name}={value}", "a number from 0 to 1")
            for name in ("alpha", "gamma", "epsilon")
            for value in (2.0, -0.1)
        ],
        ("w=-0.1", "a number from 0 to 1"),
        ("w=nan", "a number from 0 to 1"),
    ],
)
def test_parameters_have_limits(text, limits):
    """In one line, with the planner's name, the parameter and the value."""
    name, _, value = text.partition("=")
    with pytest.raises(ValueError, match=f"^swapping planner qtable:{text}: {name} must be {limits}, got {value}$"):
        SWAPPING.build(f"qtable:{text}")


def test_a_pinned_row_is_not_the_tables_to_move():
    """Its type is swapped but for it."""
    view = SwapView(profile=typed(), n_samples=1, memory_budget_bytes=90.0, pins={"l2#0": KEEP})
    plan = SWAPPING.ask(SWAPPING.build("qtable:n_trials=30"), view)
    assert plan.action_of["l2", 0] == KEEP
    with pytest.raises(PlannerFailed, match="l2#0: it is pinned to keep, got swap"):
        SWAPPING.ask(_All(), view)


class _All:
    name = "all of it"

    def plan(self, view):
        return acting(view.profile, **{key[0]: SWAP for key in view.profile.number})

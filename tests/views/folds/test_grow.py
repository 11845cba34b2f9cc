"""Columns that grow row by row: named values of a row find their column whatever came before."""

import math

import numpy as np

from drlnb.views.folds.grow import Grow


def filled(*rows):
    grow = Grow("t")
    for t, row in enumerate(rows):
        grow.append(float(t))
        grow.fill(row)
    return grow


def column(grow, name):
    return [None if math.isnan(v) else v for v in grow.padded(name).tolist()]


def test_the_same_names_row_after_row_fill_the_same_columns():
    """The rule: each round says the same scalars."""
    grow = filled({"a": 1, "b": 2.0}, {"a": 3, "b": 4.0}, {"a": 5, "b": 6.0})
    assert (column(grow, "a"), column(grow, "b")) == ([1, 3, 5], [2, 4, 6])
    assert grow.others == ("a", "b")


def test_names_that_come_and_go_leave_holes():
    """A scalar that some rounds do not say, as an evaluation's, is unknown there."""
    grow = filled({"a": 1}, {"a": 2, "b": 20}, {"a": 3}, {"b": 40, "a": 4}, {})
    assert column(grow, "a") == [1, 2, 3, 4, None]
    assert column(grow, "b") == [None, 20, None, 40, None]


def test_what_is_no_number_is_left_out():
    """Text, truth and nothing are not drawn, also after rows where the same name was a number."""
    grow = filled({"a": 1, "b": 2}, {"a": "x", "b": 3}, {"a": None, "b": True}, {"a": 4, "b": 5})
    assert column(grow, "a") == [1, None, None, 4]
    assert column(grow, "b") == [2, 3, None, 5]


def test_a_value_never_lands_in_an_own_column():
    """A scalar called like an own column of the table leaves it alone."""
    grow = filled({"t": 9.0, "a": 1.0}, {"t": 9.0, "a": 2.0})
    np.testing.assert_array_equal(grow["t"], [0.0, 1.0])
    assert column(grow, "a") == [1, 2]


def test_a_long_history_is_thinned_evenly():
    """Of 1,000 rounds with at most 64 rows every 32nd stays and the newest are whole; names go on in their columns."""
    grow = Grow("round")
    for n in range(1, 1001):
        grow.append(float(n))
        grow.fill({"half": n / 2} if n != 640 else {"other": 1.0})
        grow.thin("round", 64)
    rounds = grow["round"]
    assert len(rounds) <= 64
    assert rounds[:20].tolist() == [32.0 * n for n in range(1, 21)]
    assert rounds[-4:].tolist() == [997, 998, 999, 1000]
    assert np.diff(rounds).min() > 0
    halves = grow.padded("half")
    np.testing.assert_array_equal(halves[rounds != 640], rounds[rounds != 640] / 2)
    assert np.isnan(halves[rounds == 640])


def test_a_short_history_is_left_whole():
    """Up to its bound, and the newest row is kept whatever its number is."""
    grow = Grow("round")
    for n in range(1, 65):
        grow.append(float(n))
        grow.thin("round", 64)
    assert grow["round"].tolist() == list(range(1, 65))
    grow.append(65.0)
    grow.thin("round", 64)
    assert grow["round"].tolist() == [*range(4, 65, 4), 65]

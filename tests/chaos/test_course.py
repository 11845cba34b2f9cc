"""Faults of every kind, drawn from a seed, strike a real cluster; its journals obey every law."""

import pytest

from tests.chaos import course
from tests.chaos.arena import KINDS


def _assert_unbroken(found, n_faults):
    assert {law: texts for law, texts in found.broken.items() if texts} == {}
    assert found.struck.total() == n_faults
    assert found.struck.keys() == KINDS.keys(), "every kind of fault struck"
    assert found.counts["updates"] > n_faults, "and tasks trained meanwhile"


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_forty_faults_break_no_law(tmp_path):
    """No slot lost or held twice, no task stuck, each update from one living fence, no orphan, the same in replay."""
    _assert_unbroken(course.live_through(course.plan(40, 7), act=40, keep=tmp_path), 40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(11, 16))
def test_a_thousand_faults_break_no_law(tmp_path, seed):
    """The same for two hundred a time, in ten acts on one cluster; each time can be run by itself."""
    found = course.live_through(course.plan(200, seed), keep=tmp_path)
    _assert_unbroken(found, 200)
    assert found.counts["attempts"] > 30, "workers died and masters moved"

"""Fixtures of the runtime's tests; they live in live.py, where other rooms' tests find them, too."""

import pytest

from tests.runtime.live import foreign_cluster, make_bench, make_foreign

__all__ = ["foreign_cluster", "make_bench", "make_foreign"]


@pytest.fixture
def child():
    """Return an executor child that has computed a round."""
    from tests.runtime.learning import LearningChild

    made = LearningChild()
    made.round()
    yield made
    for collector in made.collectors:
        collector.close()

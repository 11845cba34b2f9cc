"""Fixtures of the runtime's tests; they live in live.py, where other rooms' tests find them, too."""

from tests.runtime.live import foreign_cluster, make_bench, make_foreign

__all__ = ["foreign_cluster", "make_bench", "make_foreign"]

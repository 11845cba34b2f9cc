"""Clusters that tests of distribution start."""

from tests.runtime.live import make_foreign

__all__ = ["make_foreign"]

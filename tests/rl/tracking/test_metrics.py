"""The reference page's table of metrics."""

from tests.rl import METRICS


def test_every_metric_has_unit_and_meaning():
    """No line of the reference page's table is empty, and it holds all kinds of metrics."""
    assert all(unit and text for unit, text in METRICS.values())
    kinds = {"rollout", "time", "train", "replay", "round", "lease", "warmup", "batching", "eval", "resume"}
    assert {name.partition("/")[0] for name in METRICS} == kinds

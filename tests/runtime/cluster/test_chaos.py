"""Faults of every kind, drawn from a seed, strike a real cluster; its journals obey every law."""

import json

import pytest

from drlnb.bench import chaos


def _assert_unbroken(found, n_faults):
    assert {law: texts for law, texts in found.broken.items() if texts} == {}
    assert found.struck.total() == n_faults
    assert found.struck.keys() == chaos.KINDS.keys(), "every kind of fault struck"
    assert found.counts["updates"] > n_faults, "and tasks trained meanwhile"


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_forty_faults_break_no_law(tmp_path):
    """No slot lost or held twice, no task stuck, each update from one living fence, no orphan, the same in replay."""
    _assert_unbroken(chaos.live_through(chaos.plan(40, 7), act=40, keep=tmp_path), 40)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_hundred_faults_break_no_law(tmp_path):
    """The same for five times as many, in ten acts on one cluster, by its command."""
    keep, rows = tmp_path / "keep", tmp_path / "rows.json"
    said = ["--faults", "200", "--seed", "11", "--json", str(rows), "--keep", str(keep)]
    assert chaos.main(said) == 0, f"what broke a law is in {keep}"
    figures = {row["id"]: row["value"] for row in json.loads(rows.read_text())["rows"]}
    assert figures["chaos-faults"] == 200
    assert figures["chaos-n-updates"] > 200, "tasks trained meanwhile"
    assert figures["chaos-n-attempts"] > 30, "workers died and masters moved"

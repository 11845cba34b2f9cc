"""What `python -m benchmarks distribution` measures at both ends of the network, with few actors and small versions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.distribution import handover
from benchmarks.efforts import Distribution

#: Where `benchmarks` is found by a process that starts elsewhere.
HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
SMALL = Distribution(model_mb=0.5, repeats=2)
#: A process of its own: that of the tests would keep multiprocessing's helper and its pipe.
CODE = """
import json
from benchmarks.efforts import Distribution
from benchmarks.distribution import handover
if __name__ == "__main__":
    handover._FEW, handover._MANY = 1, 2
    rows = list(handover.handover(Distribution(model_mb=0.5, repeats=2)))
    print(json.dumps([[row.id, row.title, row.samples, row.baseline_samples, row.pairs] for row in rows]))
"""


@pytest.mark.cluster
def test_actors_get_every_version_by_views_and_by_messages(tmp_path):
    """Real processes: two rows with a sample per turn."""
    (tmp_path / "rows.py").write_text(CODE, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "rows.py"], cwd=tmp_path, env=HERE, capture_output=True, timeout=60, check=True
    )
    views, many = json.loads(ran.stdout)
    assert [views[0], many[0]] == ["handover", "handover-many"]
    assert views[1].startswith("0.5 MB to 2 actor processes")
    for row in (views, many):
        assert [len(samples) for samples in row[2:]] == [2, 2, 2]
        assert min(row[2] + row[3]) > 0.0
    assert views[2] == pytest.approx([1.0 / each for each in many[2]])


STALE = """
import json
from benchmarks.efforts import Distribution
from benchmarks.distribution import staleness
if __name__ == "__main__":
    staleness._ACTORS, staleness._TURN_S = 1, 1.0
    rows = list(staleness.staleness(Distribution(model_mb=0.5, repeats=1)))
    print(json.dumps([[row.id, row.title, row.samples, row.baseline_samples] for row in rows]))
"""


@pytest.mark.cluster
def test_versions_that_wait_for_actors_are_not_left_behind(tmp_path):
    """A real publisher and actors: one version at most is newer than theirs; four are sent per rollout otherwise."""
    (tmp_path / "rows.py").write_text(STALE, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "rows.py"], cwd=tmp_path, env=HERE, capture_output=True, timeout=60, check=True
    )
    mean, most, rate = json.loads(ran.stdout)
    assert [mean[0], most[0], rate[0]] == ["staleness-mean", "staleness-max", "staleness-rate"]
    assert mean[1].startswith("0.5 MB every 0.2 s, 2 actors on 2 workers")
    assert most[2] == [1.0]
    assert most[3][0] >= 2.0
    assert 0.0 < mean[2][0] < mean[3][0]
    assert rate[2][0] < rate[3][0]


def test_packing_is_paired_with_torch():
    """Twenty samples of each, in turn."""
    (row,) = handover.pack(SMALL)
    assert row.title == "0.5 MB, 82 tensors, packed flat"
    assert len(row.pairs) == 20
    assert min(row.samples) > 0.0

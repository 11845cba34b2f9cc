"""Pure parts of the rows of ``drlnb bench runtime``, and two cheap rows for real."""

import contextlib
import json
import subprocess
import sys
import time

import psutil
import pytest

from drlnb.bench.frame.processes import survivors
from drlnb.bench.runtime.training import round_hops
from drlnb.bench.runtime.turns import WARM, Hold, gaps
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream, StreamOpened

FENCE = Fence(epoch=1, token=1)


def test_gaps_are_between_holders_not_within_one():
    """Three holds a, b, b after the warm ones: only a -> b counts, from its release to the next grant."""
    warm = [(i, "ab"[i % 2], float(i), i + 0.5) for i in range(WARM + 1)]
    holds = [*warm, (5, "b", 5.0, 5.4), (6, "b", 5.5, 5.9), (7, "a", 6.1, 6.4), (8, "b", 7.0, 7.1)]
    assert gaps([Hold(token, holder, got, got, left) for token, holder, got, left in holds[::-1]]) == pytest.approx([
        0.5,
        0.2,
    ])


def test_control_is_split_at_the_journals_events():
    """A round by hand: acting 2 of 3 s, 1 s for the lease of which 0.4 queued, 4 s computing of 5, 0.5 s publishing."""
    events = [
        HostCompleted(t=1.0, host="0", version=1, n_bytes=100, publish_s=0.0),
        words.ExperienceArrived(
            t=4.0,
            collector=0,
            round=1,
            attempt=1,
            version=1,
            n_samples=1,
            n_bytes=1,
            key="k",
            collect_s=2.0,
            episodes=(),
        ),
        words.LeaseReceived(t=5.0, request_id="r", fence=FENCE, slots=("s",), waited_s=0.4),
        words.GradientComputed(t=6.0, collector=0, round=1, fence=FENCE, elapsed_s=0.5),
        words.ParametersReady(t=10.0, round=1, fence=FENCE, elapsed_s=3.5, n_bytes=1, key="k", metrics={}),
        HostCompleted(t=10.5, host="0", version=2, n_bytes=100, publish_s=0.5),
    ]
    header = StreamOpened(stream="s", machine="round", config={}, origin="measured", version="0")
    stream = Stream(header=header, records=tuple(events), torn=False, source="here")
    (one,) = round_hops(stream)
    assert one == pytest.approx({"collect": 1.0, "lease": 0.6, "compute": 1.0, "publish": 0.5})


# ------------------------------------------------------------------ for real
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_cheap_rows_for_real(tmp_path):
    """Messages and starts are measured on real processes, in the form of every bench; nothing is left running."""
    path = tmp_path / "rows.json"
    code = "import sys; from drlnb.bench.benches import BENCHES; sys.exit(BENCHES['runtime'].main(sys.argv[1:]))"
    argv = ["--rows", "hops,startup", "--repeats", "1", "--json", str(path)]
    process = subprocess.Popen([sys.executable, "-c", code, *argv], stdout=subprocess.PIPE, start_new_session=True)
    seen = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            seen.update(psutil.Process(process.pid).children(recursive=True))
        time.sleep(0.05)
    process.stdout.close()
    assert process.returncode == 0
    assert survivors(list(seen)) == []
    rows = {row["id"]: row for row in json.loads(path.read_text())["rows"]}
    assert {"hops", "startup-v-torch", "startup-v-spawn", "startup-4-v-torch", "startup-4-v-spawn"} <= rows.keys()
    assert all(0 < rows[name]["ratio"] < 1 for name in rows if rows[name]["baseline"])

"""Pure parts of the rows of ``python -m benchmarks runtime``, and two cheap rows for real."""

import contextlib
import json
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.runtime.turns import WARM, Hold, gaps
from tests.survivors import survivors


def test_gaps_are_between_holders_not_within_one():
    """Three holds a, b, b after the warm ones: only a -> b counts, from its release to the next grant."""
    warm = [(i, "ab"[i % 2], float(i), i + 0.5) for i in range(WARM + 1)]
    holds = [*warm, (5, "b", 5.0, 5.4), (6, "b", 5.5, 5.9), (7, "a", 6.1, 6.4), (8, "b", 7.0, 7.1)]
    assert gaps([Hold(token, holder, got, got, left) for token, holder, got, left in holds[::-1]]) == pytest.approx([
        0.5,
        0.2,
    ])


# ------------------------------------------------------------------ for real
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_cheap_rows_for_real(tmp_path):
    """Messages, trainings and starts are measured on real processes, in every bench's form; nothing is left running."""
    path = tmp_path / "rows.json"
    code = "import sys; from benchmarks.benches import BENCHES; sys.exit(BENCHES['runtime'].main(sys.argv[1:]))"
    rows = "hops,handover,overhead,overhead-train,startup"
    argv = ["--rows", rows, "--repeats", "1", "--steps", "2000", "--json", str(path)]
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
    assert {"handover", "overhead", "overhead-train"} <= rows.keys()
    assert [row["not_measured"] for row in rows.values() if row.get("not_measured")] == []
    assert all(0 < row["ratio"] < 1 for row in rows.values() if row["baseline"] and row["id"] != "overhead-train")

"""Nothing stays of the bench of JupyterLab when it is killed."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.browser.driver import left_behind
from tests.browser.lab import until

ROOT = Path(__file__).parents[2]


def _below(pid: int) -> dict[int, tuple[float, str]]:
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[process.pid] = (process.create_time(), " ".join(process.cmdline()))
    return found


@pytest.mark.slow
def test_nothing_outlives_it(tmp_path):
    """Killed without a chance to clean up, it takes JupyterLab, kernel, cluster and Chromium along within seconds."""
    words = [sys.executable, "-m", "tests.browser.bench", "--repeats", "1"]
    wanted = ("jupyterlab", "ipykernel_launcher", "chrom", "drlnb worker")
    with (tmp_path / "bench.log").open("wb") as log:
        bench = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT)
    try:
        seen: dict[int, tuple[float, str]] = {}

        def there() -> bool:
            if bench.poll() is not None:
                return True
            seen.update(_below(bench.pid))
            return all(any(word in text for _, text in seen.values()) for word in wanted)

        assert until(there, 120), sorted(text[:90] for _, text in seen.values())
        assert bench.poll() is None, (tmp_path / "bench.log").read_text(encoding="utf-8")
    finally:
        bench.send_signal(signal.SIGKILL)
        bench.wait()
    assert left_behind(seen, 20.0) == {}

"""A real browser opens the report from disk: everything is drawn, nothing is said in the console."""

import html
import re
import shutil
import subprocess

import pytest

from drlnb.report import build
from tests.views.journals import two_tasks

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]


def test_the_report_draws_itself(tmp_path):
    """Modules, data and policy fit together: canvases have a size, the table has its rows."""
    build(two_tasks().journal(), tmp_path / "out.html")
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--virtual-time-budget=3000",
            "--dump-dom",
            (tmp_path / "out.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    page = html.unescape(done.stdout)
    assert 'data-drawn="yes"' in page
    assert len(re.findall(r"<canvas[^>]*style=\"height: \d+px", page)) == 3
    assert len(re.findall(r'<tr[^>]*data-testid="row"', page)) == 2
    assert re.search(r'data-testid="number-held"[^>]*><span>held </span><b>80 %</b>', page)
    assert "CONSOLE" not in done.stderr

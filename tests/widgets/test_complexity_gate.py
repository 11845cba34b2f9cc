"""A panel that decides too much is seen."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
#: Five questions make a function of complexity 6.
PLANT = (
    'def plan(a):\n    """Decide."""\n'
    + "".join(f"    if a == {i}:\n        a += 1\n" for i in range(5))
    + "    return a\n"
)


@pytest.mark.parametrize(("room", "red"), [("widgets", True), ("fleet", False)])
def test_a_widget_may_decide_less_than_others(room, red):
    """Complexity 6 is refused in `widgets`, whose limit is 5, and allowed elsewhere."""
    words = ["check", "--no-cache", "--output-format", "concise", "--select", "C901", "--stdin-filename"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, f"drlnb/{room}/planted.py", "-"],
        input=PLANT,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ("`plan` is too complex (6 > 5)" in done.stdout) == red, done.stdout + done.stderr
    assert done.returncode == int(red)

"""Find the notebooks, and run them as a user does."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: All notebooks of this checkout; a wheel's tests run without one.
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: Runs a notebook in its folder and writes it back with its outputs, also when a cell fails.
_EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    NotebookClient(notebook, timeout=60).execute()
finally:
    nbformat.write(notebook, "executed.ipynb")
"""


def execute(name: str, folder: Path, limit_s: int) -> float:
    """Run a notebook once in a folder, with real children; red if a process outlives it. Return the seconds."""
    shutil.copy(ROOT / "notebooks" / name, folder)
    supervised = [sys.executable, str(ROOT / ".ci" / "supervise.py"), "--limit-s", str(limit_s), "--"]
    began = time.monotonic()
    done = subprocess.run(
        [*supervised, sys.executable, "-c", _EXECUTE, name],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return time.monotonic() - began


def cells_of(folder: Path) -> dict[str, dict]:
    """Return the executed cells by id."""
    notebook = json.loads((folder / "executed.ipynb").read_text(encoding="utf-8"))
    return {cell["id"]: cell for cell in notebook["cells"]}


def text_of(cell: dict) -> str:
    """Return what a cell printed."""
    return "".join("".join(output.get("text", ())) for output in cell["outputs"])


@pytest.fixture
def root() -> Path:
    """Return the folder of the checkout; the test is skipped where there is none."""
    if not NOTEBOOKS:
        pytest.skip("no notebooks beside these tests")
    return ROOT

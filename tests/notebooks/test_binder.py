"""What Binder builds is what is tested: its pins, its Python, its scripts, and the notebook that the badge opens."""

import os
import re
import subprocess
import tomllib
from urllib.parse import parse_qs, urlsplit

import pytest


def test_its_pins_are_the_tested_set(root):
    """Everything is constrained by the one list of versions; torch by its exact one, so that the CPU build is taken."""
    lines = (root / "binder/requirements.txt").read_text(encoding="utf-8").splitlines()
    words = [line for line in lines if not line.startswith("#")]
    tested = re.findall(r"^torch==.*$", (root / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert words == ["--extra-index-url https://download.pytorch.org/whl/cpu", "-c ../constraints.txt", *tested, "."]


def test_its_python_is_one_that_is_supported(root):
    """Binder's default is older than the oldest that will do."""
    asked = (root / "binder/runtime.txt").read_text(encoding="utf-8").strip()
    least = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    version = [tuple(map(int, re.findall(r"\d+", text))) for text in (asked, least)]
    assert version[0] >= version[1]


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_its_scripts_can_be_run(root, name):
    """They are executable, and bash reads them to the end."""
    path = root / "binder" / name
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_start_becomes_what_it_starts(root):
    """Its words are taken as they are, with one thread each, and its exit status is theirs."""
    words = ["bash", "-c", 'echo "$1" $OMP_NUM_THREADS; exit 7', "x", "a  b"]
    done = subprocess.run([str(root / "binder/start"), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "a  b 1\n")


def test_the_badge_opens_a_notebook_that_is_there(root):
    """In JupyterLab, by its path in this repository."""
    address = re.search(r"\]\((https://mybinder\.org/v2/[^)]+)\)", (root / "README.md").read_text(encoding="utf-8"))
    (place,) = parse_qs(urlsplit(address[1]).query)["urlpath"]
    assert place.startswith("lab/tree/")
    assert (root / place.removeprefix("lab/tree/")).is_file()

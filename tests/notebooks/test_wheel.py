"""Does an installed version bring its notebooks and modules along?  Looked at in a wheel, outside of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.notebooks.conftest import NOTEBOOKS, ROOT

pytestmark = pytest.mark.notebook

#: What `drlnb lab` does first, without becoming JupyterLab; says what it opens.
LOOK = """
import sys
from pathlib import Path
import drlnb
from drlnb.cli.lab import notebook_for
from drlnb.views.drawing.assets import module

assert Path(drlnb.__file__).is_relative_to(sys.argv[1]), drlnb.__file__
path, notice = notebook_for("00_tour", fresh="--fresh" in sys.argv)
assert "export default" in module("timeline")
print(path.relative_to(Path.cwd()).as_posix(), notice)
"""


@pytest.fixture(scope="module")
def site(root_of_wheel, tmp_path_factory):
    """Build the wheel from a copy and lay it out as pip would; return that folder."""
    made = tmp_path_factory.mktemp("wheel")
    words = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(made)]
    done = subprocess.run(
        [sys.executable, "-m", *words, str(root_of_wheel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(made / "site")
    return made / "site"


@pytest.fixture(scope="module")
def root_of_wheel(tmp_path_factory):
    """Copy what is built from, as git would check it out: a build writes into its folder."""
    if not NOTEBOOKS:
        pytest.skip("no notebooks beside these tests")
    copy = tmp_path_factory.mktemp("checkout") / "drlnb"
    copy.mkdir()
    junk = shutil.ignore_patterns("__pycache__", "*.egg-info", "runs", ".*")
    for name in ("drlnb", "notebooks", "docs"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=junk)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, copy / name)
    return copy


def opened(site, folder, *words):
    """Return what an installed `drlnb lab` would open in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(site), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_a_wheel_carries_every_notebook_and_module(site):
    """Word for word, and nothing that a run has left beside them."""
    packed = sorted((site / "drlnb" / "cli" / "notebooks").rglob("*"))
    assert [path.name for path in packed] == [path.name for path in NOTEBOOKS]
    assert [path.read_bytes() for path in packed] == [path.read_bytes() for path in NOTEBOOKS]
    modules = {path.name for path in (ROOT / "drlnb" / "views" / "drawing" / "js").glob("*.js")}
    assert {path.name for path in (site / "drlnb" / "views" / "drawing" / "js").iterdir()} == modules


def test_without_a_checkout_the_lab_copies_them_and_keeps_what_was_changed(site, tmp_path):
    """``./drlnb-notebooks``; a changed file stays and is said, ``--fresh`` writes beside it."""
    assert opened(site, tmp_path) == "drlnb-notebooks/00_tour.ipynb"
    mine = tmp_path / "drlnb-notebooks" / "00_tour.ipynb"
    source = (ROOT / "notebooks" / "00_tour.ipynb").read_text(encoding="utf-8")
    assert mine.read_text(encoding="utf-8") == source.replace("](../docs/", "](docs/")
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    assert all((mine.parent / page).is_file() for page in pages)
    mine.write_text("mine", encoding="utf-8")
    said = "00_tour.ipynb was changed since it was copied and is opened as it is; --fresh opens a new copy"
    assert opened(site, tmp_path) == f"drlnb-notebooks/00_tour.ipynb {said}"
    assert opened(site, tmp_path, "--fresh") == "drlnb-notebooks/00_tour-2.ipynb"
    assert mine.read_text(encoding="utf-8") == "mine"

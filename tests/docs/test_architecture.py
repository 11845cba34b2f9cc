"""The page about the house tells what is there."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
draw = runpy.run_path(str(ROOT / ".ci/architecture.py"))

CONFIG = """
[[tool.importlinter.contracts]]
type = "layers"
containers = ["drlnb"]
layers = ["cli", "(fleet) | (swap)", "records"]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["drlnb.fleet"]
layers = ["top", "left | right | missing"]
"""


def test_the_picture_on_the_page_is_that_of_the_contracts():
    """Whoever changes a contract draws the picture anew: python .ci/architecture.py --write."""
    assert draw["on_page"](PAGE.read_text(encoding="utf-8")) == draw["picture"]((ROOT / "pyproject.toml").read_text())


def test_a_picture_has_the_floors_in_order_and_the_folders_inside(tmp_path):
    """Floors from top to bottom, folders of a room inside it; what does not exist is not drawn."""
    for name in ("cli", "fleet", "fleet/top", "fleet/left", "fleet/right", "records"):
        (tmp_path / "drlnb" / name).mkdir(parents=True)
        (tmp_path / "drlnb" / name / "__init__.py").touch()
    drawn = draw["picture"](CONFIG, tmp_path)
    assert drawn.index("cli[") < drawn.index("fleet[") < drawn.index("records[")
    assert '<br/>top > left | right"]' in drawn
    assert "swap" not in drawn
    assert drawn.count("-->") == 2


def test_a_page_without_marks_is_refused():
    """Named with the lines that it needs."""
    with pytest.raises(ValueError, match="the page needs the lines"):
        draw["on_page"]("# nothing")


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_names_exists(page):
    """Files, folders and modules in backticks are there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:drlnb|tests|docs|\.ci|notebooks|binder)/[\w./-]*)`", text))
    assert len(paths) >= 5
    assert not sorted(path for path in paths if not (ROOT / path).exists())


def test_every_system_of_the_glossary_has_its_rooms():
    """A word of the glossary that is a room's name is one on every floor that says it has a column for it."""
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    words = {word.strip() for row in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE) for word in row.split(",")}
    rooms = {path.name for path in (ROOT / "drlnb/planning").iterdir() if (path / "__init__.py").exists()}
    assert not sorted(room for room in rooms if not words & {room, room.rstrip("s"), room.replace("warmup", "warm-up")})

"""The page about the house tells what is there."""

import re
import runpy
from pathlib import Path

import pytest

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.decisions import KINDS
from drlnb.planning.settings import SETTINGS

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
    assert '<br/>top<br/>left | right"]' in drawn
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


def test_every_link_between_pages_leads_somewhere():
    """Of the documentation, the README and what stands beside it."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += list((ROOT / "docs").rglob("*.md"))
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#\s<]+)", page.read_text(encoding="utf-8"))
    ]
    inner = [(page, link) for page, link in links if "://" not in link]
    assert len(inner) > 50
    assert not [(str(page), link) for page, link in inner if not (page.parent / link).exists()]


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 15), ("CONTRIBUTING.md", 1)])
def test_every_name_that_a_page_gives_a_file_is_made_there(page, least):
    """Functions, classes and tables are where the page says, however they may be moved."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    named = re.findall(r"`(\w+)` \(`([\w./]+\.py)`\)", text)
    assert len(named) >= least
    for name, path in named:
        made = rf"^(class {name}\b|(async )?def {name}\(|{name}\b.* = )"
        assert re.search(made, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (name, path)


def test_the_table_of_planners_is_that_of_the_registry():
    """Each decision has all of its planners, the default first, and the setting that changes it."""
    text = (ROOT / "docs/reference/planners.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    told = {cells[0].strip("`"): (re.findall(r"`([^`]+)`", cells[2]), cells[3].strip("`")) for cells in rows}
    assert told.keys() == KINDS.keys()
    for decision, (names, key) in told.items():
        assert names[0] == KINDS[decision].default
        assert sorted(names) == sorted(KINDS[decision].names)
        assert SETTINGS[key].default == KINDS[decision].default


#: Names of folders that are standard terms, or plain English: they need no line in the glossary.
STANDARD = frozenset({
    "acting", "algorithms", "callbacks", "checkpoints", "children", "cli", "client", "cluster",
    "collecting", "drawing", "envs", "files", "ipc", "local", "networks", "node", "objectives",
    "panels", "planning", "policies", "recorded", "records", "report", "rl", "rows", "runtime", "scheduler",
    "settings", "sim", "tasks", "tracking", "training", "transport", "views", "whatif", "widgets", "zoo",
})  # fmt: skip


def test_a_folder_has_a_name_that_is_standard_or_in_the_glossary():
    """A house word that names a folder is explained."""
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    words = {word.strip().replace("-", "") for row in rows for word in row.split(",")}
    folders = {path.parent.name for path in (ROOT / "drlnb").rglob("__init__.py")} - {"drlnb"}
    assert not STANDARD - folders
    assert not sorted(name for name in folders - STANDARD if not words & {name, name.removesuffix("s")})

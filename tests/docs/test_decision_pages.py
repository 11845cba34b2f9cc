"""The index of decisions has every page, with its title and a status."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/decisions"
made = runpy.run_path(str(ROOT / ".ci/decisions.py"))


def test_the_index_is_what_the_pages_say():
    """Whoever adds a page, or changes a title, writes the index anew: python .ci/decisions.py --write."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert text == made["index"]()
    assert len(made["statuses"](text)) == len(list(FOLDER.glob("[0-9]*.md"))) >= 60


def test_a_page_is_named_by_its_number_alone_once():
    """Two branches that take the same number are found."""
    numbers = [page.name[:4] for page in FOLDER.glob("[0-9]*.md")]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("[0-9]*.md")), ids=lambda page: page.name[:4])
def test_numbers_of_other_decisions_exist(page):
    """What a page refers to as (0042) is there."""
    named = re.findall(r"\b(00\d\d)\b(?!\.\d)", page.read_text(encoding="utf-8").partition("\n")[2])
    assert not {number for number in named if not list(FOLDER.glob(f"{number}-*.md"))}


@pytest.mark.parametrize("status", ["old", "replaced by 0001", "replaced by 0009", "replaced by 0002"])
def test_a_wrong_status_is_refused(status):
    """It is one of three; a page is replaced by a later one that there is."""
    with pytest.raises(ValueError, match=rf"decision 0002: the status must be .*: '{status}'"):
        made["statuses"](f"| [0001](a) | A | current |\n| [0002](b) | B | {status} |\n")
    assert made["statuses"]("| [0001](a) | A | replaced by 0002 |\n| [0002](b) | B | measurement |\n")


@pytest.mark.parametrize("first", ["# 2. B", "# 0003: B", "0002: B"])
def test_a_page_without_its_number_is_refused(tmp_path, first):
    """The title begins with the number of the file."""
    (tmp_path / "0002-b.md").write_text(f"{first}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"0002-b\.md must begin with '# 0002: '"):
        made["index"](tmp_path)

"""The page on Stable-Baselines3's tests adds up, and the tests that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/stable-baselines3.md").read_text(encoding="utf-8")
#: File and test of theirs, cases, those that hold, what is here; of each table.
_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (\d+) \| (.*) \|$", re.MULTILINE)
_OURS = re.compile(r"`([\w/]+\.py)::(\w+)`")
*PARTS, HABITS = PAGE.split("\n## ")[1:]
TABLES = [[*_ROW.finditer(part)] for part in PARTS]


def total(table, column):
    return sum(int(row[column]) for row in table)


def test_the_columns_add_up():
    """Cases and those that hold, of each table and of both, are the sums that the text says."""
    (cases, hold), (more, more_hold) = ((total(table, 3), total(table, 4)) for table in TABLES)
    built, left = (int(n) for n in re.search(r"\* (\d+) of them build .*?\. (\d+) of these are not", PAGE).groups())
    assert built - left == cases
    assert f"The other {cases} are the first table: {hold} hold." in PAGE
    assert re.search(rf"\* {more} show a fact .* {more_hold} hold\.", PAGE, re.DOTALL)
    assert f"**{hold + more_hold} of {cases + more} cases hold**" in PAGE


def test_what_holds_is_a_test_and_what_does_not_has_a_reason():
    """All cases of a row hold, or none of them; each test is one of the suite's, where it is said to be."""
    for row in (row for table in TABLES for row in table):
        ours = _OURS.findall(row[5])
        assert row[4] in {"0", row[3]}, row[0]
        assert bool(ours) is (row[4] != "0"), row[0]
        assert row[5], row[0]
        for path, name in ours:
            assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), (path, name)


def test_each_habit_has_tests_that_are_there():
    """Of every row of the last table."""
    rows = [line for line in HABITS.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 32
    for row in rows:
        ours = _OURS.findall(row.rsplit(" | ", 1)[1])
        assert ours, row
        for path, name in ours:
            assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), (path, name)

"""The page of placement: its example and its table are what comes out."""

import re
from pathlib import Path

import pytest

from drlnb.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs/placement.md").read_text(encoding="utf-8")


def test_the_example_gives_the_ratio_that_it_names():
    """As it stands there, and its last line is the figure in its comment."""
    example, _ = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    *lines, last = example.strip().splitlines()
    names = {}
    exec("\n".join(lines), names)
    assert eval(last, names) == pytest.approx(float(last.rsplit(" ", 1)[1]), abs=0.005)


@pytest.mark.slow
def test_the_table_is_what_the_command_prints(capsys):
    """The first command of the page, and the sentence of the null regime at the defaults."""
    block = re.findall(r"(?:^    .*\n|^\n)+", PAGE, re.MULTILINE)
    (table,) = (part for part in block if "drlnb simulate placement" in part)
    command, _, *lines = [line[4:] for line in table.strip("\n").splitlines()]
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert main(["simulate", "placement", "--planner", "ect"]) == 0
    assert f"    {capsys.readouterr().out.splitlines()[-1]}\n" in PAGE

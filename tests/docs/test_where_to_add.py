"""The steps of "Where do I add ...?" are enough: each is gone through in a copy, by nothing but what the table says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PLANNER = '''"""Plan as another one does."""

{imports}

__all__ = ["Mine"]


class Mine({base}):
    """Another name for it."""

    name = "mine"

    def __init__(self) -> None:
        super().__init__({arguments})


{kind}.register("mine", Mine)
'''
#: Room -> its kind, and what the new planner is made of: module, class, arguments.
ROOMS = {
    "leasing": ("HOLD", "planners", "Once", '"mine", True'),
    "warmup": ("WARMUP", "planner", "object", ""),
    "batching": ("BATCHING", "equal", "Equal", ""),
    "swapping": ("SWAPPING", "planner", "NoSwap", ""),
    "distribution": ("DISTRIBUTION", "planner", "Fixed", '"star"'),
    "placement": ("PLACEMENT", "planner", "FirstPlacement", ""),
}
FOUND = """
from drlnb.cli.main import main
from drlnb.fleet.tasks.planners import chosen
from drlnb.planning.decisions import KINDS
from drlnb.planning.settings import SETTINGS, setting_problem
print(set(chosen({decision: "mine" for decision in KINDS}).names.values()))
print([setting_problem(key, "mine") for key, setting in SETTINGS.items() if setting.decision])
main(["simulate", "warmup", "--planners", "mine", "--rounds", "20"])
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy what is imported; what is added for one test is there for the next."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("drlnb", "benchmarks"):
        ignore = shutil.ignore_patterns("__pycache__", "notebooks", "docs")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def python(folder, *words):
    env = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_planner_of_each_decision(copy):
    """A file that registers, an import in the room: runs take it, settings change to it, simulations compare it."""
    for room, (kind, module, base, arguments) in ROOMS.items():
        homes = {"planners" if room == "leasing" else "planner": [kind]}
        if base != "object":
            homes.setdefault(module, []).append(base)
        imports = [f"from drlnb.planning.{room}.{home} import {', '.join(names)}" for home, names in homes.items()]
        text = PLANNER.format(imports="\n".join(imports), base=base, arguments=arguments, kind=kind)
        if room == "warmup":
            text = text.replace("        super().__init__()\n", "        self.plan = WARMUP.build('cold').plan\n")
        (copy / f"drlnb/planning/{room}/mine.py").write_text(text, encoding="utf-8")
        change(
            copy / f"drlnb/planning/{room}/__init__.py",
            "\n__all__",
            f"from drlnb.planning.{room} import mine\n\n__all__",
        )
    said = python(copy, "-c", FOUND).splitlines()
    assert said[:2] == ["{'mine'}", "['', '', '', '', '', '', '']"]
    assert any(line.startswith("mine") for line in said[2:])


def test_a_setting(copy):
    """A declared field is a key with an owner, a check and a word on when it counts."""
    path = copy / "drlnb/planning/warmup/settings.py"
    change(path, "    kappa: float = ", "    mine: float = _own(2.0, POSITIVE)\n    kappa: float = ")
    code = (
        "from drlnb.planning.settings import owner, setting_problem, takes_effect; "
        "print(owner('warmup.mine'), takes_effect('warmup.mine'), setting_problem('warmup.mine', -1), sep='|')"
    )
    problem = "warmup.mine: mine must be a number from 1e-9 to 1e9, got -1"
    assert python(copy, "-c", code) == f"task|from the next round on|{problem}\n"


def test_a_command(copy):
    """One file with a COMMAND, its name in the list."""
    text = '"""Print a line."""\n\nfrom drlnb.cli.parser import Command\n\n'
    text += 'COMMAND = Command("print a line", lambda args: print("mine") or 0)\n'
    (copy / "drlnb/cli/mine.py").write_text(text, encoding="utf-8")
    change(copy / "drlnb/cli/main.py", '"lab", "doctor")', '"lab", "doctor", "mine")')
    assert python(copy, "-c", "from drlnb.cli.main import main; main(['mine'])") == "mine\n"


ROUNDS = '''"""Show rounds."""

from drlnb.views.rounds import anatomy
from drlnb.widgets.panels.frame import Content


class Rounds(Content):
    """The parts of rounds."""

    NAME = "rounds"
    MODULE = "timeline"

    def draw(self, name=""):
        """Return the picture."""
        return anatomy(self.fold)
'''


def test_a_panel(copy):
    """A class of Content and a line in PANELS: the panel of that name draws."""
    (copy / "drlnb/widgets/panels/rounds.py").write_text(ROUNDS, encoding="utf-8")
    faces = copy / "drlnb/widgets/faces.py"
    line = "from drlnb.widgets.panels.distribution.timings import Timings\n"
    change(faces, line, f"{line}from drlnb.widgets.panels.rounds import Rounds\n")
    line = '    "swapping": Swapping,\n'
    change(faces, line, f'{line}    "rounds": Rounds,\n')
    code = (
        "from drlnb.widgets.faces import PANELS; from drlnb.widgets.panels.frame import Panel; "
        "print(Panel(PANELS['rounds'](), None).view().sentence)"
    )
    assert python(copy, "-c", code) == "no finished rounds yet\n"


def test_a_column_of_a_picture(copy):
    """A Column and its values: the table has it, with its unit."""
    path = copy / "drlnb/views/rounds.py"
    line = '    Column("count", '
    change(path, line, f'    Column("mine", "twice", "twice the mean", unit="s"),\n{line}')
    line = '        "mean": parts.ravel(),\n'
    change(path, line, f'{line}        "mine": 2 * parts.ravel(),\n')
    code = (
        "from pathlib import Path; from drlnb.records.journal import Journal; from drlnb.views.rounds import anatomy; "
        f"print(anatomy(Journal.read(Path({str(ROOT / 'tests/journals/two-tasks-one-slot')!r}))).json())"
    )
    assert "twice" in python(copy, "-c", code)


def test_a_row_of_a_benchmark(copy):
    """A function that returns rows, a line in the list: the command measures it."""
    text = '"""Measure nothing."""\n\nfrom benchmarks.frame.rows import Row\n\n\n'
    text += 'def mine(effort):\n    """Return a row."""\n    return (Row("mine", "what is one", [1.0]),)\n'
    (copy / "benchmarks/leasing/mine.py").write_text(text, encoding="utf-8")
    path = copy / "benchmarks/benches.py"
    line = "from benchmarks.leasing import live as"
    change(path, line, f"from benchmarks.leasing import mine\n{line}")
    line = '            "events": lease_events.events,\n'
    change(path, line, f'{line}            "mine": mine.mine,\n')
    assert "mine: what is one" in python(copy, "-m", "benchmarks", "leasing", "--rows", "mine")

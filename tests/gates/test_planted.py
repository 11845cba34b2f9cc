"""A gate never seen red is not a gate: each finds the violation planted for it, and nothing in the clean copy.

The replay gate's plant, a machine that reads a clock, is in ``tests/planning/test_replay.py``.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
DOC = '"""Planted."""\n'
HEAD = f"{DOC}\n__all__: list[str] = []\n\n"
FUNCTION = 'def planted({}) -> {}:\n    """Return something."""\n'
SIM, ROOM = "drlnb/sim/planted.py", "drlnb/planning/leasing/planted.py"
BRANCHES = "".join(f"    if n == {i}:\n        return {i * i}\n" for i in range(10))


@pytest.mark.parametrize("gate", ["format", "ruff", "mypy", "contracts", "sizes", "house", "imports"])
def test_the_clean_copy_is_green(tree, gate):
    """What the plants turn red is green without them."""
    ran = tree.gate(gate)
    assert ran.green, ran.output


PLANTS = {
    "badly formatted": ("format", SIM, DOC + "x = {  'a':1 }\n", ["planted.py"]),
    "unused import": ("ruff", SIM, DOC + "\nimport json\n", ["unused-import"]),
    "local time": (
        "ruff",
        SIM,
        DOC + "\nfrom datetime import datetime\n\nNOW = datetime.now()\n",
        ["call-datetime-now-without-tzinfo"],
    ),
    "print": ("ruff", SIM, DOC + '\nprint("here")\n', ["print: "]),
    "undocumented": ("ruff", SIM, DOC + "\n\ndef planted() -> None:\n    pass\n", ["undocumented-public-function"]),
    "no annotation": (
        "ruff",
        SIM,
        f"{DOC}\n\n{FUNCTION.format('x', 'int')}    return x\n",
        ["missing-type-function-argument"],
    ),
    "complex": (
        "ruff",
        SIM,
        f"{DOC}\n\n{FUNCTION.format('n: int', 'int')}{BRANCHES}    return n\n",
        ["complex-structure", "11 > 10"],
    ),
    "blind except": (
        "ruff",
        SIM,
        f"{DOC}\ntry:\n    X = 1\nexcept Exception:\n    X = 2\n",
        ["blind-except"],
    ),
    "wrong type": ("mypy", ROOM, DOC + '\nN: int = "one"\n', ["planted.py:3", "[assignment]"]),
    "untyped function": ("mypy", ROOM, f"{DOC}\n\ndef planted(x):\n    return x\n", ["[no-untyped-def]"]),
    "planning reads the clock": ("contracts", ROOM, DOC + "import time\n", ["planning.leasing.planted -> time"]),
    "planning draws lots": ("contracts", ROOM, DOC + "import random\n", ["planted -> random"]),
    "torch in a function": (
        "contracts",
        ROOM,
        f"{DOC}\n\n{FUNCTION.format('', 'None')}    import torch\n",
        ["planted -> torch"],
    ),
    "torch for types only": (
        "contracts",
        ROOM,
        DOC + "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
        ["planted -> torch"],
    ),
    "room imports room": (
        "contracts",
        ROOM,
        DOC + "import drlnb.planning.placement\n",
        ["planning.leasing.planted -> drlnb.planning.placement"],
    ),
    "ipc knows the node": (
        "contracts",
        "drlnb/runtime/ipc/planted.py",
        DOC + "import drlnb.runtime.node\n",
        ["runtime.ipc.planted -> drlnb.runtime.node"],
    ),
    "runtime draws": ("contracts", "drlnb/runtime/ipc/planted.py", DOC + "import plotly\n", ["planted -> plotly"]),
    "runtime knows the fleet": (
        "contracts",
        "drlnb/runtime/ipc/planted.py",
        DOC + "import drlnb.fleet\n",
        ["runtime.ipc.planted -> drlnb.fleet"],
    ),
    "simulator knows the runtime": (
        "contracts",
        SIM,
        DOC + "import drlnb.runtime\n",
        ["sim.planted -> drlnb.runtime"],
    ),
    "a new top-level name": ("contracts", "drlnb/utils.py", DOC, ["drlnb.utils"]),
    "dynamic import": (
        "imports",
        ROOM,
        DOC + 'from importlib import import_module\nimport_module("asyncio")\n',
        ["drlnb.planning.leasing.planted", "asyncio"],
    ),
    "long function": (
        "ruff",
        SIM,
        f"{DOC}\n\n{FUNCTION.format('', 'int')}" + "    x = 1\n" * 40 + "    return x\n",
        ["too-many-statements", "41 > 40"],
    ),
    "many ways out": (
        "ruff",
        SIM,
        f"{DOC}\n\n{FUNCTION.format('n: int', 'int')}{BRANCHES[: BRANCHES.index('    if n == 8')]}    return n\n",
        ["too-many-return-statements", "9 > 8"],
    ),
    "deeply nested": (
        "ruff",
        SIM,
        f"{DOC}\n\n{FUNCTION.format('', 'None')}"
        + "".join(f"{'    ' * depth}for i{depth} in range(2):\n" for depth in range(1, 7))
        + f"{'    ' * 7}globals()[str(i1 + i2 + i3 + i4 + i5 + i6)] = 1\n",
        ["too-many-nested-blocks", "6 > 5"],
    ),
    "long module": ("sizes", SIM, DOC + "x = 1\n" * 400, ["module has 401 lines"]),
    "export without words": ("sizes", SIM, DOC + '__all__ = ["N"]\nN = 1\n', ["N is exported without"]),
    "Any, often": ("house", SIM, f"{DOC}\nfrom typing import Any\n\n" + "x: Any = 1\n" * 1101, ["that are Any, "]),
    "keys typed as strings": (
        "house",
        "drlnb/runtime/ipc/planted.py",
        DOC + 'X = {"a": 1}\n' + 'X["a"]\n' * 451,
        ["keys typed as strings in runtime: 451"],
    ),
    "kept from the formatter": ("house", SIM, DOC + "X = 1  # fmt: skip\n" * 81, ["# fmt: skip in the product: "]),
    "question in a docstring's end": (
        "ruff",
        SIM,
        DOC + f"\n\n{FUNCTION.format('', 'None')}".replace("something.", "something") + "    return\n",
        ["missing-trailing-period"],
    ),
    "docstring in the third person": (
        "ruff",
        SIM,
        DOC + f"\n\n{FUNCTION.format('', 'None')}".replace("Return", "Returns") + "    return\n",
        ["non-imperative-mood"],
    ),
    "wrong type in a panel": ("mypy", "drlnb/widgets/planted.py", DOC + '\nN: int = "one"\n', ["planted.py:3"]),
    "child imports a plugin": (
        "contracts",
        "drlnb/runtime/ipc/planted.py",
        DOC + "import drlnb.runtime.client\n",
        ["ipc.planted -> drlnb.runtime.client"],
    ),
    "network imports an algorithm": (
        "contracts",
        "drlnb/rl/networks/planted.py",
        DOC + "import drlnb.rl.algorithms\n",
        ["networks.planted -> drlnb.rl.algorithms"],
    ),
    "rows import the cluster": (
        "contracts",
        "drlnb/fleet/rows/planted.py",
        DOC + "import drlnb.fleet.cluster\n",
        ["rows.planted -> drlnb.fleet.cluster"],
    ),
    "wrong example": ("doctest", SIM, '"""Planted.\n\n>>> 1 + 1\n3\n"""\n', ["Expected:", "1 failed"]),
    "warning in an example": (
        "doctest",
        SIM,
        '"""Planted.\n\n>>> import warnings\n>>> warnings.warn("old", DeprecationWarning)\n"""\n',
        ["DeprecationWarning", "1 failed"],
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_the_gate_turns_red(tree, plant):
    """A planted violation is found by its gate, which names it."""
    gate, path, text, words = PLANTS[plant]
    ran = tree.plant({path: text}).gate(gate)
    assert ran.red_for(*words), ran.output


METHODS = "".join(f"    def m{{i}}{i}(self) -> None:\n        pass\n\n" for i in range(13))


def test_a_class_counts_with_its_bases(tree):
    """Two classes of 13 methods in two files are one of 26: a class that is cut into files is still one class."""
    base = f"{DOC}\n\nclass Base:\n" + METHODS.format(i="a")
    child = f"{DOC}from drlnb.sim.base import Base\n\n\nclass Child(Base):\n" + METHODS.format(i="b")
    tree.plant({"drlnb/sim/base.py": base})
    assert tree.gate("house").green
    ran = tree.plant({"drlnb/sim/child.py": child}).gate("house")
    assert ran.red_for("class drlnb.sim.child.Child", "26 methods"), ran.output


def test_a_full_folder_is_red(tree):
    """Seventeen files in one folder are one too many."""
    files = {f"drlnb/sim/planted{i}.py": DOC for i in range(17)}
    assert tree.plant(files).gate("house").red_for("drlnb/sim: 17 files")


def test_passages_that_stand_twice_are_red(tree):
    """Ten passages that stand in eight files each are 280 pairs; names and values do not matter, shapes do."""
    files = {}
    for passage in range(10):
        for place in range(8):
            lines = [f"a{place} = b({', '.join(['c'] * (8 * passage + i + 1))})" for i in range(8)]
            files[f"drlnb/sim/planted{passage}_{place}.py"] = DOC + "\n".join(lines) + "\n"
    n_pairs = int(tree.gate("house").output.partition("stand twice")[2].split()[0])
    ran = tree.plant(files).gate("house")
    assert ran.red_for(f"passages of six lines that stand twice: {n_pairs + 280}"), ran.output


def test_any_counts_under_every_name(tree):
    """An alias of it that another module imports, an alias of that, and what stands in quotes: four annotations."""
    base = f"{DOC}from typing import Any\n\nPlain = dict[str, Any]\nOther = int | None\n"
    user = DOC + "from drlnb.sim.base import Other, Plain\n\nRows = list[Plain]\n\nz: Other = None\n"
    user += 'def f(a: Plain, b: "list[Rows]", *c: Rows) -> Plain:\n    """Return it."""\n    return a\n'
    n_before = _measured(tree, "annotations that are Any, aliases of it included")
    tree.plant({"drlnb/sim/base.py": base, "drlnb/sim/user.py": user})
    assert _measured(tree, "annotations that are Any, aliases of it included") == n_before + 4


def test_the_product_may_have_so_many_lines_as_are_given(tree):
    """Counted as the formatter lays them out: one squeezed line of 64 numbers is 66; without a bound nothing is red."""
    what = "code lines of the product, as the formatter lays them out"
    n_before = _measured(tree, what)
    squeezed = f"X = [1, 2, 3, {'4, ' * 60}5]  # fmt: skip\n"
    tree.plant({SIM: DOC + squeezed})
    n_lines = _measured(tree, what)
    assert n_lines - n_before == 66
    assert tree.run(".ci/house.py", "--at-most", str(n_lines)).green
    assert tree.run(".ci/house.py", "--at-most", str(n_lines - 1)).red_for(f"{what}: {n_lines:,}, at most")


def _measured(tree, what):
    """Return a number of the house's table."""
    ran = tree.gate("house")
    assert ran.green, ran.output
    return int(ran.output.partition(what)[2].split()[0].replace(",", ""))


JAVASCRIPT = {
    "badly laid out": ("const a = {x:1}\nexport default a;\n", "Code style issues"),
    "unused": ("function f() {\n  const a = 1;\n}\nexport default f;\n", "'a' is assigned a value but never used"),
    "wrong type": (
        '/** @type {number} */\nconst a = "one";\nexport default a;\n',
        "is not assignable to type 'number'",
    ),
}


@pytest.mark.parametrize("plant", [None, *JAVASCRIPT])
def test_the_javascript_gate(tmp_path, plant):
    """It finds layout, lint and types; a right file is green."""
    tools = os.environ.get("JS_TOOLS")
    if not tools:
        pytest.skip("JS_TOOLS names no folder in which npm has put the tools of .ci/js/package.json")
    text, words = JAVASCRIPT.get(plant, ("/** @type {number} */\nconst a = 1;\nexport default a;\n", ""))
    (tmp_path / "planted.js").write_text(text, encoding="utf-8")
    script = Path(__file__).parents[2] / ".ci/js/check.sh"
    ran = subprocess.run(["bash", script, tools, tmp_path], capture_output=True, text=True, check=False, timeout=100)
    assert (ran.returncode == 0) == (plant is None), ran.stdout + ran.stderr
    assert words in ran.stdout + ran.stderr


def test_a_right_example_is_green(tree):
    """The doctest gate runs the copy's examples, and passes right ones."""
    ran = tree.plant({SIM: '"""Planted.\n\n>>> 1 + 1\n2\n"""\n'}).gate("doctest")
    assert ran.green, ran.output
    assert "1 passed" in ran.output


def report(**floors):
    """Make the part of coverage's JSON that the gate reads: floor -> (lines run, lines, branches run, branches)."""
    files = {}
    for floor, (lines_run, lines, branches_run, branches) in floors.items():
        files[f"drlnb/{floor}/a.py"] = {
            "summary": {
                "covered_lines": lines_run,
                "num_statements": lines,
                "covered_branches": branches_run,
                "num_branches": branches,
            },
            "missing_lines": list(range(lines_run, lines)),
            "missing_branches": [],
        }
    return {"meta": {"branch_coverage": True}, "files": files}


@pytest.mark.parametrize(
    ("floors", "doctor", "red"),
    [
        ({"planning": (90, 90, 10, 10)}, {}, None),
        ({"planning": (90, 90, 9, 10)}, {}, "planning         100   99.00  RED"),
        ({"runtime": (85, 90, 0, 10)}, {}, None),
        ({"runtime": (84, 90, 0, 10)}, {}, "84.00  RED"),
        ({"sim": (95, 100, 0, 0), "rl": (89, 100, 0, 0)}, {}, "rl                90   89.00  RED"),
        ({"planning": (90, 90, 10, 10)}, {"files": {}}, "no file  RED"),
        ({"planning": (90, 90, 10, 10)}, {"meta": {"branch_coverage": False}}, "branches were not measured"),
    ],
)
def test_a_floor_that_is_covered_too_little_is_red(tree, floors, doctor, red):
    """The coverage gate counts lines and branches against each floor's bound; a floor without files is red."""
    tree.plant({"coverage.json": json.dumps(report(**floors) | doctor)})
    ran = tree.run(".ci/coverage_floors.py", "coverage.json", *floors)
    assert ran.green if red is None else ran.red_for(red), ran.output


MEASURED = """
import os, signal, subprocess, sys, time

def forked():
    in_fork = 1
    os._exit(in_fork - 1)

def spawned(end):
    if os.fork() == 0:
        forked()
    os.wait()
    if end == "terminated":
        print("ready", flush=True)
        time.sleep(60)
    os._exit(0)

if __name__ == "__main__":
    if len(sys.argv) > 1:
        spawned(sys.argv[1])
    for end in ("terminated", "ended"):
        child = subprocess.Popen([sys.executable, __file__, end], stdout=subprocess.PIPE)
        if end == "terminated":
            child.stdout.readline()
            child.send_signal(signal.SIGTERM)
        child.wait()
"""


def test_children_and_their_forks_are_measured(tree):
    """Child interpreters, forks of theirs, ends by os._exit and by SIGTERM: their lines show in the report.

    Only the line on which a fork goes on is not seen: measuring starts anew with the next call.  And the signal may
    come before the line that waits for it.
    """
    config = (
        (tree.root / "pyproject.toml").read_text(encoding="utf-8").replace('["drlnb"]\npatch', '["measured"]\npatch')
    )
    tree.plant({"pyproject.toml": config, "measured.py": MEASURED})
    for words in (["run", "measured.py"], ["combine", "-q"], ["json", "-q", "-o", "out.json"]):
        ran = tree.run("-m", "coverage", *words)
        assert ran.green, ran.output
    files = json.loads((tree.root / "out.json").read_text(encoding="utf-8"))["files"]
    lines = MEASURED.splitlines()
    unseen = {lines.index(line) + 1 for line in ("        forked()", "        time.sleep(60)")}
    assert set(files["measured.py"]["missing_lines"]) <= unseen

"""What does importing a floor bring along?  Contracts on source text miss dynamic imports; ``sys.modules`` does not.

Each question needs a fresh interpreter, so each interpreter answers as many as it can.
"""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import drlnb

pytestmark = pytest.mark.thorough

PACKAGE = Path(drlnb.__file__).parent
HEAVY = {"torch", "dask", "distributed", "gymnasium", "plotly", "ipywidgets", "anywidget", "jupyterlab"}
IMPURE = {"asyncio", "random", "threading", "socket", "subprocess", "logging", "multiprocessing"}

_PROBE = """
import json, pkgutil, sys
found = {}
for name in sys.argv[2:]:
    pkgutil.resolve_name(name)
    found[name] = sorted(set(json.loads(sys.argv[1])) & set(sys.modules))
print(json.dumps(found))
"""


def loaded_by(*names, of):
    """Import modules, or ``module:name``, in turn in one fresh interpreter; return name -> which of `of` are loaded."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    command = [sys.executable, "-c", _PROBE, json.dumps(sorted(of)), *names]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return {name: set(found) for name, found in json.loads(run.stdout).items()}


def modules_of(floor):
    """Name every module of a floor, by its files."""
    files = sorted((PACKAGE / floor).rglob("*.py"))
    return [
        ".".join(("drlnb", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for file in files
    ]


def outside_imports(floor):
    """Name the packages that a floor's source imports from elsewhere, the impure ones left out."""
    names = set()
    for file in (PACKAGE / floor).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(str(node.module))
    return sorted(name for name in names if name.partition(".")[0] not in {"drlnb", *HEAVY, *IMPURE})


@cache
def brought_by_others(floor):
    """Return the impure modules that the packages which a floor may import load themselves."""
    outside = outside_imports(floor)
    return loaded_by(*outside, of=IMPURE)[outside[-1]]


@pytest.mark.parametrize("floor", ["records", "planning"])
def test_a_pure_floor_loads_nothing_that_acts(floor):
    """No module of records or planning loads torch, Dask ..., nor a clock or thread that its imports do not load."""
    for name, found in loaded_by("drlnb", *modules_of(floor), of=HEAVY | IMPURE).items():
        assert found <= brought_by_others(floor), name


def test_the_package_itself_loads_nothing_heavy():
    """``import drlnb`` costs a headless worker neither torch nor Dask, and of the floors only gymnasium's hook."""
    floors = {f"drlnb.{floor}" for floor in ("cli", "fleet", "sim", "runtime", "planning", "rl", "records")}
    assert loaded_by("drlnb", of=HEAVY | IMPURE | floors | {"numpy", "importlib.metadata"}) == {"drlnb": {"drlnb.rl"}}
    deeper = {name for name in modules_of("rl") if name not in {"drlnb.rl", "drlnb.rl.envs", "drlnb.rl.envs.register"}}
    assert loaded_by("drlnb", of=deeper) == {"drlnb": set()}


#: What nobody but a panel or a report loads.
_DRAWS = {"plotly", "ipywidgets", "anywidget", "jupyterlab"}


def test_the_nodes_and_the_door_load_neither_torch_nor_gymnasium():
    """Agents, broker and notebooks do without both; and no module of fleet or simulator draws.

    One interpreter answers for all, one after the other: what none of them has loaded, each of them does without.
    """
    light = [
        "drlnb.rl.checkpoints.files", "drlnb.rl.acting.actors", "drlnb.runtime.node.plugin",
        "drlnb.runtime.scheduler.plugin", "drlnb:Fleet", "drlnb:resume", "drlnb:play",
        "drlnb.runtime.placement.agent", "drlnb.placement:place",
    ]  # fmt: skip
    names = [*light, *modules_of("sim"), *modules_of("fleet")]
    loaded = loaded_by(*names, of={"torch", "gymnasium", *_DRAWS})
    assert {name: loaded[name] for name in light if loaded[name]} == {}
    assert not loaded[names[-1]] & _DRAWS


def test_collectors_and_the_terminal_load_neither_torch_nor_a_cluster():
    """Collectors run without torch and Dask, and the terminal answers at once."""
    collector, terminal = "drlnb.rl.collecting.collector", "drlnb.cli.main"
    loaded = loaded_by(collector, terminal, of={"torch", "dask", "distributed", *_DRAWS})
    assert loaded[collector] == set()
    assert loaded[terminal] <= {"dask"}

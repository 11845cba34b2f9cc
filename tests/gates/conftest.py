"""A copy of the tree to plant violations in, and the gates as commands of this interpreter's environment."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: Copied with their files; every other floor is an empty package, so that only these need be clean.
FLOORS = ("records", "planning")
EMPTY = ("cli", "report", "widgets", "fleet", "sim", "runtime", "rl", "views")
#: Folders, empty too, in which layers inside a floor are planted.
FOLDERS = (
    "runtime/ipc", "runtime/node", "runtime/client", "rl/networks", "rl/algorithms", "fleet/rows", "fleet/cluster",
)  # fmt: skip
#: What the contracts name and may not exist yet.
ROOMS = ("leasing", "warmup", "batching", "swapping", "distribution", "placement")


@dataclass(frozen=True)
class Ran:
    """How a gate ended."""

    code: int
    output: str

    @property
    def green(self) -> bool:
        """Whether the gate found nothing."""
        return self.code == 0

    def red_for(self, *words: str) -> bool:
        """Whether the gate found something and says each of these."""
        return self.code != 0 and all(word in self.output for word in words)


class Tree:
    """A copy of the repository's files that gates read."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache

    def plant(self, files: Mapping[str, str]) -> "Tree":
        """Write files; returns the tree."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return self

    def run(self, *command: str) -> Ran:
        """Run ``python -m ...`` in the tree, away from this session's coverage and user settings."""
        env = {key: value for key, value in os.environ.items() if not key.startswith(("COVERAGE_", "PYTEST_"))}
        env |= {"MYPY_CACHE_DIR": str(self.cache / "mypy"), "RUFF_CACHE_DIR": str(self.cache / "ruff")}
        env |= {
            "PYTHONPATH": str(self.root),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.cache / "hypothesis"),
            "CI": "true",
            "DRLNB_TEST_SHARED": SHARED,
        }
        run = subprocess.run(
            [sys.executable, *command], cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=110
        )
        return Ran(run.returncode, run.stdout + run.stderr)

    def gate(self, name: str) -> Ran:
        """Run a gate as ``.ci/run`` does."""
        return self.run(*GATES[name])


#: How the shared memory begins that a planted test leaves behind: what runs beside it looks for other names.
SHARED = f"planted-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
GATES: dict[str, tuple[str, ...]] = {
    "format": ("-m", "ruff", "format", "--check", "drlnb"),
    "ruff": ("-m", "ruff", "check", "--output-format", "concise", "drlnb"),
    "mypy": ("-m", "mypy"),
    "contracts": ("-c", "from importlinter.cli import lint_imports_command as main; main(['--no-cache'])"),
    "sizes": (".ci/sizes.py",),
    "house": (".ci/house.py",),
    "doctest": ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules", "drlnb/sim"),
    "imports": (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "thorough",
        "tests/test_imports.py",
        "-k",
        "pure and planning",
    ),
}


@pytest.fixture(scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tree(tmp_path: Path, _cache: Path) -> Tree:
    """Copy the floors, the configuration and the gates' own files."""
    root = tmp_path / "tree"
    ignore = shutil.ignore_patterns("__pycache__")
    for floor in FLOORS:
        shutil.copytree(REPOSITORY / "drlnb" / floor, root / "drlnb" / floor, ignore=ignore)
    shutil.copytree(REPOSITORY / ".ci", root / ".ci", ignore=ignore)
    for name in ("pyproject.toml", "drlnb/py.typed", "tests/conftest.py", "tests/test_imports.py"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    empty = [
        "drlnb/__init__.py",
        "benchmarks/__init__.py",
        *(f"drlnb/{floor}/__init__.py" for floor in (*EMPTY, *FOLDERS)),
    ]
    empty += [f"drlnb/planning/{room}/__init__.py" for room in ROOMS if not (root / "drlnb/planning" / room).exists()]
    return Tree(root, _cache).plant(dict.fromkeys(empty, '"""Empty."""\n'))

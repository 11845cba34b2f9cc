"""A nightly session that collects no test is a dead gate: what ``noxfile.py`` asks pytest for is there."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


class Recorded:
    """A session that keeps what it is asked to install and to run, and does neither."""

    posargs = ()

    def __init__(self, folder):
        self._folder, self.asked, self.installed = folder, [], []

    def create_tmp(self):
        return str(self._folder)

    def install(self, *words):
        self.installed += words

    def chdir(self, _):
        pass

    def run(self, *words, **_):
        if words[:3] == ("python", "-m", "build"):
            (self._folder / "drlnb-1-py3-none-any.whl").touch()
        if words[:3] == ("python", "-m", "pytest"):
            self.asked.append([word for word in words[3:] if word != "-s" and not word.startswith("--timeout")])


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Return each session after its run, by its name."""
    sessions = {}
    nox = ModuleType("nox")
    nox.options, nox.Session = SimpleNamespace(), Recorded
    nox.session = lambda function: sessions.setdefault(function.__name__, function)
    monkeypatch.setitem(sys.modules, "nox", nox)
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert set(nox.options.sessions) <= set(sessions)
    found = {}
    for name, function in sessions.items():
        found[name] = Recorded(tmp_path)
        function(found[name])
    return found


@pytest.fixture
def asked(ran):
    """Return each session's commands of pytest, by its name."""
    return {name: session.asked for name, session in ran.items()}


def bearers(path):
    """Return the files that may give a test file's tests a marker: itself, and the conftest beside it."""
    return [file for file in (path, path.parent / "conftest.py") if file.exists()]


def test_sessions_ask_for_markers_that_tests_bear(asked):
    """Each session runs pytest, by markers that are declared and that a test beneath its paths has."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    declared = {line.partition(":")[0] for line in config["markers"]}
    for name, commands in asked.items():
        assert commands, name
        for words in commands:
            excepted = [
                word.partition("=")[2].partition("::")[0] for word in words if word.startswith(("--ig", "--des"))
            ]
            assert all((ROOT / path).exists() for path in excepted), (name, words)
            paths = [ROOT / word for word in words if word.startswith("tests")] or [ROOT / "tests"]
            markers = set(re.findall(r"\w+", words[words.index("-m") + 1] if "-m" in words else "")) - {"not", "and"}
            assert markers <= declared, (name, words)
            files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else bearers(path))]
            for marker in markers:
                assert any(f"mark.{marker}" in file.read_text(encoding="utf-8") for file in files), (name, words)


def test_what_tests_skip_for_want_of_is_installed_for_them(ran):
    """Each optional package that a test names when it skips is there in the session of slow tests."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    wanted = {name for text in texts for name in re.findall(r"not installed \((?:extra|pip install) ([\w-]+)", text)}
    assert wanted >= {"bench", "track", "video", "atari", "sb3-contrib"}, "the words that skips use are others now"
    installed = set(re.findall(r"[\w-]+", " ".join(ran["slow"].installed)))
    assert wanted <= installed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sessions_collect_tests(asked):
    """Pytest itself finds tests for each command of each session."""
    for words in sorted({tuple(words) for commands in asked.values() for words in commands}):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-500:])

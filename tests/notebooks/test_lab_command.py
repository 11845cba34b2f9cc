"""What ``drlnb lab`` opens, and what it refuses."""

import argparse
import re
import sys

import pytest

from drlnb.cli import lab
from drlnb.cli.parser import UsageError
from drlnb.records.errors import ConfigError


class Became(Exception):
    """The process would have become another one."""


@pytest.fixture
def started(monkeypatch):
    """Return what the process would have become: (words, environment)."""
    found = []

    def become(path, words):
        assert path == words[0]
        found.append((words, dict(lab.os.environ)))
        raise Became

    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "")  # restored afterwards
    monkeypatch.setattr(lab.os, "execv", become)
    monkeypatch.setattr(lab.os, "geteuid", lambda: 1000)
    return found


def arguments(**given):
    plain = {"dir": None, "notebook": "00_tour", "port": None, "no_browser": False, "fresh": False, "words": []}
    return argparse.Namespace(**{**plain, **given})


def test_it_opens_a_copy_on_the_loopback_address(tmp_path, started, monkeypatch):
    """It takes this interpreter, the loopback address, a chosen port or none but that, no word about the token."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Became):
        lab.run(arguments(port=8899, no_browser=True, words=["--", "--debug"]))
    ((words, environment),) = started
    assert words[:4] == [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1"]
    assert f"--ServerApp.root_dir={tmp_path / 'drlnb-notebooks'}" in words
    assert "--LabApp.default_url=/lab/tree/00_tour.ipynb" in words
    assert words[-4:] == ["--port=8899", "--ServerApp.port_retries=0", "--no-browser", "--debug"]
    assert environment["JUPYTER_PREFER_ENV_PATH"] == "1"
    assert not any("token" in word for word in words)


def test_another_folder_gets_copies_that_are_never_overwritten(root, tmp_path):
    """The first time it is copied; what its user changed stays, and is said; --fresh takes the next free name."""
    path, notice = lab.notebook_for("00_tour", tmp_path / "new")
    assert (path, notice) == (tmp_path / "new" / "00_tour.ipynb", "")
    source = (root / "notebooks" / "00_tour.ipynb").read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == source.replace("](../docs/", "](docs/")
    path.write_text("mine", encoding="utf-8")
    again, notice = lab.notebook_for("00_tour.ipynb", tmp_path / "new")
    assert again.read_text(encoding="utf-8") == "mine"
    assert notice == "00_tour.ipynb was changed since it was copied and is opened as it is; --fresh opens a new copy"
    assert [lab.notebook_for("00_tour", tmp_path / "new", fresh=True)[0].name for _ in range(2)] == [
        "00_tour-2.ipynb",
        "00_tour-3.ipynb",
    ]
    assert path.read_text(encoding="utf-8") == "mine"


def test_links_of_the_copies_lead_to_files_that_the_server_has(root, tmp_path):
    """Every relative link of every copied notebook, and of every page that it leads to."""
    lab.notebook_for("00_tour", tmp_path)
    pages, seen = sorted(tmp_path.glob("*.ipynb")), set()
    assert len(pages) == len(list((root / "notebooks").glob("*.ipynb")))
    while pages:
        page = pages.pop()
        seen.add(page)
        for link in re.findall(r"\]\(([^)#:]+?\.md)[)#]", page.read_text(encoding="utf-8")):
            there = (page.parent / link).resolve()
            if there.is_relative_to(root):
                continue
            assert there.is_relative_to(tmp_path) or page.suffix == ".md", (page, link)
            if there.is_relative_to(tmp_path):
                assert there.is_file(), (page, link)
                pages += [there] if there not in seen and there not in pages else []
    assert len(seen) > len(list(tmp_path.glob("*.ipynb")))


def test_a_checkout_stays_clean(root, tmp_path, monkeypatch):
    """What is done in a copy changes no repository; its own folder is opened in place where it is asked for."""
    ignored = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "drlnb-notebooks/" in ignored
    monkeypatch.chdir(tmp_path)
    path, _ = lab.notebook_for("04_swapping")
    assert path == tmp_path / "drlnb-notebooks" / "04_swapping.ipynb"
    own, notice = lab.notebook_for("04_swapping", root / "notebooks")
    assert (own, notice) == (root / "notebooks" / "04_swapping.ipynb", "")
    words = lab.lab_words(own, port=None, browser=False)
    assert f"--ServerApp.root_dir={root}" in words
    assert "--LabApp.default_url=/lab/tree/notebooks/04_swapping.ipynb" in words


def test_wrong_words_are_refused(root, tmp_path, started, monkeypatch):
    """A wrong name is answered with the near one, a wrong port with the limits; nothing is started."""
    with pytest.raises(UsageError, match="no notebook '00_tur'; did you mean '00_tour'"):
        lab.run(arguments(notebook="00_tur"))
    with pytest.raises(UsageError, match=r"--port must be in 1\.\.65535, got 70000"):
        lab.run(arguments(port=70000))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file cannot be written"):
        lab.run(arguments(dir=tmp_path / "file"))
    monkeypatch.setattr(lab.os, "geteuid", lambda: 0)
    with pytest.raises(UsageError, match="add: -- --allow-root"):
        lab.run(arguments())
    assert started == []


def test_another_interpreter_is_told(root, tmp_path, monkeypatch):
    """A kernel python3 of another interpreter is named, with both paths."""
    spec = type("Spec", (), {"argv": ["/opt/other/bin/python", "-m", "ipykernel_launcher"]})
    monkeypatch.setattr("jupyter_client.kernelspec.KernelSpecManager.get_kernel_spec", lambda self, name: spec)
    assert lab._other_interpreter() == (
        f"the kernel python3 runs /opt/other/bin/python, not {sys.executable}: drlnb may be missing there"
    )
    spec.argv[0] = "python"
    assert lab._other_interpreter() == ""

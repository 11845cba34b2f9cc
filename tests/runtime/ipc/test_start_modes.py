"""Where a child looks for modules."""

import asyncio
import os
import select
import signal
import sys
import sysconfig
from pathlib import Path

import pytest

from drlnb.runtime.ipc.start_modes import ChildProcess, child_environment, import_path


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Make two folders that the caller has put first on its path, and a third one in which it works."""
    folders = [tmp_path / name for name in ("scripts", "lib", "work")]
    for folder in folders:
        folder.mkdir()
        (folder / "whose.py").write_text("def main(): pass")
    scripts, lib, work = map(str, folders)
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [scripts, "../lib", *sys.path, str(tmp_path / "nowhere")])
    return scripts, lib, work


def test_a_child_looks_where_its_caller_does(beside):
    """In the caller's order, by whole names; then in its working folder; Python's own folders it has by itself."""
    scripts, lib, work = beside
    folders = import_path().split(os.pathsep)
    assert (folders[:2], folders[-1]) == ([str(Path(scripts)), str(Path(lib).parent / "work" / ".." / "lib")], work)
    assert len(folders) == len(set(folders))
    own = [name for name in folders if name.endswith(("-packages", "lib-dynload", "nowhere"))]
    assert (own, sysconfig.get_path("stdlib") in folders) == ([], False)


def test_a_module_beside_the_callers_script_is_found_before_one_in_the_working_folder(beside, tmp_path):
    """As in the caller, where the script's folder comes first."""
    child = ChildProcess.start("whose", log=tmp_path / "log", environment=child_environment())
    assert (child.process.wait(30.0), (tmp_path / "log").read_bytes()) == (0, b"")
    (Path(beside[0]) / "whose.py").write_text("def main(): print('mine')")
    again = ChildProcess.start("whose", log=tmp_path / "log", environment=child_environment())
    assert (again.process.wait(30.0), (tmp_path / "log").read_text()) == (0, "mine\n")
    child.sock.close()
    again.sock.close()


def test_a_child_ends_with_its_owner_while_it_imports(tmp_path, monkeypatch):
    """An import of torch takes seconds, and never ends on a disk that hangs: the life line has begun before."""
    (tmp_path / "slow.py").write_text("import signal\nprint('importing', flush=True)\nsignal.pause()\n")
    monkeypatch.chdir(tmp_path)
    child = ChildProcess.start("slow", log=tmp_path / "log", environment=child_environment())
    try:
        while "\n" not in (tmp_path / "log").read_text() and child.process.poll() is None:
            select.select([], [], [], 0.001)
        assert (tmp_path / "log").read_text() == "importing\n"
        child.sock.close()
        assert child.process.wait(30.0) == -signal.SIGKILL
    finally:
        child.kill()


def test_a_child_is_ended_where_no_thread_can_wait_for_it(tmp_path, monkeypatch):
    """A worker in a script's own process is torn down when its interpreter ends, which starts no thread any more."""
    (tmp_path / "stays.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.chdir(tmp_path)

    async def no_thread(*_):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    async def scene():
        child = ChildProcess.start("stays", log=tmp_path / "log", environment=child_environment())
        monkeypatch.setattr(asyncio, "to_thread", no_thread)
        await child.end()
        return child.process.returncode

    assert asyncio.run(scene()) == -signal.SIGKILL


def test_a_child_that_forks_has_one_thread(tmp_path, monkeypatch):
    """A fork beside another thread may hang for ever: it looks after its owner by itself."""
    main = "def main(): print(threading.active_count(), sys.argv[1], gc.isenabled(), gc.get_freeze_count() > 0)"
    runs = "if __name__ == '__main__': main()"
    (tmp_path / "count.py").write_text(f"import gc, threading, sys\n{main}\n{runs}\n")
    monkeypatch.chdir(tmp_path)
    for forks in (True, False):
        child = ChildProcess.start("count", log=tmp_path / "log", environment=child_environment(), forks=forks)
        assert child.process.wait(30.0) == 0
        child.sock.close()
    # Nor is garbage looked for among what the other has imported.
    assert (tmp_path / "log").read_text().splitlines() == ["1 --fd True False", "2 --fd True True"]

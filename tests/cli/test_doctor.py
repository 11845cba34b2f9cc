import sys
from importlib.metadata import version

import pytest

from drlnb.cli import doctor
from drlnb.cli.doctor import Finding
from drlnb.runtime.node import devices
from drlnb.runtime.node.devices import ask_torch


@pytest.mark.parametrize(
    ("torch", "driver", "found", "advice"),
    [
        ({"devices": [{"name": "H"}, {"name": "H"}], "cuda": "13.0"}, "x", "2: H, H", ""),
        ({"cuda": None}, "", "no CUDA device: training uses virtual CPU slots "
         "(no sign of an NVIDIA device or driver)", ""),
        ({"cuda": "13.0", "why": "driver too old"}, "L4, 470", "no CUDA device: training uses virtual CPU slots "
         "(driver too old)", "update the driver, or install the torch build of an older CUDA"),
        ({"cuda": None}, "L4, 580", "no CUDA device: training uses virtual CPU slots (this torch has no CUDA)",
         "install a CUDA build of torch: see README.md"),
    ],
)  # fmt: skip
def test_slots_are_told_with_the_reason_and_the_way_out(torch, driver, found, advice):
    """A device that cannot be used is never passed over in silence."""
    assert doctor._slots({"devices": [], **torch}, driver) == Finding("slots", found, advice)


def test_a_torch_that_cannot_be_imported_is_missing():
    """The last line of its traceback is told."""
    finding = doctor._torch({"why": "ImportError: libcuda.so"})
    assert finding.reading == "missing or broken: ImportError: libcuda.so"
    assert finding.advice == "pip install -c constraints.txt torch"


@pytest.mark.cluster
def test_torch_is_asked_in_a_child(tmp_path):
    """It says its version, its CUDA, its devices and why there are none; what it wrote beside that is in the log."""
    facts = ask_torch(tmp_path / "log")
    assert facts["version"].partition("+")[0] == version("torch").partition("+")[0], "builds may say what for"
    assert bool(facts["devices"]) != bool(facts["why"])


def test_a_torch_that_breaks_is_told_by_its_last_line(tmp_path, monkeypatch):
    """An import that fails, and one that takes too long."""
    monkeypatch.setattr(devices, "_PROBE", "raise ImportError('libcuda.so')")
    assert ask_torch(tmp_path / "log") == {"devices": [], "why": "torch cannot be imported: ImportError: libcuda.so"}
    monkeypatch.setattr(devices, "_TIMEOUT_S", 0.0)
    assert ask_torch(tmp_path / "log") == {"devices": [], "why": "torch did not answer in 0 s"}


def test_it_answers_where_a_package_is_missing(monkeypatch):
    """What it would ask torch with cannot be imported without numpy: the other findings are there all the same."""
    monkeypatch.setitem(sys.modules, "drlnb.runtime.node.devices", None)
    readings = {finding.subject: finding.reading for finding in doctor.findings()}
    assert readings["torch"] == "missing or broken: a package that drlnb needs is missing, too"
    assert readings["numpy"] == version("numpy")


def test_a_package_that_is_not_there_is_missing():
    """What is there is told with its version."""
    assert doctor._package("no-such-package-xyz").reading == "missing"
    assert doctor._package("pytest").advice == ""


@pytest.mark.parametrize(("text", "limit"), [("8589934592", 8 << 30), ("max", None)])
def test_the_memory_limit_of_a_container_is_read(tmp_path, text, limit):
    """A container without a limit says max."""
    (tmp_path / "memory.max").write_text(f"{text}\n")
    assert doctor._cgroup_limit(tmp_path) == limit


def test_no_memory_limit_where_there_are_no_groups(tmp_path):
    """Neither of the two files is there; the older one counts where it is."""
    assert doctor._cgroup_limit(tmp_path) is None
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("4096")
    assert doctor._cgroup_limit(tmp_path) == 4096


def test_it_prints_each_finding_and_what_to_do(monkeypatch, capsys):
    """Exit code 1 only if something that training needs is missing."""
    rows = [Finding("CPU", "2 cores"), Finding("disk", "0.1 GB free", "make room")]
    monkeypatch.setattr(doctor, "findings", lambda: rows)
    assert doctor.run(None) == 0
    assert capsys.readouterr().out == (
        "OK   CPU          2 cores\nLOOK disk         0.1 GB free\n                  -> make room\n"
    )
    rows.append(Finding("dask", "missing", "pip install dask"))
    assert doctor.run(None) == 1

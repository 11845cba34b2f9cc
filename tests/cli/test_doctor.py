import pytest

from drlnb.cli import doctor
from drlnb.cli.doctor import Finding


@pytest.mark.parametrize(
    ("torch", "driver", "found", "advice"),
    [
        ({"devices": ["H", "H"], "cuda": "13.0"}, "x", "2: H, H", ""),
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
    assert doctor._slots(torch, driver) == Finding("slots", found, advice)


def test_a_torch_that_cannot_be_imported_is_missing():
    """The last line of its traceback is told."""
    finding = doctor._torch({"why": "ImportError: libcuda.so"})
    assert finding.reading == "missing or broken: ImportError: libcuda.so"
    assert finding.advice == "pip install -c constraints.txt torch"


def test_a_package_that_is_not_there_is_missing():
    """What is there is told with its version."""
    assert doctor._package("no-such-package-xyz").reading == "missing"
    assert doctor._package("pytest").advice == ""


@pytest.mark.parametrize(("text", "limit"), [("8589934592", 8 << 30), ("max", None)])
def test_the_memory_limit_of_a_container_is_read(text, limit):
    """A container without a limit says max."""
    assert doctor._cgroup_limit(lambda path: text) == limit


def test_no_memory_limit_where_there_are_no_groups():
    """Neither of the two files is there."""

    def read(path):
        raise FileNotFoundError(path)

    assert doctor._cgroup_limit(read) is None


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

"""``drlnb doctor``: list what is on this machine, and what should be done about it."""

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from drlnb.cli.parser import Command
from drlnb.fleet.plain import Plain

__all__ = ["COMMAND", "Finding", "findings"]

#: Longest wait for the driver's tool, in seconds.
_TOOL_S = 10.0
#: What a local run with one task needs, with room to spare, in bytes.
_LEAST_DISK, _LEAST_MEMORY = 2 << 30, 2 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    subject: str
    reading: str
    #: What to do; empty = all is well.
    advice: str = ""


def run(args: argparse.Namespace) -> int:
    """Print every finding; 0 if nothing that training needs is missing."""
    del args
    n_missing = 0
    for finding in findings():
        mark = "OK  " if not finding.advice else "LOOK"
        print(f"{mark} {finding.subject:<12} {finding.reading}", flush=True)
        if finding.advice:
            print(f"     {'':<12} -> {finding.advice}", flush=True)
        n_missing += finding.reading.startswith("missing")
    return 1 if n_missing else 0


def findings() -> list[Finding]:
    """Look at everything."""
    torch: Plain = {"devices": [], "why": "a package that drlnb needs is missing, too"}
    with contextlib.suppress(ImportError), tempfile.NamedTemporaryFile() as log:
        from drlnb.runtime.node.devices import ask_torch  # needs numpy and msgpack, which may be what is missing

        torch = ask_torch(Path(log.name))
    driver = _driver()
    return [
        _python(),
        _torch(torch),
        Finding("driver", driver or "none found"),
        _slots(torch, driver),
        *(_package(name) for name in ("dask", "distributed", "gymnasium", "numpy", "jupyterlab")),
        _disk(),
        _memory(),
        Finding("CPU", f"{_n_cpus()} cores for this process"),
    ]


def _python() -> Finding:
    advice = "" if sys.platform == "linux" else "Linux is supported; elsewhere only parts work"
    return Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", advice)


def _torch(facts: Plain) -> Finding:
    if "version" not in facts:
        return Finding("torch", f"missing or broken: {facts['why']}", "pip install -c constraints.txt torch")
    cuda = f"CUDA {facts['cuda']}" if facts["cuda"] else "a build without CUDA"
    return Finding("torch", f"{facts['version']}, {cuda}")


def _driver() -> str:
    """Return what the NVIDIA driver says of itself, or what hints at one; empty if nothing does."""
    tool = shutil.which("nvidia-smi")
    if tool:
        query = [tool, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=_TOOL_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return "nvidia-smi is there but does not answer"
        text = "; ".join(line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip())
        return text or f"nvidia-smi ended with {done.returncode}"
    devices = [str(path) for path in sorted(Path("/dev").glob("nvidia[0-9]*"))]
    return f"{', '.join(devices)} without nvidia-smi" if devices else ""


def _slots(torch: Plain, driver: str) -> Finding:
    if devices := [str(device["name"]) for device in torch["devices"]]:
        return Finding("slots", f"{len(devices)}: {', '.join(devices)}")
    reading = "no CUDA device: training uses virtual CPU slots"
    if not driver:
        return Finding("slots", f"{reading} (no sign of an NVIDIA device or driver)")
    if torch.get("cuda"):
        advice = "update the driver, or install the torch build of an older CUDA"
        return Finding("slots", f"{reading} ({torch['why']})", advice)
    return Finding("slots", f"{reading} (this torch has no CUDA)", "install a CUDA build of torch: see README.md")


def _n_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "missing", f"pip install -c constraints.txt {name}")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    advice = "" if free >= _LEAST_DISK else "make room: a run writes its journal and checkpoints here"
    return Finding("disk", f"{free / 1e9:.1f} GB free in {Path.cwd()}", advice)


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    limit = _cgroup_limit()
    reading = f"{free / 1e9:.1f} GB free"
    if limit is not None and limit < psutil.virtual_memory().total:
        reading += f" on the host, this container may use {limit / 1e9:.1f} GB"
        free = min(free, limit)
    return Finding("memory", reading, "" if free >= _LEAST_MEMORY else "close something, or train fewer tasks at once")


def _cgroup_limit(groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory limit of this container in bytes, None if there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError):
            text = (groups / name).read_text(encoding="ascii").strip()
            return int(text) if text.isdigit() else None
    return None


#: How ``drlnb doctor`` is called.
COMMAND = Command("say what was found here, and what to do", run)

"""``drlnb doctor``: list what is on this machine, and what should be done about it."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from drlnb.cli.parser import Command

__all__ = ["COMMAND", "Finding", "findings"]

#: Longest wait for a child that looks at torch or at the driver, in seconds.
_TORCH_S, _TOOL_S = 90.0, 10.0
#: What a local run with one task needs, with room to spare, in bytes.
_LEAST_DISK, _LEAST_MEMORY = 2 << 30, 2 << 30

_LOOK_AT_TORCH = """
import json, torch
found = {"version": torch.__version__, "cuda": torch.version.cuda, "devices": [], "why": ""}
if torch.version.cuda:
    try:
        torch.cuda.init()
        found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as error:
        found["why"] = str(error).splitlines()[0]
print("FOUND" + json.dumps(found))
"""


class _Torch(TypedDict, total=False):
    """What torch knows of itself and of its devices, or why it does not answer."""

    version: str
    cuda: str | None
    devices: list[str]
    why: str


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
    torch = _look_at_torch()
    driver = _driver()
    return [
        _python(),
        _torch(torch),
        Finding("driver", driver or "none found"),
        _slots(torch, driver),
        *(_package(name) for name in ("dask", "distributed", "gymnasium", "numpy", "jupyterlab")),
        _chromium(),
        _disk(),
        _memory(),
        Finding("CPU", f"{_n_cpus()} cores for this process"),
    ]


def _python() -> Finding:
    advice = "" if sys.platform == "linux" else "Linux is supported; elsewhere only parts work"
    return Finding("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", advice)


def _look_at_torch() -> _Torch:
    """Ask torch in a child: its import may hang on a broken driver."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK_AT_TORCH], capture_output=True, text=True, timeout=_TORCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"why": f"it did not answer within {_TORCH_S:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    if not lines:
        words = done.stderr.strip().splitlines()
        return {"why": words[-1] if words else f"its import ended with {done.returncode}"}
    facts: _Torch = json.loads(lines[0].removeprefix("FOUND"))
    return facts


def _torch(facts: _Torch) -> Finding:
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


def _slots(torch: _Torch, driver: str) -> Finding:
    devices = torch.get("devices", [])
    if devices:
        return Finding("slots", f"{len(devices)}: {', '.join(devices)}")
    reading = "no CUDA device: training uses virtual CPU slots"
    if not driver:
        return Finding("slots", f"{reading} (no sign of an NVIDIA device or driver)")
    if torch.get("cuda"):
        why = torch.get("why") or "torch sees no device"
        return Finding("slots", f"{reading} ({why})", "update the driver, or install the torch build of an older CUDA")
    return Finding("slots", f"{reading} (this torch has no CUDA)", "install a CUDA build of torch: see README.md")


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        return Finding(name, "missing", f"pip install -c constraints.txt {name}")


def _chromium() -> Finding:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next((program for name in names if (program := shutil.which(name))), None)
    return Finding("Chromium", path or "not found: only the browser tests (-m browser) need it")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    advice = "" if free >= _LEAST_DISK else "make room: a run writes its journal and checkpoints here"
    return Finding("disk", f"{free / 1e9:.1f} GB free in {Path.cwd()}", advice)


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available
    limit = _cgroup_limit(lambda path: Path(path).read_text(encoding="ascii").strip())
    if limit is not None and limit < psutil.virtual_memory().total:
        reading = f"{free / 1e9:.1f} GB free on the host, this container may use {limit / 1e9:.1f} GB"
        free = min(free, limit)
    else:
        reading = f"{free / 1e9:.1f} GB free"
    return Finding("memory", reading, "" if free >= _LEAST_MEMORY else "close something, or train fewer tasks at once")


def _cgroup_limit(read: Callable[[str], str]) -> int | None:
    """Return the memory limit of this container in bytes, None if there is none."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = read(path)
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _n_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: How ``drlnb doctor`` is called.
COMMAND = Command("say what was found here, and what to do", run)

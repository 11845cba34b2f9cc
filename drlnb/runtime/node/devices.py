"""Find the CUDA devices of a node, or why it has none: torch answers, in a child of its own."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

from drlnb.runtime.ipc.start_modes import child_environment, last_line
from drlnb.runtime.protocol import Plain

__all__ = ["ask_torch", "find_devices", "has_nvidia_hardware"]

#: Longest time that the probe may take, in seconds: importing torch on a cold disk.
_TIMEOUT_S = 90.0
_PROBE = """
import json, torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda, "devices": [], "why": ""}
try:
    torch.cuda.init()
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        kind = "MIG" if " MIG " in p.name else "GPU"
        row = {"index": i, "uuid": f"{kind}-{p.uuid}", "name": p.name, "memory_bytes": p.total_memory}
        facts["devices"].append(row)
except Exception as error:
    facts["why"] = str(error).splitlines()[0]
print("DRLNB" + json.dumps(facts))
"""


def has_nvidia_hardware() -> bool:
    """Whether anything hints at an NVIDIA device: its driver's files or its tool."""
    return Path("/dev/nvidia0").exists() or Path("/proc/driver/nvidia").exists() or bool(shutil.which("nvidia-smi"))


async def find_devices(log: Path) -> tuple[list[Plain], str]:
    """Return this node's CUDA devices and, if there are none, why.

    Where there is no sign of a device or its driver, torch is not asked: its import takes seconds.
    """
    if not has_nvidia_hardware():
        return [], "this machine shows no NVIDIA device or driver"
    log.parent.mkdir(parents=True, exist_ok=True)
    facts = await asyncio.to_thread(ask_torch, log)
    cannot = f"cannot be used by torch {facts['version']}: " if "version" in facts else ""
    return facts["devices"], f"a device is present but {cannot}{facts['why']}" if facts["why"] else ""


def ask_torch(log: Path) -> Plain:
    """Return torch's ``version`` and ``cuda``, its ``devices``, and ``why`` there are none; if broken no version.

    It is asked in a child: its import may hang on a broken driver.

    Parameters
    ----------
    log
        Gets what the child writes to standard error.
    """
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROBE],
                stdout=subprocess.PIPE,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=child_environment(),
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"devices": [], "why": f"torch did not answer in {_TIMEOUT_S:g} s"}
    line = next((x for x in done.stdout.decode().splitlines() if x.startswith("DRLNB")), None)
    if line is None:
        return {"devices": [], "why": f"torch cannot be imported: {last_line(log) or done.returncode}"}
    facts: Plain = json.loads(line.removeprefix("DRLNB"))
    return facts

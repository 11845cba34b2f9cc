"""Find the CUDA devices of a node, or why it has none: torch answers, in a child of its own."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from drlnb.runtime.ipc.start_modes import child_environment, last_line
from drlnb.runtime.protocol import Plain

__all__ = ["find_devices", "has_nvidia_hardware"]

#: Longest time that the probe may take, in seconds: importing torch on a cold disk.
_TIMEOUT_S = 90.0
_PROBE = """
import json, torch
rows, why = [], ""
if torch.version.cuda is None:
    why = f"torch {torch.__version__} is a build without CUDA"
elif not torch.cuda.is_available():
    try:
        torch.cuda.init()
    except Exception as error:
        why = str(error).splitlines()[0]
    why = why or "torch finds no usable device"
else:
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        rows.append({"index": i, "uuid": "GPU-" + str(p.uuid), "name": p.name, "memory_bytes": p.total_memory})
print("DRLNB" + json.dumps({"devices": rows, "why": why}))
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
    return await asyncio.to_thread(_ask_torch, log)


def _ask_torch(log: Path) -> tuple[list[Plain], str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    environment = child_environment(**({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROBE],
                stdout=subprocess.PIPE,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=environment,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [], f"a device is present but torch did not answer in {_TIMEOUT_S:g} s"
    line = next((x for x in done.stdout.decode().splitlines() if x.startswith("DRLNB")), None)
    if line is None:
        return [], f"a device is present but torch cannot be imported: {last_line(log) or done.returncode}"
    answer = json.loads(line.removeprefix("DRLNB"))
    why = f"a device is present but cannot be used: {answer['why']}" if answer["why"] else ""
    return answer["devices"], why

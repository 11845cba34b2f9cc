"""Read how much memory the host has, and how much of it is left: within the container that a process is in."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

__all__ = ["HostMemory", "host_memory"]

#: Controller in /proc/self/cgroup -> its folder, and its files for the limit, for what is used, and for what of that
#: the kernel takes back first.
_GROUPS: Mapping[str, tuple[str, str, str, str]] = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


class HostMemory(NamedTuple):
    """Bytes of the host, or of the container."""

    total_bytes: int
    #: What can be had without swapping.
    available_bytes: int


def host_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> HostMemory:
    """Return the memory that this process may use, with everybody who shares its limits.

    Parameters
    ----------
    groups
        Where control groups are mounted.
    own
        Names those of this process.
    """
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for limit, used in _limits(groups, own):
        total, available = min(total, limit), min(available, limit - used)
    return HostMemory(total, max(available, 0))


def _limits(groups: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Yield the limits of the group that a process is in and of those above, each with the bytes that are used."""
    lines = own.read_text().splitlines() if own.exists() else []
    for _, controllers, path in [line.split(":", 2) for line in lines]:
        if controllers in _GROUPS:
            folder, limit, used, reclaimed = _GROUPS[controllers]
            here = groups / folder / path.lstrip("/")
            for group in (here, *here.parents):
                with suppress(OSError, ValueError, KeyError):  # it is not there, or has no limit
                    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                    yield (
                        int((group / limit).read_text()),
                        int((group / used).read_text()) - int(stat[reclaimed]),
                    )
                if group == groups / folder:
                    break

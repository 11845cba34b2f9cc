"""Report the rows of a bench, for a terminal and as JSON, with the machine and the versions they were measured on."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.frame.rows import Row
from drlnb.records.errors import ConfigError
from drlnb.runtime.files.versions import versions

__all__ = ["Machine", "Report", "load"]

#: Load average above which the figures are called noisy: half a core's worth of other work.
_BUSY_LOAD = 0.5


def load() -> float:
    """Return the machine's load average over the last minute, 0 where the system has none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


@dataclass(frozen=True, slots=True)
class Machine:
    """Processor, cores, memory, system and load of this machine."""

    cpu: str = field(default_factory=_cpu_name)
    n_cpus: int = field(default_factory=lambda: os.cpu_count() or 1)
    memory_bytes: int = field(default_factory=lambda: int(psutil.virtual_memory().total))
    system: str = field(default_factory=platform.platform)
    load_1min: float = field(default_factory=load)

    @property
    def notice(self) -> str:
        """What to know of the load; empty if the machine is idle."""
        if self.load_1min <= _BUSY_LOAD:
            return ""
        return (
            f"load average {self.load_1min:.2f}: the machine is busy, so these figures are noisy; repeat on an idle one"
        )


@dataclass(slots=True)
class Report:
    """The rows of one bench."""

    bench: str
    machine: Machine = field(default_factory=Machine)
    versions: Mapping[str, str] = field(default_factory=versions)
    rows: list[Row] = field(default_factory=list)

    def to_plain(self) -> dict[str, object]:
        """Return the report as plain data."""
        rows = [row.to_plain() for row in self.rows]
        return {"bench": self.bench, "machine": asdict(self.machine), "versions": dict(self.versions), "rows": rows}

    def write(self, path: Path | None) -> None:
        """Write the JSON form, whole or not at all; nothing where there is no path.

        Raises
        ------
        ConfigError
            If it cannot be written.
        """
        if path is None:
            return
        temporary = path.with_name(path.name + ".part")
        try:
            temporary.write_text(json.dumps(self.to_plain(), indent=1) + "\n", encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise ConfigError(f"--json {path} cannot be written: {error.strerror}") from None

    def header(self) -> str:
        """Return one line on the machine, one on the versions, and one on the load if it is busy."""
        facts = self.machine
        line = f"{facts.n_cpus} x {facts.cpu}, {facts.memory_bytes / 2**30:.0f} GiB, load {facts.load_1min:.2f}"
        names = [name for name in ("python", "distributed", "torch") if name in self.versions]
        named = ", ".join(f"{name} {self.versions[name]}" for name in names)
        return "\n".join(part for part in (line, named, facts.notice) if part)

    def summary(self) -> str:
        """Return how many bars hold, which are missed, and whether the machine was busy."""
        barred = [row for row in self.rows if row.bar is not None]
        missed = [row.id for row in barred if row.holds is False]
        text = f"{sum(row.holds is True for row in barred)} of {len(barred)} bars hold"
        text += f"; missed: {', '.join(missed)}" if missed else ""
        return "\n".join(part for part in (text, self.machine.notice) if part)

    def exit_code(self, *, strict: bool) -> int:
        """Return 0 if the rows could be measured; with `strict`, 1 also for a missed binding bar."""
        failed = any(not row.measured and not row.skipped for row in self.rows)
        missed = any(row.holds is False and row.binding for row in self.rows)
        return int(failed or (strict and missed))

"""Read the rules that are in force at the end of a run's journal: what it began with, and what was changed since."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.replay import fresh_machine
from drlnb.planning.settings import as_config
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream

__all__ = ["Rules", "accepted", "pool_settings", "priorities", "task_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a pool and its tasks."""

    n_slots: int
    settings: LeasingSettings = field(default_factory=LeasingSettings)
    #: Task -> its priority, where the user gave it one.
    priorities: Mapping[str, int] = field(default_factory=dict)
    #: Task -> what differs from its configuration (of a round machine): ``planners``, ``warmup``, ...
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def accepted(stream: Stream) -> Iterator[SettingChanged]:
    """Yield the changes of settings that a machine accepted, in their order."""
    for event, answer in stream.answers():
        if isinstance(event, SettingChanged) and not any(
            isinstance(record, RequestRefused) and record.subject == event.key for record in answer
        ):
            yield event


def pool_settings(pool: Stream) -> LeasingSettings:
    """Return the settings of leasing at the end of a pool's journal.

    Raises
    ------
    JournalError
        If its machine cannot be built.
    """
    machine = fresh_machine(pool.header)
    assert isinstance(machine, PoolMachine)
    names = {f"leasing.{name}": name for name in LeasingSettings.declared()}
    changed = {names[event.key]: event.value for event in accepted(pool) if event.key in names}
    return replace(machine.settings, **changed)


def priorities(pool: Stream, names: Mapping[str, str]) -> dict[str, int]:
    """Return the priorities that the user gave to tasks, as they are at the end of a pool's journal.

    Parameters
    ----------
    pool
        The journal.
    names
        Name in the pool -> name of the task.
    """
    books = (pool.header.snapshot or {}).get("leases", {}).get("tasks", {})
    known = {name: book.get("priority") for name, book in books.items()}
    known |= {str(event.task): event.value for event in accepted(pool) if event.key == "task.priority"}
    return {names[name]: int(priority) for name, priority in known.items() if name in names and priority is not None}


def task_rules(stream: Stream) -> dict[str, Any]:
    """Return what the user changed in an attempt at a task, as it differs from its configuration at the end."""
    config = as_config({event.key: event.value for event in accepted(stream)})
    return {"warmup": {}, **config["settings"], "planners": config["planners"]}

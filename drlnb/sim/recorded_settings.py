"""Which settings were in force when a journal ended?  What its stream began with, and what a person changed since."""

from typing import Any

from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream
from drlnb.records.leasing import RequestRefused

__all__ = ["changes_of", "leasing_settings_of"]


def changes_of(stream: Stream, room: str) -> dict[str, Any]:
    """Return what was changed of one room's settings, by name without the room; what was refused is left out.

    Parameters
    ----------
    stream
        The journal of a pool or of a task.
    room
        ``leasing`` or ``warmup``.
    """
    found = {}
    for event, answer in stream.answers():
        if not isinstance(event, SettingChanged) or not event.key.startswith(f"{room}."):
            continue
        if not any(isinstance(one, RequestRefused) and one.subject == event.key for one in answer):
            found[event.key.partition(".")[2]] = event.value
    return found


def leasing_settings_of(pool: Stream) -> dict[str, Any]:
    """Return the settings of leasing that a pool had when its journal ended."""
    began = (pool.header.snapshot or {}).get("table", {}).get("settings") or pool.header.config["settings"]
    return {**began, **changes_of(pool, "leasing")}

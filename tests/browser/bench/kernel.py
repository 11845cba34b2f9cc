"""Answer in the kernel what the rows of this bench ask; imported there, so that the notebook stays short."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import Any, TypedDict

import ipywidgets
import plotly.graph_objects as go
import psutil

_Buffers = Sequence[bytes] | None
__all__ = ["Left", "close_figures", "hub_cpu", "left", "stream_figure"]


class Left(TypedDict):
    """What a notebook still has of drlnb."""

    threads: list[str]
    widgets: int
    processes: int


def hub_cpu() -> float:
    """Return the CPU seconds of the hub's thread."""
    ids = [thread.native_id for thread in threading.enumerate() if thread.name == "drlnb-hub"]
    return float(sum(t.user_time + t.system_time for t in psutil.Process().threads() if t.id in ids))


def left() -> Left:
    """Return drlnb's threads, the number of its widgets, and the number of child processes."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("drlnb")]
    models = [w for w in _widgets() if type(w).__module__.startswith("drlnb")]
    return {"threads": threads, "widgets": len(models), "processes": len(psutil.Process().children(recursive=True))}


def close_figures() -> None:
    """Close every FigureWidget."""
    for widget in _widgets():
        if isinstance(widget, go.FigureWidget):
            widget.close()


def _widgets() -> list[ipywidgets.Widget]:
    return list(ipywidgets.widgets.widget._instances.values())


async def stream_figure(panel: Any, seconds: float, per_second: float) -> list[float]:
    """Keep a FigureWidget of a panel's picture up to date; return bytes per second and CPU seconds per update.

    Parameters
    ----------
    panel
        Whose picture; of a floor beside this one, so its type is not known here.
    seconds
        How long.
    per_second
        Updates per second.
    """
    figure, sent, spent, n = go.FigureWidget(panel.view().figure()), 0, 0.0, 0
    real = figure.comm.publish_msg

    def counted(
        kind: str, data: object = None, metadata: object = None, buffers: _Buffers = (), **keys: object
    ) -> object:
        nonlocal sent
        sent += len(json.dumps(data, default=str)) + sum(memoryview(b).nbytes for b in buffers or ())
        return real(kind, data=data, metadata=metadata, buffers=buffers, **keys)

    figure.comm.publish_msg = counted
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        new = panel.view().figure()
        cpu = time.thread_time()
        with figure.batch_update():
            for old, now in zip(figure.data, new.data, strict=False):
                old.update(now)
        spent, n = spent + time.thread_time() - cpu, n + 1
        await asyncio.sleep(1 / per_second)
    took = time.monotonic() - began
    figure.close()
    return [sent / took, spent / n]

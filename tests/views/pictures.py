"""Every picture of a run by its name, and journals of whole runs to draw them of."""

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from drlnb.records.base import Event
from drlnb.records.journal import Journal
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup
from drlnb.views import fleet, learning, rounds
from drlnb.views.batching import measured as batching
from drlnb.views.distribution import measured
from drlnb.views.distribution.topology import topology
from drlnb.views.drawing.pictures import nothing
from drlnb.views.folds.fold import fold_of
from drlnb.views.leasing import gantt
from drlnb.views.placement import measured as placement
from drlnb.views.warmup import waterfall
from tests.streams import stream_of


def until(journal, end_s):
    """Return the part of a journal up to a second since its first event, streams cut on the clocks of all of it."""
    whole = fold_of(journal)

    def known(name, stream):
        late = (isinstance(row, Event) and row.t + whole.offset_s(name) > end_s for row in stream.records)
        return replace(stream, records=stream.records[: next((i for i, is_late in enumerate(late) if is_late), None)])

    return Journal(streams={name: known(name, stream) for name, stream in journal.streams.items()})


def spread(source):
    """Return how the newest version of a journal spread."""
    of = measured.spread(source)
    return topology(of) if of else nothing("distribution.topology", "topology", "no version yet", origin="simulated")


VIEWS = {
    "gantt": gantt.gantt, "shares": gantt.shares,
    "tasks": fleet.tasks, "curves": learning.curves, "anatomy": rounds.anatomy,
    "waterfall": waterfall.waterfall, "curve": waterfall.curve,
    "rounds": waterfall.rounds, "starts": waterfall.starts, "versions": measured.versions, "hosts": measured.hosts,
    "topology": spread, "splits": lambda source: batching.shares(source, batching.LATEST), "sizes": batching.sizes,
    "speeds": batching.speeds, "ledger": batching.ledger,
    "board": placement.board, "gangs": placement.gantt, "plans": placement.plans, "why": placement.why,
}  # fmt: skip

#: The golden journals, and a task's warm-up alone.
JOURNALS = ("faults", "fit", "three-tasks-last", "two-tasks-one-slot", "warmup")


def boxes_of(picture):
    """Return x, y, width and height in pixels of each box of an SVG's timeline: a pen that is moved from box to box."""
    boxes = []
    for path in re.findall(r'<path d="(m[^"]+)"', picture):
        x = y = 0
        for dx, dy, w, h, back in re.findall(r"m(-?\d+) (-?\d+)h(\d+)v(\d+)h-(\d+)z", path):
            x, y = x + int(dx), y + int(dy)
            assert w == back
            boxes.append((x / 10, y / 10, int(w) / 10, int(h) / 10))
    assert '<g transform="scale(.1)">' in picture or not boxes
    return boxes


@lru_cache
def journal(name):
    """Return a journal by its name."""
    if name == "warmup":
        return Journal(
            streams={"warmup-sim": simulate_warmup(WarmupWorkload(n_rounds=14, n_workers=3), "patent").stream}
        )
    folder = Path(__file__).parent.parent / "journals" / name
    files = {path.stem: path.read_text(encoding="utf-8").splitlines(keepends=True) for path in folder.glob("*.jsonl")}
    return Journal(streams={stem: stream_of(lines, source=stem) for stem, lines in sorted(files.items())})


@lru_cache
def drawn(of, name):
    """Return a picture of a journal."""
    return VIEWS[name](journal(of))

"""``drlnb play DIR``: watch a run again in the terminal, as it was shown while it trained."""

import argparse
import sys
from pathlib import Path

from drlnb.cli.parser import Command, option, taking
from drlnb.cli.replay import naming_damage
from drlnb.records.settings import POSITIVE

__all__ = ["COMMAND"]

#: Seconds between two looks at the tasks.
_LOOK_S = 0.1


def run(args: argparse.Namespace) -> int:
    """Show the tasks as they stood, then the summary."""
    with naming_damage(args.dir):
        return _show(args)


def _show(args: argparse.Namespace) -> int:
    from drlnb.cli.progress import Live, summary_lines
    from drlnb.fleet.playback import play

    recording = play(args.dir, args.speed)
    print(f"recording of run {recording.id}, {recording.duration_s:.0f} s; nothing is trained", flush=True)
    live = Live(sys.stdout)
    try:
        while not recording.watch.settle(_LOOK_S):
            live.show(recording.tasks)
    finally:
        recording.close()
    live.show(recording.tasks)
    for notice in recording.notices:
        live.write(f"drlnb: {notice}")
    for line in summary_lines(recording.watch.summary(), recording.tasks):
        live.write(line)
    live.write(f"in a notebook, with pictures: drlnb.play({str(args.dir)!r})")
    return 0


_SPEED_HELP = "X times as fast as it was, or all: at once (default: 4)"
#: How ``drlnb play`` is called.
COMMAND = Command(
    "watch a run again, from its directory alone",
    run,
    (
        option("dir", metavar="DIR", type=Path, help="run directory"),
        taking("--speed", "X", POSITIVE, _SPEED_HELP, 4.0, "all"),
    ),
)

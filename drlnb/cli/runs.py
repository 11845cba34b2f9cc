"""``drlnb runs``: list runs, and steer them from another terminal."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from drlnb.cli.parser import Command, UsageError, option

if TYPE_CHECKING:
    from drlnb.runtime.client.link import Link

__all__ = ["COMMAND"]


def run(args: argparse.Namespace) -> int:
    """List runs, or steer one."""
    if args.action == "list":
        if args.which or args.task:
            raise UsageError(f"list takes no run and no task, got {args.which or args.task!r}")
        return _list_cluster(args.client) if args.client else _list_here()
    if not args.which:
        raise UsageError(f"runs {args.action} needs RUN: a run id, or the directory of a run")
    if args.action == "set" and args.value is None:
        raise UsageError("runs set needs RUN KEY VALUE, such as: drlnb runs set runs/first rl.learning_rate 1e-4")
    if args.action != "set" and args.key is not None:
        raise UsageError(f"runs {args.action} takes RUN alone, got also {args.key!r}")
    return _steer(args)


def _line(run: str, state: str, tasks: str, where: str) -> str:
    return f"{run:<24} {state:<12} {tasks:<40} {where}"


def _list_cluster(address: str) -> int:
    from drlnb.fleet.cluster.pool import connect

    with closing(connect(address)) as link:
        runs = link.runs()
    for row in runs:
        tasks = ", ".join(f"{name} {task['state']}" for name, task in dict(row["tasks"]).items())
        print(_line(row["run"], row["state"], tasks, row["out"]))
    if not runs:
        print(f"no runs on {address}")
    return 0


def _list_here() -> int:
    """List the run directories under ``runs/``."""
    from drlnb.runtime.files.run_directory import RunDir

    folders = sorted(path.parent for path in Path("runs").glob("*/run.json"))
    for path in folders:
        folder = RunDir(path)
        lock = folder.live_lock()
        states = folder.states()
        state = "running" if lock else next(s for s in _WORST if s in states.values())
        tasks = ", ".join(f"{name} {task}" for name, task in states.items()) if not lock else ", ".join(states)
        where = "" if lock is None else f" at {lock.address}" if lock.address else f": {lock.said}"
        print(_line(folder.read_spec()["run"], state, tasks, f"{path}{where}"))
    if not folders:
        print("no run directories in runs/ (for the runs of a cluster: drlnb runs --client ADDRESS)")
    return 0


#: States of a directory's tasks, the one that stands for all first.
_WORST = ("failed", "interrupted", "stopped", "done")


def _steer(args: argparse.Namespace) -> int:
    from drlnb.fleet.cluster.pool import connect

    run_id, address = _cluster_of(args.which, args.client)
    with closing(connect(address)) as link:
        known = [str(row["run"]) for row in link.runs()]
        if run_id not in known:
            raise UsageError(f"{address} has no run {run_id}; it has {', '.join(known) or 'none'}")
        answer = _asked(link, run_id, args)
    print(f"{run_id}{f', task {args.task}' if args.task else ''}: {answer}")
    return 0


def _asked(link: "Link", run_id: str, args: argparse.Namespace) -> str:
    """Ask the cluster; return in words what was asked."""
    if args.action == "set":
        from drlnb.planning.settings import owner, read_setting, takes_effect

        link.set(run_id, args.key, read_setting(args.key, args.value), task=args.task)
        whose = " (of the pool: for all who share it)" if owner(args.key) == "pool" else ""
        return f"{args.key} = {args.value} {takes_effect(args.key)}{whose}"
    link.control(run_id, args.action, task=args.task, reason="asked for from the command line")
    when = "within seconds" if args.action == "stop" else "at the next round boundary"
    return f"asked to {args.action} {when}"


def _cluster_of(which: str, address: str | None) -> tuple[str, str]:
    """Return a run's id and the address of its cluster."""
    from drlnb.runtime.files.run_directory import RunDir

    run_id = which
    if (Path(which) / "run.json").is_file():
        folder = RunDir(which)
        run_id = str(folder.read_spec()["run"])
        if address is None:
            lock = folder.live_lock()
            if lock is None:
                raise UsageError(f"{which} does not go on anywhere; start it again with: drlnb resume {which}")
            if not lock.address:
                raise UsageError(lock.said)
            address = lock.address
    if address is None:
        raise UsageError(f"{which} is no run directory; for a run id name its cluster with --client ADDRESS")
    return run_id, address


_ACTIONS = ("list", "stop", "pause", "resume", "set")
_KEYS = "set: leasing.NAME, slot.drain, slot.undrain, task.priority, warmup.NAME, rl.NAME"
_ACTION = {"nargs": "?", "choices": _ACTIONS, "default": "list", "metavar": "ACTION"}
#: How ``drlnb runs`` is called.
COMMAND = Command(
    "list, stop, pause, resume or tune runs",
    run,
    (
        option("action", **_ACTION, help="list (default), stop, pause, resume, set"),
        option("which", nargs="?", metavar="RUN", help="run id, or the directory of a run that goes on"),
        option("key", nargs="?", metavar="KEY", help=_KEYS),
        option("value", nargs="?", metavar="VALUE", help="set: a number, a word, none, lin_NUMBER or JSON"),
        option("--task", metavar="NAME", help="this task only (default: all tasks of the run)"),
        option(
            "--client", metavar="ADDRESS", help="scheduler's address or file (default: that of the run's directory)"
        ),
    ),
)

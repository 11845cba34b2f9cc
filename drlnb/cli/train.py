"""``drlnb train ENV [ENV ...]``: train all tasks at once."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from drlnb.cli.parser import (
    Command,
    UsageError,
    at_least,
    device_choice,
    either,
    key_values,
    option,
    seat_count,
    seconds,
    seed_list,
    words,
)
from drlnb.planning.seats.rules import ISOLATIONS
from drlnb.records.spec import ALGORITHMS

__all__ = ["CLUSTER", "COMMAND", "check_cluster"]

#: Settings that are options of their own, never hyper-parameters.
_OPTIONS = {
    "seed": "--seed",
    "seeds": "--seeds",
    "total_timesteps": "--total-timesteps",
    "n_timesteps": "--total-timesteps",
    "n_envs": "--n-envs",
    "num_envs": "--n-envs",
    "n_collectors": "--collectors",
    "algo": "--algo",
    "env": "ENV",
    "group": "nothing: it is not an option yet",
    "name": "nothing: it is not an option yet",
}


_GPUS = (
    "CUDA devices, or virtual CPU devices where there are none: how many, or which, as cuda:0,cuda:2 "
    "(default: all, or 2 virtual ones)"
)
_SEATS = "leases of a device at once, 1 to 4, or auto: as many as pay (default 1; of resume: what the run had)"
_ISOLATION = "shared: one process per slot for all tasks (default; of resume: what the run had); process: one per task"
#: Where to train: the options that train and resume share.
CLUSTER = (
    option("--gpus", type=device_choice, metavar="K|LIST", help=_GPUS),
    option("--seats", type=seat_count, metavar="C", help=_SEATS),
    option("--isolation", choices=ISOLATIONS, help=_ISOLATION),
    option("--workers", type=at_least(1), metavar="W", help="Dask workers of the local cluster (default 1)"),
    option("--client", metavar="ADDRESS", help="scheduler's address or file, instead of a local cluster"),
    option("--json", action="store_true", help="last line of standard output: the summary as JSON"),
)


def check_cluster(args: argparse.Namespace) -> None:
    """Refuse options of :data:`CLUSTER` that exclude each other.

    Raises
    ------
    UsageError
        If there are two clusters.
    """
    if args.client and args.workers:
        raise UsageError("--workers is for the local cluster, not for the one at --client")


def _planners(words: Sequence[str]) -> Mapping[str, str] | str:
    """Read ``--planners``: one word that names a set of them, or KEY=VALUE words."""
    return words[0] if len(words) == 1 and "=" not in words[0] else key_values("--planners", words)


def _tasks(args: argparse.Namespace) -> list[Any]:
    from drlnb.fleet.tasks.task import Task

    hyper = key_values("--hyper", args.hyper)
    for key in hyper:
        if key in _OPTIONS:
            raise UsageError(f"{key} is not a hyper-parameter; give it as {_OPTIONS[key]}")
    make: Any = partial(Task.from_zoo, args.zoo) if args.zoo else Task
    return [
        make(
            env,
            args.algo or (None if args.zoo else "ppo"),
            total_timesteps=args.total_timesteps,
            seed=seed,
            n_envs=args.n_envs,
            n_collectors=args.collectors,
            group=env if args.seeds else None,
            **hyper,
        )
        for env in args.envs
        for seed in args.seeds or [args.seed]
    ]


def run(args: argparse.Namespace) -> int:
    """Train."""
    check_cluster(args)
    from drlnb.cli.progress import settings_lines
    from drlnb.fleet.cluster.existing import check
    from drlnb.fleet.fleet import Fleet
    from drlnb.fleet.tasks.planners import chosen
    from drlnb.fleet.tasks.run_spec import default_out, run_spec
    from drlnb.fleet.tasks.task import task_specs
    from drlnb.rl.algorithms.registry import settings_class
    from drlnb.rl.algorithms.resolve import parse_text
    from drlnb.rl.tracking.sinks import sinks_of

    tasks, sinks = _tasks(args), sinks_of(args.track)
    specs = task_specs(tasks)
    planners = _planners(args.planners)
    settings = {key: parse_text(value) for key, value in key_values("--set", args.set).items()}
    out = args.out or default_out()
    check(out, run_spec(specs, chosen(planners), settings=settings), args.on_existing)  # before a cluster is started

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        for line in settings_lines(specs, settings_class(specs[0].algo)().to_plain()):
            session.write(line)
        slots = args.gpus or "auto"
        seats, isolation = args.seats or 1, args.isolation or "shared"
        fleet = session.open(
            lambda: Fleet(args.client, n_workers=args.workers, slots=slots, seats=seats, isolation=isolation)
        )
        given = {"planners": planners, "track": sinks, "env_timeout_s": args.env_timeout, "settings": settings}
        return session.follow(fleet.train(tasks, out=out, on_existing=args.on_existing, **given))


_DESCRIPTION = (
    "Train every environment at once on a few slots. Without options a task uses the settings tuned "
    "for its environment, else Stable-Baselines3's defaults."
)
_COUNT = {"type": at_least(1), "metavar": "N"}
_ACTIONS = ("error", "resume", "restart", "overwrite")
_ON_EXISTING = "what to do with a run that is in DIR: error (default), resume, restart (keep it as DIR-1), overwrite"
#: How ``drlnb train`` is called.
COMMAND = Command(
    "train tasks",
    run,
    (
        option("envs", nargs="+", metavar="ENV", help="Gymnasium id, or module:Id-v0"),
        option("--algo", choices=ALGORITHMS, help="algorithm (default ppo; with --zoo what the file's name says)"),
        option(
            "--zoo", metavar="FILE", type=Path, help="take each environment's settings from an rl-baselines3-zoo file"
        ),
        *CLUSTER,
        option("--collectors", **_COUNT, help="collector processes per task (default min(2, n_envs))"),
        option("--n-envs", **_COUNT, help="environments per task, over all collectors"),
        option("--total-timesteps", **_COUNT, help="environment steps per task"),
        either(
            option("--seed", type=at_least(0), default=0, metavar="S", help="seed (default 0)"),
            option("--seeds", type=seed_list, metavar="LIST", help="one task per seed: 0-4 or 1,5,9"),
        ),
        words("--hyper", "KEY=VALUE", "hyper-parameters, by SB3's names"),
        words(
            "--planners",
            "KEY=VALUE",
            "planners, such as hold=last or distribution=chain; or auto, or seed: the patents' own rules",
        ),
        words(
            "--set",
            "KEY=VALUE",
            "settings of scheduling, such as warmup.collector_mode=respawn (drlnb runs set changes them later)",
        ),
        words(
            "--track", "NAME", "send scalars to tensorboard, wandb (offline unless WANDB_MODE says else) or mlflow, too"
        ),
        option(
            "--env-timeout",
            type=seconds,
            default=60.0,
            metavar="S",
            help="seconds that environments may take for one step, or to be made (default 60; none: all time)",
        ),
        option("--out", metavar="DIR", type=Path, help="run directory (default runs/<date-time>)"),
        option("--on-existing", choices=_ACTIONS, default="error", metavar="ACTION", help=_ON_EXISTING),
    ),
    _DESCRIPTION,
)

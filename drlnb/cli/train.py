"""``drlnb train ENV [ENV ...]``: train all tasks at once."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from drlnb.cli.parser import UsageError, at_least, device_choice, key_values, seat_count, seconds, seed_list
from drlnb.planning.seats.rules import ISOLATIONS
from drlnb.records.spec import ALGORITHMS

__all__ = ["add_cluster_options", "add_parser"]

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


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add what says where to train."""
    parser.add_argument(
        "--gpus",
        type=device_choice,
        metavar="K|LIST",
        help="CUDA devices, or virtual CPU devices where there are none: how many, or which, as cuda:0,cuda:2 "
        "(default: all, or 2 virtual ones)",
    )
    parser.add_argument(
        "--seats",
        type=seat_count,
        metavar="C",
        help="leases of a device at once, 1 to 4, or auto: as many as pay (default 1; of resume: what the run had)",
    )
    parser.add_argument(
        "--isolation",
        choices=ISOLATIONS,
        help="shared: one process per slot for all tasks (default; of resume: what the run had); process: one per task",
    )
    parser.add_argument(
        "--workers", type=at_least(1), metavar="W", help="Dask workers of the local cluster (default 1)"
    )
    parser.add_argument("--client", metavar="ADDRESS", help="scheduler's address or file, instead of a local cluster")
    parser.add_argument("--json", action="store_true", help="last line of standard output: the summary as JSON")


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help="train tasks",
        description="Train every environment at once on a few slots. Without options a task uses the settings tuned "
        "for its environment, else Stable-Baselines3's defaults.",
    )
    parser.add_argument("envs", nargs="+", metavar="ENV", help="Gymnasium id, or module:Id-v0")
    parser.add_argument(
        "--algo", choices=ALGORITHMS, help="algorithm (default ppo; with --zoo what the file's name says)"
    )
    parser.add_argument(
        "--zoo", metavar="FILE", type=Path, help="take each environment's settings from an rl-baselines3-zoo file"
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--collectors", type=at_least(1), metavar="N", help="collector processes per task (default min(2, n_envs))"
    )
    parser.add_argument("--n-envs", type=at_least(1), metavar="N", help="environments per task, over all collectors")
    parser.add_argument("--total-timesteps", type=at_least(1), metavar="N", help="environment steps per task")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="seed (default 0)")
    seeds.add_argument("--seeds", type=seed_list, metavar="LIST", help="one task per seed: 0-4 or 1,5,9")
    parser.add_argument(
        "--hyper", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="hyper-parameters, by SB3's names"
    )
    parser.add_argument(
        "--planners",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="planners, such as hold=last (default hold=yield); or auto, or seed: the patents' own rules",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="settings of scheduling, such as warmup.collector_mode=respawn (drlnb runs set changes them later)",
    )
    _add_run_options(parser)
    parser.set_defaults(run=run, parser=parser)
    return parser


def _planners(words: Sequence[str]) -> Mapping[str, str] | str:
    """Read ``--planners``: one word that names a set of them, or KEY=VALUE words."""
    return words[0] if len(words) == 1 and "=" not in words[0] else key_values("--planners", words)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how the run is watched and kept."""
    parser.add_argument(
        "--track",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="send scalars to tensorboard, wandb (offline unless WANDB_MODE says else) or mlflow, too",
    )
    parser.add_argument(
        "--env-timeout",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds that environments may take for one step, or to be made (default 60; none: all time)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="run directory (default runs/<date-time>)")
    parser.add_argument(
        "--on-existing",
        choices=("error", "resume", "restart", "overwrite"),
        default="error",
        metavar="ACTION",
        help="what to do with a run that is in DIR: error (default), resume, restart (keep it as DIR-1), overwrite",
    )


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
    if args.client and args.workers:
        raise UsageError("--workers is for the local cluster, not for the one at --client")
    from drlnb.cli.progress import settings_lines
    from drlnb.fleet.cluster.existing import check
    from drlnb.fleet.fleet import Fleet
    from drlnb.fleet.tasks.planners import planner_names
    from drlnb.fleet.tasks.run_spec import default_out, run_spec
    from drlnb.fleet.tasks.task import task_specs
    from drlnb.rl.algorithms.registry import settings_class
    from drlnb.rl.algorithms.resolve import parse_text
    from drlnb.rl.tracking.sinks import sinks_of

    tasks, sinks = _tasks(args), sinks_of(args.track)
    specs = task_specs(tasks)
    planners = planner_names(_planners(args.planners))
    settings = {key: parse_text(value) for key, value in key_values("--set", args.set).items()}
    out = args.out or default_out()
    check(out, run_spec(specs, planners, settings=settings), args.on_existing)  # before a cluster is started

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        for line in settings_lines(specs, settings_class(specs[0].algo)().to_plain()):
            session.say(line)
        slots = args.gpus or "auto"
        wanted = {"slots": slots, "seats": args.seats or 1, "isolation": args.isolation or "shared"}
        fleet = session.open(lambda: Fleet(args.client, n_workers=args.workers, **wanted))
        given = {"planners": planners, "track": sinks, "env_timeout_s": args.env_timeout, "settings": settings}
        return session.follow(fleet.train(tasks, out=out, on_existing=args.on_existing, **given))

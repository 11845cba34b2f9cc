"""``drlnb train ENV [ENV ...]``: train all tasks at once."""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drlnb.cli.parser import Command, UsageError, either, option, reading, seed_list, taking, words
from drlnb.planning.placement.devices import devices_problem, is_device_name
from drlnb.planning.placement.seats import ISOLATIONS, MAX_SEATS, SEATS
from drlnb.records.settings import SECONDS, count, fitting, is_whole, parse_text, size
from drlnb.records.spec import ALGORITHMS, EVAL_EPISODES, EVAL_MAX_STEPS, LIMITS

if TYPE_CHECKING:
    from drlnb.fleet.tasks.task import Task

__all__ = ["CLUSTER", "COMMAND", "check_cluster", "device_choice", "key_values"]

#: Settings that are options of their own, never hyper-parameters.
_OPTIONS: Mapping[str, str] = {
    "seed": "--seed",
    "seeds": "--seeds",
    "total_timesteps": "--total-timesteps",
    "n_timesteps": "--total-timesteps",
    "n_envs": "--n-envs",
    "n_collectors": "--collectors",
    "n_learners": "--learners",
    "eval_episodes": "--eval-episodes",
    "eval_max_steps": "--eval-max-steps",
    "memory_budget": "--swap-budget",
    "algo": "--algo",
    "env": "ENV",
    "group": "nothing: it is not an option yet",
    "name": "nothing: it is not an option yet",
}


#: Arguments of a task that are no hyper-parameters, and that ``--hyper`` takes.
_OF_TASK = frozenset({"deterministic", "priority", "env_kwargs", "env_wrappers"})

_HOW_MANY = reading(
    fitting("a whole number in 1..1000 or devices such as cuda:0,cuda:2", lambda value: is_whole(value, 1, 1000))
)


def device_choice(text: str) -> int | list[str]:
    """Read how many devices, or which ones by their names.

    Examples
    --------
    >>> device_choice("2"), device_choice("cuda:0,cuda:2")
    (2, ['cuda:0', 'cuda:2'])
    """
    names = [part.strip() for part in text.split(",")]
    if not any(is_device_name(name) for name in names):
        return int(_HOW_MANY(text))
    if problem := devices_problem(names):
        raise argparse.ArgumentTypeError(problem.replace("slots ", "", 1))
    return names


#: A value with another KEY=VALUE behind it; a planner's parameters (relay:m=4,n=2), lists and mappings are one value.
_JOINED = re.compile(r"[^:{\[,]*(,[A-Za-z_][\w.]*=[^,]*)+")


def key_values(option: str, words: Iterable[str]) -> dict[str, str]:
    """Read ``KEY=VALUE`` words.

    Raises
    ------
    UsageError
        If a word is none (environments must come before the option), or a key comes twice.
    """
    values: dict[str, str] = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or not key:
            raise UsageError(f"{option} takes KEY=VALUE, got {word!r} (name environments before {option})")
        if _JOINED.fullmatch(value):
            raise UsageError(f"blanks separate what {option} takes: {option} {word.replace(',', ' ')}")
        if key in values:
            raise UsageError(f"{option} names {key} twice")
        values[key] = value
    return values


_GPUS = (
    "CUDA devices, or virtual CPU devices where there are none: how many, or which, as cuda:0,cuda:2 "
    "(default: all, or 2 virtual ones)"
)
_SEATS = f"leases of a device at once, 1 to {MAX_SEATS} (default 1; of resume: what the run had)"
_ISOLATION = "shared: one process per slot for all tasks (default; of resume: what the run had); process: one per task"
#: Where to train: the options that train and resume share.
CLUSTER = (
    option("--gpus", type=device_choice, metavar="K|LIST", help=_GPUS),
    taking("--seats", "C", SEATS, _SEATS),
    option("--isolation", choices=ISOLATIONS, help=_ISOLATION),
    taking("--workers", "W", count(1, 256), "Dask workers of the local cluster (default 1)"),
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


def _tasks(args: argparse.Namespace) -> "list[Task]":
    from drlnb.fleet.tasks.task import Task

    hyper = key_values("--hyper", args.hyper)
    for key in hyper:
        if key in _OPTIONS:
            raise UsageError(f"{key} is not a hyper-parameter; give it as {_OPTIONS[key]}")
    # Hyper-parameters are read by their algorithm; these are the task's own, which takes values and no text.
    own = {key: parse_text(value) for key, value in hyper.items() if key in _OF_TASK}
    make: Callable[..., Task] = partial(Task.from_zoo, args.zoo) if args.zoo else Task
    return [
        make(
            env,
            args.algo or (None if args.zoo else "ppo"),
            total_timesteps=args.total_timesteps,
            seed=seed,
            n_envs=args.n_envs,
            n_collectors=args.collectors,
            n_learners=args.learners,
            eval_episodes=args.eval_episodes,
            eval_max_steps=args.eval_max_steps,
            memory_budget=args.swap_budget,
            group=env if args.seeds else None,
            **{**hyper, **own},
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
    from drlnb.planning.settings import read_setting
    from drlnb.rl.algorithms.registry import settings_class
    from drlnb.rl.tracking.sinks import sinks_of

    tasks, sinks = _tasks(args), sinks_of(args.track)
    specs = task_specs(tasks)
    planners = _planners(args.planners)
    settings = {key: read_setting(key, value) for key, value in key_values("--set", args.set).items()}
    out = args.out or default_out()
    check(out, run_spec(specs, chosen(planners), settings=settings), args.on_existing)  # before a cluster is started

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        if args.seeds:
            n_processes = sum(spec.n_collectors for spec in specs)
            each = f"each environment under {len(args.seeds)} seeds"
            session.write(f"{len(specs)} tasks: {each}, {n_processes} collector processes in all")
        for line in settings_lines(specs, settings_class(specs[0].algo)().to_plain()):
            session.write(line)
        slots = args.gpus or "auto"
        seats, isolation = args.seats or 1, args.isolation or "shared"
        fleet = Fleet(args.client, n_workers=args.workers, slots=slots, seats=seats, isolation=isolation)
        session.fleet = fleet
        given = {"planners": planners, "track": sinks, "env_timeout_s": args.env_timeout, "settings": settings}
        return session.follow(fleet.train(tasks, out=out, on_existing=args.on_existing, **given))


_SWAP_BUDGET = (
    "bytes that a task's gradient step may use on its device, such as 8GiB (default: any, nothing is swapped)"
)
_DESCRIPTION = (
    "Train every environment at once on a few slots. Without options a task uses the settings tuned "
    "for its environment, else Stable-Baselines3's defaults."
)
_ZOO = "take each environment's settings from an rl-baselines3-zoo file"
_PLANNERS = "planners, such as hold=last or distribution=chain; or auto, or patent: the patents' own rules"
_SET = "settings of scheduling, such as warmup.collector_mode=respawn (drlnb runs set changes them later)"
_TRACK = "send scalars to tensorboard, wandb (offline unless WANDB_MODE says else) or mlflow, too"
_ENV_TIMEOUT = "seconds that environments may take for one step, or to be made (default 60; none: all time)"
_EVAL_EPISODES = f"episodes that are played when a task's budget is made (default {EVAL_EPISODES}; 0: none)"
_EVAL_MAX_STEPS = f"steps after which an episode of an evaluation is cut (default {EVAL_MAX_STEPS})"
_COLLECTORS = "collector processes per task (default 2, or as many as learners, at most n_envs)"
_LEARNERS = (
    "slots that compute a task's gradient side by side (default 1); more need --hyper n_epochs=1 or deterministic=false"
)
_ACTIONS = ("error", "resume", "restart", "overwrite")
_ON_EXISTING = "what to do with a run that is in DIR: error (default), resume, restart (keep it as DIR-1), overwrite"
#: How ``drlnb train`` is called.
COMMAND = Command(
    "train tasks",
    run,
    (
        option("envs", nargs="+", metavar="ENV", help="Gymnasium id, or module:Id-v0"),
        option("--algo", choices=ALGORITHMS, help="algorithm (default ppo; with --zoo what the file's name says)"),
        option("--zoo", metavar="FILE", type=Path, help=_ZOO),
        *CLUSTER,
        taking("--collectors", "N", LIMITS["n_collectors"], _COLLECTORS),
        taking("--learners", "K", LIMITS["n_learners"], _LEARNERS, 1),
        taking("--n-envs", "N", LIMITS["n_envs"], "environments per task, over all collectors"),
        taking("--total-timesteps", "N", LIMITS["total_timesteps"], "environment steps per task"),
        taking("--eval-episodes", "N", LIMITS["eval_episodes"], _EVAL_EPISODES, EVAL_EPISODES),
        taking("--eval-max-steps", "N", LIMITS["eval_max_steps"], _EVAL_MAX_STEPS, EVAL_MAX_STEPS),
        either(
            taking("--seed", "S", LIMITS["seed"], "seed (default 0)", 0),
            option("--seeds", type=seed_list, metavar="LIST", help="one task per seed: 0-4 or 1,5,9"),
        ),
        words("--hyper", "KEY=VALUE", "hyper-parameters, by SB3's names"),
        words("--planners", "KEY=VALUE", _PLANNERS),
        taking("--swap-budget", "SIZE", size(), _SWAP_BUDGET),
        words("--set", "KEY=VALUE", _SET),
        words("--track", "NAME", _TRACK),
        taking("--env-timeout", "S", SECONDS, _ENV_TIMEOUT, 60.0, "none"),
        option("--out", metavar="DIR", type=Path, help="run directory (default runs/<date-time>)"),
        option("--on-existing", choices=_ACTIONS, default="error", metavar="ACTION", help=_ON_EXISTING),
    ),
    _DESCRIPTION,
)

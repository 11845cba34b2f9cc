"""``drlnb simulate WHAT``: run the same machines on a virtual clock."""

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module

from drlnb.cli.parser import Command, Option, either, option, reading, seed_list, taking
from drlnb.records.settings import between, count, parse_text, size

__all__ = ["COMMAND"]


def _number(
    name: str, metavar: str, default: float, help: str, least: int = 1, most: int | None = None, dest: str | None = None
) -> Option:
    """Return an option that takes a number: a whole one, unless its default is not."""
    read = float if isinstance(default, float) else reading(count(least, most))
    return option(name, type=read, default=default, metavar=metavar, help=f"{help} (default {default:g})", dest=dest)


_JSON = option(
    "--json",
    nargs="?",
    const="-",
    metavar="FILE",
    help="write the summary as JSON there; without FILE: as last line of standard output",
)
_HOLD = {"choices": ["round", "yield", "last"], "default": "yield", "metavar": "NAME"}
_FAULTS = "what goes wrong per hour, as holder=20,frozen=20,executor=10,slot=5,collector=30 (default nothing)"
_P95 = "95%% quantile of a start (default: measured for the mode)"
_SEEDS = {"type": seed_list, "metavar": "LIST"}


def _numbers(name: str, kind: Callable[[str], float], default: str, help: str) -> Option:
    """Return an option that takes numbers by comma."""

    def numbers(text: str) -> tuple[float, ...]:
        try:
            return tuple([kind(word) for word in text.split(",")])
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be numbers by comma, got {text!r}") from None

    return option(name, type=numbers, default=default, metavar="LIST", help=f"{help} (default {default})")


_TRAIN = (
    _number("--tasks", "T", 4, "tasks"),
    _number("--gpus", "K", 1, "slots"),
    _number("--rounds", "N", 100, "rounds per task"),
    _number("--collectors", "N", 2, "collectors per task"),
    _number("--learners", "K", 1, "learners per task: slots of a lease, side by side"),
    _number("--seed", "S", 0, "of the durations", least=0),
    option("--hold", **_HOLD, help="hold planner: yield (default), round (the patent's) or last"),
    taking("--swap-budget", "SIZE", size(), "bytes that a gradient step may use, such as 1GiB (default any number)"),
    option("--out", metavar="DIR", help="write the journal there"),
    _JSON,
)
_LEASING = (
    option("--hold", default="all", metavar="LIST", help="hold planners by comma, or all (default)"),
    either(
        option("--load", type=float, metavar="X", help="as many tasks as make this load (default 1.0)"),
        option("--tasks", type=reading(count(1)), metavar="T", help="tasks", dest="n_tasks"),
    ),
    _number("--gpus", "K", 2, "slots", dest="n_slots"),
    _number("--workers", "N", 4, "collectors per task, one batch each", dest="n_workers"),
    _number("--cv", "X", 0.2, "spread of the collectors' times", dest="collect_cv"),
    _number("--compute", "S", 0.25, "seconds per batch", dest="compute_s"),
    _number("--collect", "S", 4.0, "mean seconds of a collector", dest="collect_mean_s"),
    _number("--switch", "S", 0.0, "seconds to switch a slot's task", dest="switch_s"),
    _number("--unequal", "X", 0.0, "the last task collects so much longer", dest="unequal_frac"),
    option("--queue", default="fifo", metavar="NAME", help="who is next: fifo (default) or drr"),
    option("--no-stream", action="store_true", help="nothing is computed before all experience of a round is there"),
    option("--faults", default="", metavar="LIST", help=_FAULTS),
    _number("--rounds", "N", 60, "rounds per task, a tenth discarded", least=20, dest="n_rounds"),
    option("--seeds", **_SEEDS, default=[0, 1, 2, 3, 4], help="of the durations (default 0-4)"),
    _JSON,
)
_WARMUP = (
    option("--planners", default="all", metavar="LIST", help="warm-up planners by comma, or all (default)"),
    option("--shape", default="jitter", metavar="NAME", help="of the rounds: jitter (default), outliers, shifts"),
    option("--start-mode", default="spawn", metavar="MODE", help="spawn (default) or zygote"),
    _number("--rho", "X", 1.0, "price of a second's wait"),
    _number("--kappa", "X", 1.0, "price of a second of starting"),
    option("--start-p95", type=float, metavar="S", help=_P95, dest="start_p95_s"),
    _number("--workers", "N", 8, "collectors of the task", dest="n_workers"),
    _number("--rounds", "N", 400, "rounds of the task", dest="n_rounds"),
    _number("--gap", "S", 6.0, "seconds from sending to new parameters", dest="gap_s"),
    _number("--jitter", "X", 0.1, "spread of the gap, relative to it", dest="jitter_frac"),
    option("--seeds", **_SEEDS, default=[0], help="of the durations: 0-4 or 1,5 (default 0)"),
    option("--out", metavar="DIR", help="write the journals there"),
    _JSON,
)
_DISTRIBUTION = (
    _number("--hosts", "N", 298, "hosts beside the learner", most=10_000),
    _number("--model-mb", "S", 20.0, "megabytes of one version"),
    _number("--link-gbit", "B", 10.0, "Gbit/s of each network card"),
    _number("--latency-us", "US", 300.0, "microseconds that a message is on its way"),
    _number("--overhead-us", "US", 150.0, "microseconds of processor time per message"),
    option("--plan", nargs="+", default=["all"], metavar="NAME", help="planners, such as relay:m=30; or all (default)"),
    option("--sweep", choices=["relay", "multitree", "tree"], help="this one with growing numbers, too"),
    option("--fail", nargs="+", default=[], metavar="HOST@S", help="hosts that are gone after so many seconds"),
    _JSON,
)
_SWAPPING = (
    option("--net", default="resnet50_32", metavar="NAME", help="network, such as resnet50_32 (default) or vgg16_224"),
    option(
        "--multiple",
        nargs="+",
        type=float,
        default=[1.7],
        metavar="X",
        help="batches, as multiples of the largest one that fits without a plan (default 1.7)",
    ),
    option(
        "--planner",
        nargs="+",
        default=["compared"],
        metavar="NAME",
        help="planners, such as hybrid:actions=swap+derive; or compared (default): one of each kind",
    ),
    option("--preset", choices=["2080ti", "h200_tf32"], default="2080ti", help="device (default 2080ti)"),
    taking("--swap-budget", "SIZE", size(), "of the device's memory (default 11GiB)", "11GiB"),
    _number("--seed", "S", 0, "of searches", least=0),
    _JSON,
)
_BATCHING = (
    option("--planners", default="all", metavar="LIST", help="batching planners by comma, or all (default)"),
    option(
        "--family",
        default="static",
        metavar="NAME",
        help="of contention: static (default), memoryless, periodic, correlated",
    ),
    _numbers(
        "--speeds", float, "200,200,200,160,120,100,70,50", "samples per second of each member that nothing slows"
    ),
    _number("--batch", "B", 512, "samples of a split", dest="n_units"),
    option("--quorum", type=parse_text, default=1.0, metavar="X", help="members waited for: a share (1.0), or a count"),
    option("--late", default="cut", metavar="NAME", help="what becomes of the others: cut (default) or drop"),
    option("--steal", action="store_true", help="wait for all, and share anew what slow members have not begun"),
    _number("--splits", "N", 2000, "splits", dest="n_splits"),
    _number("--dwell", "N", 20.0, "mean splits of a memoryless burst"),
    _numbers("--periods", int, "10,13", "splits of the members' periods"),
    option("--seeds", **_SEEDS, default=[0], help="of the speeds: 0-4 or 1,5 (default 0)"),
    _JSON,
)
_PLACEMENT = (
    option(
        "--trace",
        metavar="FILE",
        help="CSV of jobs: job_id,submit_time_s,n_gpus,duration_s[,tenant] (default: a sample)",
    ),
    option("--planner", nargs="+", default=[], metavar="NAME", help="planners of gangs (default: all)"),
    option("--order", default="fifo", metavar="NAME", help="whose turn it is: fifo (default) or largest"),
    option(
        "--backfill", default="greedy", metavar="NAME", help="who may go ahead: greedy (default: all that fit), reserve"
    ),
    _number("--mtbf-days", "X", 337.0, "days between failures of a slot"),
    _number("--lemons", "X", 0.0, "share of slots that fail 30 times as often"),
    option(
        "--node-mtbf-days",
        type=reading(between(1e-3, 1e6), "none"),
        metavar="X",
        help="days between outages of a node, each of all its slots (default none: there are none)",
    ),
    _number("--weibull", "K", 1.0, "shape of lives after a repair; below 1: many are short", dest="weibull_shape"),
    option(
        "--checkpoint",
        type=parse_text,
        default=3600.0,
        metavar="S",
        dest="checkpoint_s",
        help="seconds of work between checkpoints (default 3600), none, or young: what costs each gang least",
    ),
    _number("--locality", "X", 0.0, "share by which a gang is slower per node too many", dest="locality_frac"),
    _number("--interference", "X", 0.0, "and per other gang on its nodes that is on several", dest="interference_frac"),
    option("--family", default="gang", metavar="NAME", help="of jobs: gang (default), mixed, all"),
    _number("--jobs", "N", 64, "jobs of a window", dest="n_jobs"),
    _number("--windows", "N", 20, "windows, as far as they share no job", dest="n_windows"),
    _number("--paths", "N", 2, "fault paths of each", dest="n_paths"),
    option("--arrivals", action="store_true", help="jobs are submitted when they were; else all at once"),
    _number("--cap", "S", 86_400.0, "longer jobs are cut to so many seconds", dest="cap_s"),
    _number("--max-gpus", "N", 32, "larger gangs are cut to so many slots"),
    _number("--nodes", "N", 8, "nodes of the cluster", most=1000, dest="n_nodes"),
    _number("--slots", "N", 8, "slots of each", most=1000, dest="slots_per_node"),
    _number("--seed", "S", 0, "of rates and faults", least=0),
    option("--out", metavar="DIR", help="write a journal of the first window on its first path there, per planner"),
    _JSON,
)


def _run(module: str, args: argparse.Namespace) -> int:
    """Run the simulator; 0 if it could be."""
    return int(import_module(module).main(args) or 0)


#: What is simulated -> in words, room of :mod:`drlnb.sim`, options.
_KINDS = {
    "train": ("whole runs", "training", _TRAIN),
    "leasing": ("who holds which slot when", "leasing", _LEASING),
    "distribution": ("which way parameters take to hosts", "distribution", _DISTRIBUTION),
    "swapping": ("what leaves the device's memory during a training step", "swapping", _SWAPPING),
    "warmup": ("when collectors start", "warmup", _WARMUP),
    "placement": ("which slots of a cluster that fails jobs run on", "placement", _PLACEMENT),
    "batching": ("how many samples each member takes", "batching", _BATCHING),
}
#: How ``drlnb simulate`` is called.
COMMAND = Command(
    "run the machines on a virtual clock",
    partial(_run, ""),
    kinds={
        name: Command(help, partial(_run, f"drlnb.sim.{room}.report"), options)
        for name, (help, room, options) in _KINDS.items()
    },
)

"""``drlnb bench returns``: what does a trained policy earn, under the settings that we ship, over several seeds?"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from drlnb.bench.groups import BenchParser, chosen, go_through, say
from drlnb.bench.peers import Work, run_own
from drlnb.bench.report import Bar, Report, Row
from drlnb.rl.algorithms.resolve import resolve

__all__ = ["CASES", "Effort", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One environment and algorithm under the shipped settings, and what every seed must earn."""

    env: str
    algo: str
    #: Mean raw return of 40 deterministic episodes, of the worst seed; None: only printed.
    at_least: float | None
    #: ``ci`` takes seconds a seed, ``nightly`` minutes.
    tier: str


#: Row -> case.
CASES = {
    "ppo-cartpole": Case(env="CartPole-v1", algo="ppo", at_least=475, tier="ci"),
    "gpf-cartpole": Case(env="CartPole-v1", algo="gpf", at_least=475, tier="ci"),
    "dqn-cartpole": Case(env="CartPole-v1", algo="dqn", at_least=475, tier="ci"),
    "ppo-acrobot": Case(env="Acrobot-v1", algo="ppo", at_least=-100, tier="nightly"),
    "gpf-acrobot": Case(env="Acrobot-v1", algo="gpf", at_least=-120, tier="nightly"),
    "ppo-mountaincar": Case(env="MountainCar-v0", algo="ppo", at_least=-130, tier="nightly"),
    "dqn-mountaincar": Case(env="MountainCar-v0", algo="dqn", at_least=-130, tier="nightly"),
    "ppo-pendulum": Case(env="Pendulum-v1", algo="ppo", at_least=-250, tier="nightly"),
    "ppo-lunarlander": Case(env="LunarLander-v3", algo="ppo", at_least=200, tier="nightly"),
    "ppo-halfcheetah": Case(env="HalfCheetah-v5", algo="ppo", at_least=1300, tier="nightly"),
}
_MODULE = "drlnb.bench.returns"
#: Longest training, in seconds: HalfCheetah's million steps take a quarter of an hour where the machine is busy.
_LONGEST_S = 7200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    seeds: tuple[int, ...] = (0, 1, 2)
    #: Trainings at once.
    jobs: int = 1
    #: Environment steps per training; None: those of the shipped settings.
    steps: int | None = None


def main(argv: Sequence[str]) -> int:
    """Train, evaluate and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench returns``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    groups = {name: (_MODULE, name) for name in CASES}
    parser = BenchParser("returns", "Train under the shipped settings and play 40 deterministic episodes.", groups)
    parser.add_argument("--tier", choices=("ci", "nightly"), default="ci", help="which rows, without --rows")
    parser.number("seeds", 3, least=1, help="seeds per row")
    parser.number("seed", 0, least=0, help="the first seed")
    parser.number("jobs", 1, least=1, help="trainings at once")
    parser.number("steps", None, least=1, help="environment steps per training (default: shipped)")
    args = parser.parse(argv)
    names = chosen(args.rows, groups) if args.rows else [name for name, case in CASES.items() if case.tier == args.tier]
    effort = Effort(seeds=tuple(range(args.seed, args.seed + args.seeds)), jobs=args.jobs, steps=args.steps)
    report = Report(bench="returns")
    go_through(report, groups, names, effort, args.json)
    return report.exit_code(strict=args.strict)


def __getattr__(name: str) -> object:
    """Return the function that measures a case, by the case's name."""
    if name in CASES:
        return partial(_measure, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _measure(name: str, effort: Effort) -> tuple[Row, ...]:
    case = CASES[name]
    found = resolve(case.env, case.algo, total_timesteps=effort.steps)
    said = ", ".join(f"{key} {value}" for key, value in sorted(found.hyperparameters.items()))
    say(f"{name}: {found.total_timesteps} steps, n_envs {found.n_envs}, {said}")
    work = Work(
        env=case.env,
        algo=case.algo,
        n_envs=found.n_envs,
        total_timesteps=found.total_timesteps,
        settings=found.hyperparameters,
    )
    with ThreadPoolExecutor(effort.jobs) as pool:
        train = partial(run_own, longest_s=_LONGEST_S)
        made = list(pool.map(train, [replace(work, seed=seed) for seed in effort.seeds]))
    what = f"{case.algo.upper()} {case.env}, {found.total_timesteps} steps, seeds {_listed(effort.seeds)}"
    return (
        Row(
            id=name,
            what=f"{what}: mean return of {work.n_eval_episodes} deterministic episodes, a sample per seed",
            unit="reward",
            samples=tuple(one["mean_reward"] for one in made),
            bar=None if case.at_least is None else Bar("worst", at_least=case.at_least),
        ),
        Row(id=f"{name}-time", what=f"{what}: training", samples=tuple(one["seconds"] for one in made)),
    )


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))

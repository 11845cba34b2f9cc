"""Measure what a trained policy earns under the shipped settings, over several seeds."""

from collections.abc import Iterator

from benchmarks.efforts import CASES, Returns
from benchmarks.frame.bench import write_line
from benchmarks.frame.rows import Bar, Row
from benchmarks.rl.peers import N_EPISODES, run_own
from drlnb.rl.algorithms.resolve import resolve

__all__ = ["returns"]

#: Longest training, in seconds: HalfCheetah's million steps take a quarter of an hour where the machine is busy.
_LONGEST_S = 7200.0


def returns(effort: Returns, name: str) -> Iterator[Row]:
    """Train a case once per seed; the worst one's return has the bar."""
    case = CASES[name]
    tuned = resolve(case.env, case.algo, total_timesteps=effort.steps)
    words = ", ".join(f"{key} {value}" for key, value in sorted(tuned.hyperparameters.items()))
    write_line(f"{name}: {tuned.total_timesteps} steps, n_envs {tuned.n_envs}, {words}")
    settings, steps = dict(tuned.hyperparameters), tuned.total_timesteps
    seeds = range(effort.seed, effort.seed + effort.seeds)
    work = {**settings, "env": case.env, "algo": case.algo, "n_envs": tuned.n_envs, "total_timesteps": steps}
    done = run_own([work | {"seed": seed} for seed in seeds], effort.jobs, _LONGEST_S)
    setting = f"{case.algo.upper()} {case.env}, {steps} steps, seeds {', '.join(map(str, seeds))}"
    words = f"{setting}: mean return of {N_EPISODES} deterministic episodes, a sample per seed"
    rewards = [training.mean_reward for training in done]
    yield Row(name, words, rewards, "reward", bar=Bar("worst", at_least=case.at_least))
    for tenth, values in enumerate(zip(*(training.curve for training in done), strict=True), 1):
        words = f"{setting}: mean return of 100 training episodes, a sample per seed"
        yield Row(f"{name}-{tenth}0%", words, values, "reward")
    yield Row(f"{name}-time", f"{setting}: training", [training.seconds for training in done])

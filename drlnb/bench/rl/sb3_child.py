"""Train once by Stable-Baselines3 in a process of its own, as its own users run it, and print what was measured.

The first line of standard input is a :class:`~drlnb.bench.rl.works.Work` as JSON; it begins at the second line.
"""

import json
import sys
import time
from collections.abc import Callable

__all__ = ["main"]


class _Clock:
    """Seconds spent in a method, summed over its calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, run: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            try:
                return run(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def _schedule(value: object) -> object:
    """Return ``lin_x`` as the function that rl-baselines3-zoo makes of it."""
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * start
    return value


def main() -> None:
    """Train and evaluate."""
    work = json.loads(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    print("ready", flush=True)  # noqa: T201 - the pipe to the bench
    sys.stdin.readline()
    settings = {name: _schedule(value) for name, value in work["settings"].items()}
    normalize = settings.pop("normalize", False)
    envs = make_vec_env(work["env"], n_envs=work["n_envs"], seed=work["seed"])
    if normalize:
        envs = normalized = VecNormalize(envs, gamma=work["settings"].get("gamma", 0.99))
    algorithm = {"ppo": PPO, "dqn": DQN}[work["algo"]]
    model = algorithm("MlpPolicy", envs, seed=work["seed"], device="cpu", **settings)
    collecting, updating = _Clock(), _Clock()
    model.collect_rollouts = collecting.around(model.collect_rollouts)
    model.train = updating.around(model.train)
    began = time.perf_counter()
    model.learn(work["total_timesteps"])
    seconds = time.perf_counter() - began
    held_out = make_vec_env(work["env"], n_envs=1, seed=10_000 + work["seed"])
    if normalize:
        held_out = evaluated = VecNormalize(held_out, training=False, norm_reward=False)
        evaluated.obs_rms = normalized.obs_rms
    mean, _ = evaluate_policy(model, held_out, n_eval_episodes=work["n_eval_episodes"], deterministic=True)
    measured = {
        "seconds": seconds,
        "n_timesteps": model.num_timesteps,
        "collect_s": collecting.seconds,
        "update_s": updating.seconds,
        "mean_reward": mean,
    }
    print(json.dumps(measured))  # noqa: T201


if __name__ == "__main__":
    main()

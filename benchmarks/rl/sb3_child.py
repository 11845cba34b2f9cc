"""Train once by Stable-Baselines3 in a process of its own, as its own users run it, and print what was measured.

The first line of standard input is JSON: a ``work`` of :data:`~benchmarks.rl.peers.WORKS` with its seed, and
``n_eval_episodes`` that are played afterwards.  It begins at the second line.
"""

import json
import sys
import time
from collections.abc import Callable

__all__ = ["main"]


def _timed(run: Callable[..., object], spent_s: list[float]) -> Callable[..., object]:
    """Return a method that adds the seconds of each of its calls."""

    def timed(*args: object, **kwargs: object) -> object:
        began = time.perf_counter()
        result = run(*args, **kwargs)
        spent_s.append(time.perf_counter() - began)
        return result

    return timed


def _schedule(value: object) -> object:
    """Return ``lin_x`` as the function that rl-baselines3-zoo makes of it."""
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * start
    return value


def main() -> None:
    """Train and evaluate."""
    asked = json.loads(sys.stdin.readline())
    import torch

    torch.set_num_threads(1)
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    print("ready", flush=True)
    sys.stdin.readline()
    env, steps, seed = (asked["work"].pop(name) for name in ("env", "total_timesteps", "seed"))
    settings = {name: _schedule(value) for name, value in asked["work"].items()}
    normalize = settings.pop("normalize", False)
    envs = make_vec_env(env, n_envs=settings.pop("n_envs"), seed=seed)
    if normalize:
        envs = normalized = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    collect_s: list[float] = []
    update_s: list[float] = []
    model.collect_rollouts = _timed(model.collect_rollouts, collect_s)
    model.train = _timed(model.train, update_s)
    began = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - began
    held_out = make_vec_env(env, n_envs=1, seed=10_000 + seed)
    if normalize:
        held_out = evaluated = VecNormalize(held_out, training=False, norm_reward=False)
        evaluated.obs_rms = normalized.obs_rms
    mean, _ = evaluate_policy(model, held_out, n_eval_episodes=asked["n_eval_episodes"], deterministic=True)
    measured = {
        "seconds": seconds,
        "n_timesteps": model.num_timesteps,
        "collect_s": sum(collect_s),
        "update_s": sum(update_s),
        "mean_reward": mean,
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

"""Begin a new budget for a trained model: what was learnt stays, counters and episodes begin anew."""

from dataclasses import replace

from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.fragments import Fragment

__all__ = ["anew"]


def anew(trained: Trained, n_envs: int) -> Trained:
    """Return a state whose budget begins: Stable-Baselines3's ``reset_num_timesteps=True``.

    Parameters, optimiser, statistics and replay stay.  Steps count from 0, so schedules and exploration begin again;
    environments begin new episodes, with seeds that no episode had before, because rounds count on.

    Parameters
    ----------
    trained
        Where the former budget ended.
    n_envs
        Environments of the task.
    """
    begun = {"snapshot": None, "fresh": True, "obs": b"", "discounted": 0.0, "return": 0.0, "length": 0}
    return replace(
        trained,
        state=replace(trained.state, facts={**trained.state.facts, "n_timesteps": 0}),
        n_timesteps=0,
        elapsed_s=0.0,
        episodes=(),
        envs={"round": trained.n_rounds + 1, "envs": {str(index): dict(begun) for index in range(n_envs)}},
        replay=None if trained.replay is None else _shifted(trained.replay, trained.n_timesteps // n_envs),
    )


def _shifted(replay: Fragment, n_steps: int) -> Fragment:
    """Return a ring whose rows were made before vector step 0, `n_steps` earlier than recorded."""
    arrays = dict(replay.arrays)
    if "made" in arrays:
        arrays["made"] = arrays["made"] - n_steps
    return Fragment({**replay.header, "target_step": 0}, arrays)

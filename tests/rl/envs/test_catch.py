"""The pixel environment drlnb/Catch-v0."""

import subprocess
import sys
from itertools import product

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from drlnb.rl.envs.catch import CATCH_ID, CatchEnv
from drlnb.rl.envs.snapshots import freeze, restorable, thaw


def test_gymnasium_accepts_it():
    """Gymnasium's own checker finds nothing wrong."""
    check_env(gymnasium.make(CATCH_ID, render_mode="rgb_array").unwrapped)


def test_it_is_registered_under_its_id():
    """Importing the module is enough for gymnasium.make."""
    env = gymnasium.make(CATCH_ID)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (84, 84, 1)
    assert obs.dtype == np.uint8
    env.close()


def test_an_episode_takes_twenty_steps():
    """The ball falls one row per step: 20 steps from the first row to the last of 21."""
    env = CatchEnv()
    env.reset(seed=3)
    ends = [env.step(1)[2] for _ in range(20)]
    assert ends == [False] * 19 + [True]


def test_every_start_can_be_caught_from_single_frames():
    """Walking under the ball, which a frame alone shows, catches all 63 starts; standing still loses column 0's."""

    def play(column, drift, choose):
        env.reset(seed=0)
        env._column, env._drift, ended = column, drift, False
        while not ended:
            _, reward, ended, _, _ = env.step(choose())
        return reward

    env = CatchEnv()
    starts = list(product(range(21), (-1, 0, 1)))
    assert [play(*start, lambda: 1 + np.sign(env._column - env._paddle)) for start in starts] == [1.0] * 63
    assert [play(*start, lambda: 1) for start in starts[:3]] == [-1.0] * 3


def test_ball_and_paddle_are_seen():
    """A frame holds the ball's 4 x 4 pixels and the paddle's 3 x 4 x 4 pixels."""
    obs, _ = CatchEnv().reset(seed=1)
    assert (obs == 255).sum() == 16 + 3 * 16


def test_it_goes_on_exactly_from_a_state():
    """A second environment, thawed from the first, answers the same."""
    first = CatchEnv()
    first.reset(seed=5)
    for action in (0, 2, 2):
        first.step(action)
    second = thaw(freeze(first))
    for action in (0, 1, 2):
        assert np.array_equal(first.step(action)[0], second.step(action)[0])
    assert restorable(CATCH_ID)


def test_wrong_input_is_named():
    """An action or render mode that does not exist is refused with its value."""
    env = CatchEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="got 3"):
        env.step(3)
    with pytest.raises(ValueError, match="got 'human'"):
        CatchEnv(render_mode="human")


@pytest.mark.slow
def test_it_is_known_whichever_is_imported_first():
    """``import drlnb`` does not load gymnasium, and gymnasium knows the id in either order of import."""
    for order in ("drlnb, gymnasium", "gymnasium, drlnb"):
        first = order.split(",")[0]
        code = f"import sys, {first}; early = 'gymnasium' in sys.modules; import {order}; "
        code += f"gymnasium.make({CATCH_ID!r}); print(early, gymnasium.__spec__.loader.__class__.__name__)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        assert out == [str(first == "gymnasium"), "SourceFileLoader"]

"""Lives, FIRE and the end of a game, on a game without a console: AtariWrapper's own rules."""

import gymnasium
import numpy as np
import pytest

from drlnb.rl.envs import wrapper_classes
from drlnb.rl.envs.wrapper_classes import AtariWrapper, Tally


class Game(gymnasium.Env):
    """Every third frame costs one of three lives and pays 7, the others cost 2; what it was given is written down."""

    observation_space = gymnasium.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, meanings=("NOOP", "FIRE", "UP", "DOWN")):
        self._meanings, self.ale, self.given, self.seeds = meanings, self, [], []

    def get_action_meanings(self):
        return list(self._meanings)

    def lives(self):
        return 3 - self._t // 3

    def reset(self, *, seed=None, options=None):
        self._t = 0
        self.given.append("new")
        self.seeds.append(seed)
        return np.zeros(1, np.uint8), {}

    def step(self, action):
        self._t += 1
        self.given.append(int(action))
        reward = 7.0 if self._t % 3 == 0 else -2.0
        return np.full(1, self._t, np.uint8), reward, self._t == 9, False, {}


@pytest.fixture
def make_game(monkeypatch):
    """Wrap a game whose pixels nobody processes."""

    def pixels(env, noop_max, frame_skip, screen_size, grayscale_newaxis):
        assert (noop_max, frame_skip, screen_size, grayscale_newaxis) == (30, 4, 84, True)
        return gymnasium.Wrapper(env)

    monkeypatch.setattr(wrapper_classes, "AtariPreprocessing", pixels)

    def make(meanings=("NOOP",), **given):
        game = Game(meanings)
        return game, AtariWrapper(Tally(game), **given)

    return make


def lived(env):
    """Play until the agent's episode ends; return the rewards."""
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = env.step(3)
        rewards.append(reward)
        over = terminated or truncated
    return rewards


def test_a_life_is_an_episode_and_three_lives_are_one_game(make_game):
    """Each end but the game's leads to the next life, at the price of a no-op; rewards are signs."""
    game, env = make_game()
    assert env.reset(seed=5)[0] == [0]
    assert lived(env) == [-1.0, -1.0, 1.0]
    assert env.reset()[0] == [4], "the game went on from where the life was lost"
    assert lived(env) == [-1.0, 1.0]
    assert env.reset()[0] == [7]
    assert lived(env) == [-1.0, 1.0]
    assert game.given == ["new", 3, 3, 3, 0, 3, 3, 0, 3, 3]
    assert env.reset()[0] == [0]
    assert (game.given[-1], game.seeds) == ("new", [5, None])
    assert env.env.env.drain() == [(7.0 * 3 - 2.0 * 6, 9)]


def test_a_seed_starts_a_new_game_in_mid_game(make_game):
    """An evaluation's start does not depend on lives that are left."""
    game, env = make_game()
    env.reset(seed=1)
    lived(env)
    env.reset(seed=2)
    assert (game.seeds, game.given[-1]) == ([1, 2], "new")


def test_without_episodes_of_lives_only_the_game_ends(make_game):
    """The whole game is one episode, raw rewards where signs are not asked for, and every reset is a new game."""
    game, env = make_game(terminal_on_life_loss=False, clip_reward=False)
    env.reset()
    assert lived(env) == [-2.0, -2.0, 7.0] * 3
    env.reset()
    env.step(3)
    env.reset()
    assert game.given.count("new") == 3


def test_games_that_wait_for_fire_get_it_and_the_action_after(make_game):
    """FIRE, then action 2, after each new game and each lost life; a game without FIRE gets neither."""
    game, env = make_game(("NOOP", "FIRE", "UP", "DOWN"))
    assert env.reset()[0] == [2]
    assert game.given == ["new", 1, 2]
    assert lived(env) == [1.0]
    assert env.reset()[0] == [6], "a no-op for the next life, FIRE, the action after: this life is lost on the way"
    assert game.given[4:] == [0, 1, 2]


def test_a_game_that_ends_while_it_is_started_is_started_again(make_game):
    """The no-op, FIRE or the action after may end the game: what is returned is of a new one."""
    game, env = make_game(("NOOP", "FIRE", "UP", "DOWN"))
    env.reset()
    game._t = 6
    env._lives = game.lives()
    env._over = False
    obs, _ = env.reset()
    assert game.given[3:] == [0, 1, 2, "new"]
    assert obs == [0]

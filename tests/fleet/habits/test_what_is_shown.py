"""Tables, bars, loggers and pictures: what a user sees of a training, in a terminal, a notebook or a window."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest

import drlnb
from drlnb.fleet import faces
from drlnb.fleet.callbacks.progress import ProgressLine
from drlnb.records.errors import ConfigError
from tests.fleet.compatibility.worlds import Own, dqn, ppo


def screen(text):
    """Return the lines that stand on a screen after a text was written to it."""
    lines = [""]
    at = 0
    for letter in text:
        if letter == "\n":
            lines.append("")
        elif letter == "\r":
            at = 0
            continue
        else:
            lines[-1] = lines[-1][:at] + letter + lines[-1][at + 1 :]
            at += 1
            continue
        at = 0
    return [line.rstrip() for line in lines]


def steps(out):
    """Return the steps of each table."""
    return [int(line.split("|")[2]) for line in out.splitlines() if "total_timesteps" in line]


# -------------------------------------------------------------------- a bar, and what else is written
def test_words_and_tables_go_above_the_bar(monkeypatch, capsys):
    """In a notebook, where all of it is one stream, the table began in the bar's line."""
    monkeypatch.setattr(faces, "notebook", lambda: True)
    monkeypatch.setattr("drlnb.fleet.callbacks.progress._REDRAW_S", 0.0)
    evaluation = drlnb.EvalCallback(eval_freq=16, n_eval_episodes=1)
    ppo(Own, verbose=1).learn(48, evaluation, progress_bar=True, local=True)
    seen = screen(capsys.readouterr().out)
    bars = [line for line in seen if "%" in line]
    assert len(bars) == 1
    assert bars[0].startswith("100% [####################] 48 of 48 steps, mean return 10.0, ")
    assert seen[-2:] == [bars[0], ""]
    assert [line for line in seen if "drlnb: evaluation" in line] == [
        f"drlnb: evaluation at {n} steps: 10.00 +/- 0.00 (1 episodes)" for n in (16, 32, 48)
    ]
    assert len([line for line in seen if line and not line.strip("-")]) == 6
    faces.show("next")
    assert capsys.readouterr().out == "next\n"


def test_a_bar_is_drawn_now_and_then(monkeypatch, capsys):
    """Rounds of a millisecond would be a message each; the last one is drawn in any case."""
    monkeypatch.setattr("drlnb.fleet.callbacks.progress._REDRAW_S", 60.0)
    dqn().learn(96, progress_bar=True, local=True)
    bars = capsys.readouterr().err.split("\r")[1:]
    assert [bar[:4] for bar in bars] == ["  4%", "100%"]


def test_a_bar_without_a_round_leaves_nothing(capsys):
    """As where a callback raises before the first one."""
    ProgressLine().on_training_end()
    assert capsys.readouterr().err == ""


# -------------------------------------------------------------------- tables of a DQN
def test_tables_of_a_dqn_count_episodes(capsys):
    """Its rounds are four steps: there would be one for each. They come when a round ends."""
    dqn(Own, verbose=1).learn(60, local=True)
    assert steps(capsys.readouterr().out) == [12, 24, 36, 48, 60]
    dqn(Own, verbose=1).learn(100, log_interval=2, local=True)
    assert steps(capsys.readouterr().out) == [20, 40, 60, 80, 100]
    dqn(Own, verbose=1).learn(100, log_interval=None, local=True)
    assert steps(capsys.readouterr().out) == []


def test_before_a_first_episode_has_ended_there_is_no_table(capsys):
    """There is no mean length to count by."""
    dqn(verbose=1).learn(8, log_interval=1, local=True)
    assert steps(capsys.readouterr().out) == []


# -------------------------------------------------------------------- loggers
def test_what_a_logger_has_not_is_told():
    """As the formats that callbacks look for, to write pictures."""
    model = ppo()
    with pytest.raises(
        AttributeError, match=r"has record, record_mean and dump, not 'output_formats': tensorboard_log"
    ):
        _ = model.logger.output_formats
    theirs = type("Theirs", (), {"record": print, "dump": print, "output_formats": ["csv"]})()
    model.set_logger(theirs)
    assert model.logger.output_formats == ["csv"]


# -------------------------------------------------------------------- what steps tell
class Asking(drlnb.BaseCallback):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def _on_step(self):
        return self.locals[self.name] is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("env", "locals has no 'env': self.training_env has the environments$"),
        ("obs_tensor", "locals has no 'obs_tensor': it holds self, infos, rewards, dones, new_obs$"),
    ],
)
def test_what_locals_have_not_is_told(name, said):
    """In this process nobody is sent to where he is."""
    with pytest.raises(ConfigError, match=said):
        ppo().learn(16, Asking(name), local=True)


# -------------------------------------------------------------------- pictures
class Drawn(Own):
    """Its picture says how it is drawn."""

    metadata: ClassVar = {"render_modes": ["human", "rgb_array"]}

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        return {None: "unsaid", "human": None, "rgb_array": np.zeros((2, 2, 3))}[self.render_mode]


@pytest.fixture
def drawn(monkeypatch):
    """Return a model of an id that can be drawn."""
    spec = gymnasium.envs.registration.EnvSpec("Drawn-v0", entry_point=f"{__name__}:Drawn")
    monkeypatch.setitem(gymnasium.registry, "Drawn-v0", spec)
    return ppo("Drawn-v0")


@pytest.mark.parametrize(("mode", "shape"), [("human", None), ("rgb_array", (2, 2, 3)), (None, (2, 2, 3))])
def test_environments_are_drawn_as_the_first_lines_draw_them(drawn, mode, shape):
    """`model.get_env().render("human")`: nothing was seen, and a warning was all."""
    env = drawn.get_env()
    env.reset()
    picture = env.render(mode)
    assert (picture if shape is None else picture.shape) == shape
    assert env.metadata["render_modes"] == ["human", "rgb_array"]
    other = "human" if mode != "human" else "rgb_array"
    with pytest.raises(
        ConfigError, match=rf"render\('{other}'\): Drawn-v0 is drawn with render_mode='.*', of human, r"
    ):
        env.render(other)


def test_an_own_environment_draws_as_it_likes():
    """As one that prints, whatever it is asked for."""
    env = ppo(type("Printing", (Own,), {"render": lambda self: "printed"})).get_env()
    assert env.render("human") == env.render() == "printed"


def test_what_cannot_be_drawn_is_told():
    """With what there is."""
    with pytest.raises(
        ConfigError, match=r"render\('ansi'\): CartPole-v1 is drawn with render_mode=None, of human, rgb_a"
    ):
        ppo().get_env().render("ansi")

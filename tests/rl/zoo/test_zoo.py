"""Entries of rl-baselines3-zoo files load unchanged; nothing in them is executed."""

import os
from keyword import iskeyword
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.records.errors import ConfigError
from drlnb.rl.zoo.entries import read_entry, resolve_entry
from drlnb.rl.zoo.literals import parse_data

ZOO = Path(__file__).parent
PPO, DQN = ZOO / "ppo.yml", ZOO / "dqn.yml"
ATARI = {"name": "AtariWrapper", "kwargs": {}}
STACK = {"name": "FrameStack", "kwargs": {"n_stack": 4}}


@pytest.fixture
def entry(tmp_path):
    """Write one entry and read it."""

    def read(text: str, env: str = "CartPole-v1", name: str = "ppo.yml", algo: str | None = None):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return read_entry(file, env, algo)

    return read


def test_cartpole_is_read_as_it_stands():
    """The zoo's CartPole entry gives its 8 environments, 1e5 steps as a whole number, and linear schedules as text."""
    found = read_entry(PPO, "CartPole-v1")
    assert (found.algo, found.n_envs, found.n_timesteps, found.wrappers) == ("ppo", 8, 100_000, ())
    assert found.hyperparameters == {
        "policy": "MlpPolicy",
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    }
    assert type(found.n_timesteps) is int


def test_half_cheetahs_policy_text_becomes_data():
    """Policy arguments over several lines become a mapping; the entry has one environment."""
    found = read_entry(PPO, "HalfCheetah-v4")
    assert found.n_envs == 1
    assert found.hyperparameters["policy_kwargs"] == {
        "log_std_init": -2,
        "ortho_init": False,
        "activation_fn": "relu",
        "net_arch": {"pi": [256, 256], "vf": [256, 256]},
    }
    assert found.hyperparameters["learning_rate"] == 2.0633e-05


def test_merge_keys_bring_the_other_entrys_settings():
    """Swimmer takes normalize and the budget from Ant's anchor, and its own for the rest, with the right lines."""
    found = read_entry(PPO, "Swimmer-v4")
    assert found.hyperparameters["normalize"] is True
    assert found.n_timesteps == 1_000_000
    assert found.n_envs == 4
    lines = PPO.read_text(encoding="utf-8").splitlines()
    assert lines[found.lines["gamma"] - 1].strip() == "gamma: 0.9999"
    assert "normalize: true" in lines[found.lines["normalize"] - 1]


@pytest.mark.parametrize("env", ["ALE/Pong-v5", "BreakoutNoFrameskip-v4", "ale_py:ALE/Pong-v5"])
@pytest.mark.parametrize("file", [PPO, DQN])
def test_games_fall_back_on_the_atari_entry(file, env):
    """An Atari game without an entry of its own gets ``atari``: SB3's wrapper, then four frames."""
    found = read_entry(file, env)
    assert (found.key, found.wrappers) == ("atari", (ATARI, STACK))
    assert found.hyperparameters["policy"] == "CnnPolicy"


def test_car_racings_wrappers_keep_their_order_and_arguments():
    """Old module paths and names of wrappers are understood, arguments included, the frame stack outermost."""
    found = read_entry(PPO, "CarRacing-v2")
    assert found.wrappers == (
        {"name": "rl_zoo3.wrappers:FrameSkip", "kwargs": {"skip": 2}},
        {"name": "ResizeObservation", "kwargs": {"shape": [64, 64]}},
        {"name": "GrayscaleObservation", "kwargs": {"keep_dim": True}},
        {"name": "FrameStack", "kwargs": {"n_stack": 2}},
    )
    assert found.hyperparameters["normalize"] == {"norm_obs": False, "norm_reward": True}
    assert found.hyperparameters["policy_kwargs"]["activation_fn"] == "gelu"


@pytest.mark.parametrize("file", [PPO, DQN])
def test_every_entry_is_read(file):
    """Each entry of the fixture is plain data after reading, and settings of its algorithm."""
    envs = list(yaml.safe_load(file.read_text(encoding="utf-8")))
    for env in envs:
        found = read_entry(file, "ALE/Pong-v5" if env == "atari" else env)
        assert resolve_entry(found).total_timesteps == found.n_timesteps > 0
        if env.startswith("MiniGrid"):
            assert found.wrappers == ({"name": "minigrid.wrappers:FlatObsWrapper", "kwargs": {}},)
        yaml.safe_dump(dict(found.hyperparameters))  # refuses anything but plain data


def test_an_environment_without_entry_has_the_default(entry):
    """As in the zoo; games have theirs, and a file without one names the nearest."""
    text = "default: {gamma: 0.9, n_timesteps: 10}\natari: {gamma: 0.8}"
    assert entry(text, env="Mine-v0").key == "default"
    assert entry(text, env="PongNoFrameskip-v4").key == "atari"


def test_an_entry_without_n_envs_has_one():
    """DQN's entries do not say how many environments: the zoo takes 1."""
    found = read_entry(DQN, "MountainCar-v0")
    assert (found.algo, found.n_envs) == ("dqn", 1)


def test_numbers_that_yaml_takes_for_text_are_numbers(entry):
    """PyYAML reads 1e-4 as text; here it is a number, and so is a budget of 1e5."""
    found = entry("CartPole-v1: {learning_rate: 1e-4, n_timesteps: 1e5, ent_coef: '0.5', n_envs: 2.0}")
    assert found.hyperparameters == {"learning_rate": 1e-4, "ent_coef": 0.5}
    assert (found.n_timesteps, found.n_envs) == (100_000, 2)


def test_the_files_name_says_the_algorithm(entry):
    """``ppo.yml`` means PPO, another name means PPO, too, an algorithm that is not here is refused, `algo` wins."""
    text = "CartPole-v1: {gamma: 0.9}"
    assert entry(text, name="ppo.yml").algo == "ppo"
    assert entry(text, name="mine.yml").algo == "ppo"
    with pytest.raises(ConfigError, match="holds settings of sac"):
        entry(text, name="sac.yml")
    assert entry(text, name="sac.yml", algo="ppo").algo == "ppo"


def test_a_module_in_front_of_the_id_is_ignored(entry):
    """``my_envs:Own-v0`` finds the entry Own-v0."""
    assert entry("Own-v0: {gamma: 0.9}", env="my_envs:Own-v0").key == "Own-v0"


def test_an_environment_without_entry_names_the_nearest():
    """There is no silent default: HalfCheetah-v5 is answered with HalfCheetah-v4."""
    with pytest.raises(ConfigError, match=r"no entry for HalfCheetah-v5; did you mean HalfCheetah-v4"):
        read_entry(PPO, "HalfCheetah-v5")


HOSTILE = [
    "__import__('os').system('touch {target}')",
    "dict(net_arch=[].append(1))",
    "dict(a=(lambda: open('{target}', 'w'))())",
    "[open('{target}', 'w') for _ in (1,)]",
    "dict(**{{'a': 1}})",
    "dict(activation_fn=nn.Module.__subclasses__)",
    "nn",
    "dict(a=9**9**9)",
    "f'{{1+1}}'",
    "(x := 1)",
    "dict([('a', 1)])",
    "eval('1')",
    "{{1: 2}}",
    "dict(a=b'x')",
    "1 +",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", ["policy_kwargs", "normalize"])
def test_hostile_text_is_refused_with_its_line(entry, tmp_path, text, key):
    """Code in a text is never run, and the message says file and line."""
    target = tmp_path / "owned"
    value = yaml.safe_dump(text.format(target=target), width=10_000).strip().removesuffix("\n...")
    with pytest.raises(ConfigError, match=rf"^ppo\.yml:3: {key} "):
        entry(f"CartPole-v1:\n  gamma: 0.9\n  {key}: {value}\n")
    assert not target.exists()


def test_yaml_tags_that_build_objects_are_refused_with_their_line(entry, tmp_path):
    """``!!python/object/apply`` never runs; the message says the line."""
    target = tmp_path / "owned"
    with pytest.raises(ConfigError, match=r"ppo\.yml:2: could not determine a constructor"):
        entry(f"CartPole-v1:\n  gamma: !!python/object/apply:os.mkdir ['{target}']\n")
    assert not target.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("n", [300, 4000])
def test_deep_nesting_is_refused_not_crashed(n):
    """Brackets and sums without end are one clear error."""
    for text in ("[" * n + "]" * n, "1+" * n + "1", "-" * n + "1"):
        with pytest.raises(ValueError, match=r"nest|data"):
            parse_data(text)


def test_an_alias_bomb_ends_early(entry):
    """Ten aliases of ten aliases of ten ... are refused by number, before they are copied or printed."""
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 10000 values"):
        entry("\n".join([*levels, "CartPole-v1: {gamma: *a8}"]))


def test_everything_wrong_is_told_at_once(entry):
    """A bad text, an unknown wrapper, a bad count and a callback are one error with four lines."""
    with pytest.raises(ConfigError) as caught:
        entry(
            "CartPole-v1:\n"
            "  policy_kwargs: os.getcwd()\n"
            "  env_wrapper: [os.system, {gymnasium.wrappers.NormalizeReward: {}}]\n"
            "  n_envs: 0\n"
            "  callback: my.Callback\n"
            "  frame_stack: many\n"
        )
    told = "\n".join(caught.value.problems)
    for part in (
        "ppo.yml:2: policy_kwargs is not data: os.getcwd()",
        "ppo.yml:3: unknown wrapper 'os.system': name a class as module:Class, such as os:system",
        "ppo.yml:3: wrapper NormalizeReward is not supported",
        "ppo.yml:4: n_envs must be a whole number >= 1, got 0",
        "ppo.yml:5: callback is not supported",
        "ppo.yml:6: frame_stack must be a whole number >= 1, got 'many'",
    ):
        assert part in told
    assert len(caught.value.problems) == 6


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("CartPole-v1: [1, 2]", "must map settings to values, got list"),
        ("- a", "must map environment ids to settings, got list"),
        ("a: [", r"ppo\.yml:1: "),
        ("CartPole-v1: {gamma: 2001-01-01}", "gamma must be plain data, got date"),
        ("CartPole-v1: {gamma: \x07}", r"special characters are not allowed|unacceptable"),
    ],
)
def test_other_files_are_refused(entry, text, match):
    """What is no zoo file is refused in one line."""
    with pytest.raises(ConfigError, match=match) as caught:
        entry(text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    """A file that is not there is wrong input, named."""
    with pytest.raises(ConfigError, match=r"nothing\.yml cannot be read"):
        read_entry(tmp_path / "nothing.yml", "CartPole-v1")


def test_huge_files_are_refused_unread(tmp_path):
    """A file above a megabyte is no settings file."""
    file = tmp_path / "ppo.yml"
    with file.open("wb") as out:
        os.truncate(out.fileno(), 1_000_001)
    with pytest.raises(ConfigError, match="at most 1000000 bytes, got 1000001"):
        read_entry(file, "CartPole-v1")


_NAMES = st.text("abcdefgh_", min_size=1, max_size=8).filter(lambda name: not iskeyword(name))  # "def"
_LEAVES = (
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)  # fmt: skip
_DATA = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4))


@settings(max_examples=40)
@given(_DATA)
def test_pythons_own_notation_round_trips(data):
    """Whatever plain data Python writes (``repr``) is read back as the same data."""
    assert parse_data(repr(data)) == data


def _written(data) -> str:
    """Write data in the zoo's other notation, ``dict(a=1)``."""
    if isinstance(data, dict):
        return "dict(" + ", ".join(f"{key}={_written(value)}" for key, value in data.items()) + ")"
    if isinstance(data, list):
        return "[" + ", ".join(map(_written, data)) + "]"
    return repr(data)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["net_arch", "pi", "vf", "log_std_init"]), _DATA, max_size=3))
def test_the_zoos_notation_round_trips(data):
    """``dict(a=1)`` is read back as the mapping, at any depth."""
    assert parse_data(_written(data)) == data


@settings(max_examples=40)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "n_envs": st.integers(1, 64),
            "n_timesteps": st.integers(1, 10**8),
            "gamma": st.floats(0, 1),
            "learning_rate": st.floats(1e-8, 1.0) | st.floats(1e-8, 1.0).map("lin_{}".format),
            "n_steps": st.integers(1, 4096),
            "policy_kwargs": st.dictionaries(st.sampled_from(["net_arch", "log_std_init"]), _DATA, max_size=2),
            "frame_stack": st.integers(2, 8),
        },
    )
)
def test_an_entry_round_trips(tmp_path_factory, chosen):
    """An entry written to YAML, its policy arguments as text, comes back as the same settings."""
    file = tmp_path_factory.getbasetemp() / "ppo.yml"
    written = {k: repr(v) if k == "policy_kwargs" else v for k, v in chosen.items()}
    file.write_text(yaml.safe_dump({"CartPole-v1": written}), encoding="utf-8")
    found = read_entry(file, "CartPole-v1")
    back = dict(found.hyperparameters)
    if "n_envs" in chosen:
        back["n_envs"] = found.n_envs
    if found.n_timesteps is not None:
        back["n_timesteps"] = found.n_timesteps
    if found.wrappers:
        back["frame_stack"] = found.wrappers[0]["kwargs"]["n_stack"]
    assert back == chosen

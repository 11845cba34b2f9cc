"""A model becomes one file and comes back; what is damaged or foreign is told in one line."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest

from drlnb.fleet.policies.files import load_model, newest, save_model
from drlnb.records.errors import CheckpointError, ConfigError, LayoutMismatch
from drlnb.rl.local.train import LocalLoop
from drlnb.runtime.master.checkpoint_effects import envs_for, read_newest, write_trained
from tests.fleet.conftest import small_task


@pytest.fixture(scope="module")
def spec():
    return small_task()


@pytest.fixture(scope="module")
def trained(spec):
    """Return the state after two rounds."""
    loop = LocalLoop(spec)
    loop.round()
    loop.round()
    yield loop.trained()
    loop.close()


@pytest.mark.parametrize(
    ("given", "written"), [("m", "m.zip"), ("m.zip", "m.zip"), ("deep/er/m.model", "deep/er/m.model")]
)
def test_a_model_is_one_file(tmp_path, spec, trained, given, written):
    """A name without a suffix gets `.zip`, folders on the way are made, and both names load it."""
    assert save_model(tmp_path / given, spec, trained) == tmp_path / written
    for name in (given, written):
        again, found = load_model(tmp_path / name)
        assert again == spec
        assert found.state.published.tobytes() == trained.state.published.tobytes()
        assert found.state.buffer.tobytes() == trained.state.buffer.tobytes()
        assert (found.n_rounds, found.n_timesteps, found.episodes) == (2, 128, trained.episodes)
        assert (found.envs, found.replay) == (None, None)


def test_a_model_of_several_learners_keeps_them(tmp_path, spec, trained):
    """As its collectors: the task that is read is the one that was saved."""
    two = replace(spec, n_collectors=2, n_learners=2)
    assert load_model(save_model(tmp_path / "m", two, trained))[0] == two


def test_a_model_is_a_folder_if_that_is_meant(tmp_path, spec, trained):
    """A text that ends with a slash, or a folder that is there; one with other files in it is left alone."""
    target = save_model(f"{tmp_path}/m/", spec, trained)
    assert sorted(p.name for p in target.iterdir()) == [
        "meta.json", "model.safetensors", "normaliser.safetensors", "optimizer.safetensors"
    ]  # fmt: skip
    save_model(target, spec, trained)
    assert load_model(target)[1].n_timesteps == 128
    (target / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"holds other files \(thesis.tex\)"):
        save_model(target, spec, trained)
    assert (target / "thesis.tex").read_text() == "years of work"


def test_nothing_in_it_is_a_pickle(tmp_path, spec, trained):
    """Plain data and safetensors only, and the same model is the same bytes."""
    a, b = (save_model(tmp_path / name, spec, trained) for name in ("a.zip", "b.zip"))
    assert a.read_bytes() == b.read_bytes()
    with zipfile.ZipFile(a) as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist()} == {"json", "safetensors"}


def _cut(path, n):
    path.write_bytes(path.read_bytes()[:-n])


def _flip(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"pi.0.weight") + 400] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: _cut(p, 300), "m.zip: damaged, or no zip file"),
        (lambda p: p.write_bytes(b""), "m.zip: damaged, or no zip file"),
        (lambda p: p.write_text("hello"), "m.zip: damaged, or no zip file"),
        (_flip, "m.zip.*(torn|damaged)"),
        (lambda p: p.unlink(), "m.zip: no such file or folder"),
    ],
    ids=["cut", "empty", "text", "flipped", "gone"],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, spec, trained, damage, said):
    """Cut anywhere, empty, something else, one bit flipped, or gone."""
    path = save_model(tmp_path / "m.zip", spec, trained)
    damage(path)
    with pytest.raises(CheckpointError, match=said) as told:
        load_model(path)
    assert "\n" not in str(told.value)


def test_a_model_of_another_library_is_named(tmp_path):
    """Stable-Baselines3's zip holds a file `data`."""
    with zipfile.ZipFile(tmp_path / "sb3.zip", "w") as archive:
        archive.writestr("data", "{}")
    with pytest.raises(CheckpointError, match=r"sb3.zip: a model of Stable-Baselines3 \(it holds no meta.json\)"):
        load_model(tmp_path / "sb3.zip")


def test_a_failed_save_leaves_the_older_file(tmp_path, spec, trained):
    """A folder that cannot be made is an error in words; nothing half-written stays."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_model(tmp_path / "file" / "m.zip", spec, trained)
    save_model(tmp_path / "m.zip", spec, trained)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "m.zip"]


def test_a_checkpoint_holds_the_environments_too(tmp_path, spec, trained):
    """What a checkpoint gives back goes on exactly: environments, episodes, counters."""
    write_trained(tmp_path, spec, trained, {"eval_best": 7.0})
    found, facts = read_newest(tmp_path, spec)
    assert facts["eval_best"] == 7.0
    assert found.envs == trained.envs
    loops = [LocalLoop(spec, state) for state in (trained, found)]
    metrics = [loop.round() for loop in loops]
    assert metrics[0]["train/loss"] == metrics[1]["train/loss"]
    assert loops[0].parameters.tobytes() == loops[1].parameters.tobytes()
    for loop in loops:
        loop.close()


def test_collectors_of_another_split_get_theirs(trained):
    """One that is asked for environments 1 and 9 gets 1 as it was, and 9, which nobody saved, begins anew."""
    import pickle

    found = pickle.loads(envs_for(trained.envs, (1, 9)))
    assert found["round"] == trained.envs["round"]
    assert found["envs"] == {"1": trained.envs["envs"]["1"], "9": {"snapshot": None}}


@pytest.mark.parametrize(
    ("other", "error", "said"),
    [
        ({"env": "Acrobot-v1"}, CheckpointError, "its env is CartPole-v1, this task's is Acrobot-v1"),
        ({"n_envs": 2, "batch_size": 16}, CheckpointError, "its n_envs is 4, this task's is 2"),
        ({"policy_kwargs": {"net_arch": [9]}}, LayoutMismatch, r"it holds pi.0.weight of shape \(8, 4\)"),
    ],
)
def test_a_checkpoint_of_another_task_is_refused(tmp_path, spec, trained, other, error, said):
    """Environment, number of environments and network are compared; the first difference is told."""
    write_trained(tmp_path, spec, trained)
    with pytest.raises(error, match=said):
        read_newest(tmp_path, small_task(**other))


def test_the_newest_checkpoint_of_a_task(tmp_path, spec, trained):
    """Without one the task and the folder are named."""
    with pytest.raises(CheckpointError, match=r"task a has no checkpoint in .* yet"):
        newest(spec, tmp_path)
    write_trained(tmp_path, spec, trained)
    np.testing.assert_array_equal(newest(spec, tmp_path).state.published, trained.state.published)

"""Checkpoints on disk."""

import os
import stat
import threading

import pytest

from drlnb.records.errors import CheckpointError
from drlnb.runtime.files import checkpoint


def _write(folder, n_rounds, text=b"abc"):
    return checkpoint.write(folder, n_rounds=n_rounds, facts={"n_rounds": n_rounds}, blobs={"state.bin": text})


def test_the_newest_one_loads(tmp_path):
    """After three checkpoints the newest loads, with its facts and bytes."""
    for n in (1, 2, 10):
        _write(tmp_path, n, b"x" * n)
    loaded = checkpoint.latest(tmp_path)
    assert loaded.facts["n_rounds"] == 10
    assert loaded.blobs["state.bin"] == b"x" * 10


@pytest.mark.parametrize(("task", "mode"), [({"env": "A-v0"}, 0o644), ({"env_factory": "gAWV"}, 0o600)])
def test_pickles_in_a_checkpoint_are_their_authors_alone(tmp_path, task, mode):
    """Snapshots of environments always are pickles, the task's facts where its environment is a function."""
    before = os.umask(0o022)
    try:
        blobs = {"envs.safetensors": b"a", "model.safetensors": b"b"}
        checkpoint.write(tmp_path, n_rounds=1, facts={"spec": task}, blobs=blobs)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "1").iterdir()}
    assert modes == {"envs.safetensors": 0o600, "model.safetensors": 0o644, "meta.json": mode}


def test_older_ones_are_tidied_away(tmp_path):
    """Two checkpoints are kept beside the newest one."""
    for n in range(1, 7):
        _write(tmp_path, n)
    assert sorted(int(p.name) for p in tmp_path.iterdir() if p.is_dir()) == [4, 5, 6]


def test_no_checkpoint_is_none(tmp_path):
    """A task that never wrote one has none; that is no error."""
    assert checkpoint.latest(tmp_path / "a") is None


@pytest.mark.parametrize("damage", ["torn", "flipped", "missing", "manifest"])
def test_a_half_written_one_never_loads(tmp_path, damage):
    """A torn, altered or incomplete newest checkpoint is passed over for the whole one before it."""
    _write(tmp_path, 1)
    _write(tmp_path, 2)
    blob = tmp_path / "2" / "state.bin"
    if damage == "torn":
        blob.write_bytes(b"ab")
    elif damage == "flipped":
        blob.write_bytes(b"abd")
    elif damage == "missing":
        blob.unlink()
    else:
        (tmp_path / "2" / "meta.json").write_text('{"format": 2,')
    assert checkpoint.latest(tmp_path).facts["n_rounds"] == 1


def test_killed_between_the_files_and_latest_the_older_one_loads(tmp_path):
    """LATEST decides: a newer folder that it does not name yet is not taken."""
    _write(tmp_path, 1)
    _write(tmp_path, 2)
    (tmp_path / "LATEST").write_text("1")
    assert checkpoint.latest(tmp_path).facts["n_rounds"] == 1


def test_only_damaged_ones_is_an_error_that_names_the_file(tmp_path):
    """If none is whole the error names the file and what is wrong with it."""
    _write(tmp_path, 3)
    (tmp_path / "3" / "state.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"3/state\.bin: torn \(0 of 3 bytes"):
        checkpoint.latest(tmp_path)


def test_another_format_is_refused_with_both_numbers(tmp_path):
    """A checkpoint of a format that this version does not read is refused with both numbers."""
    _write(tmp_path, 1)
    manifest = tmp_path / "1" / "meta.json"
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(CheckpointError, match="format 99, this version reads 2"):
        checkpoint.load(tmp_path / "1")


def test_the_best_one_is_kept_until_a_better_one_comes(tmp_path):
    """Round 2 is the best of seven: it stays beside the newest three; then round 8 is better, and 2 goes."""
    folders = []
    for n in range(1, 10):
        checkpoint.write(tmp_path, n_rounds=n, facts={}, blobs={"a": b"x"}, best=n in {2, 8})
        folders.append(sorted(int(p.name) for p in tmp_path.iterdir() if p.is_dir()))
    assert folders[6] == [2, 5, 6, 7]
    assert folders[8] == [6, 7, 8, 9]
    assert (tmp_path / "BEST").read_text() == "8"


def test_an_attempt_that_was_superseded_cannot_write(tmp_path):
    """The second attempt claims the folder: the first one's later checkpoint leaves no trace, and it may not claim."""
    checkpoint.claim(tmp_path, 1)
    checkpoint.write(tmp_path, n_rounds=3, facts={}, blobs={"a": b"first"}, attempt=1)
    checkpoint.claim(tmp_path, 2)
    with pytest.raises(checkpoint.SupersededError, match="attempt 2 has begun, this is attempt 1"):
        checkpoint.write(tmp_path, n_rounds=9, facts={}, blobs={"a": b"ghost"}, attempt=1)
    with pytest.raises(checkpoint.SupersededError):
        checkpoint.claim(tmp_path, 1)
    assert checkpoint.latest(tmp_path).path.name == "3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "ATTEMPT", "LATEST"]
    checkpoint.write(tmp_path, n_rounds=4, facts={}, blobs={"a": b"second"}, attempt=2)
    assert checkpoint.latest(tmp_path).blobs == {"a": b"second"}


def test_a_later_attempt_waits_until_a_write_is_whole(tmp_path):
    """Between the check and the rename nobody can claim: then the checkpoint is there, and the claim comes after it."""
    checkpoint.claim(tmp_path, 1)
    order = []
    with checkpoint._mine(tmp_path, 1):
        other = threading.Thread(target=lambda: (checkpoint.claim(tmp_path, 2), order.append("claimed")))
        other.start()
        other.join(0.05)
        order.append("written")
    other.join()
    assert order == ["written", "claimed"]


def _write_part(folder, n_rounds, earlier=(), best=False):
    blobs = {"ring.bin": bytes([n_rounds]) * 5, "other.bin": b"o"}
    names = [f"../{n}/ring.bin" for n in earlier]
    return checkpoint.write(folder, n_rounds=n_rounds, facts={}, blobs=blobs, best=best, earlier=names)


def test_files_of_earlier_checkpoints_stay_while_one_needs_them(tmp_path):
    """The parts are read with the newest; of one that is tidied away only what is needed is left, then nothing."""
    _write_part(tmp_path, 1)
    for n in range(2, 6):
        _write_part(tmp_path, n, earlier=[1])
    loaded = checkpoint.latest(tmp_path)
    assert dict(loaded.blobs) == {"ring.bin": b"\5" * 5, "other.bin": b"o", "../1/ring.bin": b"\1" * 5}
    left = {path.name: sorted(file.name for file in path.iterdir()) for path in tmp_path.iterdir() if path.is_dir()}
    whole = ["meta.json", "other.bin", "ring.bin"]
    assert left == {"1": ["meta.json", "ring.bin"], "3": whole, "4": whole, "5": whole}
    for n in (6, 7):
        _write_part(tmp_path, n)
    assert "1" in {path.name for path in tmp_path.iterdir()}, "5 is still kept"
    _write_part(tmp_path, 8)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["6", "7", "8"]


@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_a_checkpoint_without_its_earlier_part_never_loads(tmp_path, damage):
    """The one before it is taken, if it needs no such part."""
    _write_part(tmp_path, 1)
    _write_part(tmp_path, 2)
    _write_part(tmp_path, 3, earlier=[1])
    part = tmp_path / "1" / "ring.bin"
    part.unlink() if damage == "missing" else part.write_bytes(b"1")
    assert checkpoint.latest(tmp_path).path.name == "2"


def test_an_earlier_part_that_is_gone_is_a_failure_of_the_disk(tmp_path):
    """It is named, and what was there before is whole."""
    _write_part(tmp_path, 1)
    with pytest.raises(FileNotFoundError, match=r"7/ring\.bin"):
        _write_part(tmp_path, 2, earlier=[7])
    assert checkpoint.latest(tmp_path).path.name == "1"

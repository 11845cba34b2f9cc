"""Save a model as one file that somebody else can load: the files of a checkpoint, in a zip or a folder.

Reading runs no code: plain data and safetensors only (:mod:`drlnb.rl.checkpoints.files`).  A factory of environments
is kept as text and rebuilt only to go on training.
"""

import io
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from drlnb.fleet.faces import say
from drlnb.fleet.plain import Plain
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.checkpoints.files import pack, unpack
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.pickled import code_in
from drlnb.runtime.files import checkpoint
from drlnb.runtime.files.versions import versions

__all__ = ["ATTRIBUTES", "File", "attributes_of", "load_model", "newest", "refuse_code", "save_model", "say_versions"]

#: Where a model is written, or read from: a name, or a file that is open in binary mode.
File = str | Path | BinaryIO

#: Every file of a zip gets this time (the first that a zip knows), so that the same model is the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


#: Attributes of a model that its file holds, beside the task and its state.
ATTRIBUTES = ("verbose", "tensorboard_log")


def save_model(
    path: File, spec: RlWork, trained: Trained, attributes: Mapping[str, object] | None = None
) -> Path | BinaryIO:
    """Write a model; an older file of that name is replaced only when the new one is whole.

    Snapshots of environments and the replay ring are left out: they belong to a run's checkpoints.

    `path` is as of :meth:`drlnb.fleet.policies.policy.Model.save`, and so is what is returned and raised.
    """
    facts, blobs = pack(spec, replace(trained, envs=None, replay=None))
    facts["versions"] = versions()
    told = {key: str(value) if isinstance(value, Path) else value for key, value in (attributes or {}).items()}
    facts["attributes"] = {key: value for key, value in told.items() if value is not None}
    files: dict[str, bytes] = {checkpoint.META: checkpoint.meta(facts, blobs), **blobs}
    if not isinstance(path, str | Path):
        path.write(_zipped(files))
        return path
    target = Path(path)
    folder = target.is_dir() or str(path).endswith(("/", os.sep))
    if not folder and not target.suffix:
        target = target.with_name(target.name + ".zip")
    beside = target.parent / f"{target.name}.part-{os.getpid()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder:
            _write_folder(target, beside, files)
        else:
            beside.write_bytes(_zipped(files))
            beside.replace(target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from None
    return target


def _write_folder(target: Path, beside: Path, files: dict[str, bytes]) -> None:
    """Put the files into a folder; refuse one that holds anything else."""
    if target.is_dir():
        strange = sorted(p.name for p in target.iterdir() if p.name != checkpoint.META and p.suffix != ".safetensors")
        if strange:
            raise ConfigError(f"{target} holds other files ({strange[0]}): save into a folder of its own, or a .zip")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    for name, content in files.items():
        (beside / name).write_bytes(content)
    shutil.rmtree(target, ignore_errors=True)
    beside.replace(target)


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content)
    return buffer.getvalue()


def load_model(path: File, *, trust: bool = False, elsewhere: bool = False) -> tuple[RlWork, Trained]:
    """Read what :func:`save_model` wrote, or one checkpoint of a run.

    Parameters
    ----------
    path
        Zip file (its ``.zip`` may be left out, or it may be open) or folder.
    trust
        Take a model whose network, or environment, is a function of its author's as well: using it runs their code.
    elsewhere
        Leave the environment out: the caller has another one.

    Returns
    -------
    tuple
        The task and its state.

    Raises
    ------
    CheckpointError
        If nothing is there, or it is damaged, or was written by a version that knows more.
    """
    target, saved = _read(path)
    facts = dict(saved.facts)
    if elsewhere:
        facts["spec"] = {**facts.get("spec", {}), "env_factory": None, "env_kwargs": {}}
    if not trust:
        refuse_code(facts.get("spec", {}), target)
    spec, trained = unpack(facts, saved.blobs, str(target))
    if not isinstance(spec, RlWork):
        raise CheckpointError(f"{target}: it is of supervised work, and holds no policy")
    return spec, trained


def attributes_of(path: File) -> dict[str, object]:
    """Return the attributes that a model was saved with; raises as :func:`load_model`."""
    saved = _read(path)[1].facts.get("attributes", {})
    return {name: saved[name] for name in ATTRIBUTES if name in saved}


def say_versions(path: File) -> None:
    """Say with which packages a model was saved, and which this process has; raises as :func:`load_model`."""
    saved = _read(path)[1].facts.get("versions", {})
    for where, known in (("saved with", saved), ("this process has", versions())):
        say(f"{where} " + ", ".join(f"{name} {version}" for name, version in known.items()))


def _read(path: File) -> tuple[Path, checkpoint.Checkpoint]:
    """Return a model's file or folder, and what is in it."""
    if not isinstance(path, str | Path):
        named = Path(str(getattr(path, "name", "the open file")))
        return named, _unzipped(path, named)
    target = Path(path)
    if not target.exists() and not target.suffix:
        target = target.with_name(target.name + ".zip")
    if not target.exists():
        raise CheckpointError(f"{target}: no such file or folder")
    saved = checkpoint.load(target) if target.is_dir() else _unzipped(target, target)
    return target, saved


def refuse_code(spec: Plain, path: Path) -> None:
    """Raise CheckpointError for a task that holds pickled functions."""
    if pickled := code_in(spec):
        other = ", or give the environment, env=..." if pickled == ["env"] else ""
        raise CheckpointError(
            f"{path}: its {' and '.join(pickled)} came from its author's own code, which would run here: "
            f"load it with trust=True if you trust them{other}"
        )


def _unzipped(file: Path | BinaryIO, path: Path) -> checkpoint.Checkpoint:
    try:
        with zipfile.ZipFile(file) as archive:
            if checkpoint.META not in archive.namelist():
                foreign = "a model of Stable-Baselines3" if "data" in archive.namelist() else "no model of drlnb"
                raise CheckpointError(f"{path}: {foreign} (it holds no {checkpoint.META})")
            return checkpoint.parse(archive.read, path)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise CheckpointError(f"{path}: damaged, or no zip file ({error})") from None


def newest(spec: RlWork, folder: Path) -> Trained:
    """Return the state in a task's newest whole checkpoint; CheckpointError if there is none, or another task's."""
    latest = checkpoint.latest(folder)
    if latest is None:
        raise CheckpointError(f"task {spec.name} has no checkpoint in {folder} yet")
    return unpack(latest.facts, latest.blobs, str(latest.path), spec)[1]

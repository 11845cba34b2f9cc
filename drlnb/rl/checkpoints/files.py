"""Write a training's state to files and read it back: plain data and safetensors, the same for all readers.

A checkpoint of a run and a saved model are the same files; the model leaves out what only the very same run needs.

=========================  ==========================================================================================
``meta.json``              task, layout, counters, the learner's numbers (its container adds sizes and checksums)
``model.safetensors``      parameters by name
``normaliser.safetensors`` statistics of observations and returns
``optimizer.safetensors``  Adam's moments, a target network
``envs.safetensors``       checkpoints only: observations, and snapshots of environments as bytes (pickles, thawed only
                           to go on training)
``replay.safetensors``     checkpoints only, off-policy: the ring
=========================  ==========================================================================================
"""

from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from drlnb.records.errors import CheckpointError
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.checkpoints.trained import Trained, check_layout, describe_layout, from_files, layout_from, to_files
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.policies import is_module
from drlnb.rl.plain import Facts

__all__ = ["LAYOUT", "pack", "unpack"]

#: Key of a learner's facts with the layout of a torch module, so that who writes a checkpoint needs no torch.
LAYOUT = "module_layout"

_ENVS, _REPLAY = "envs.safetensors", "replay.safetensors"
#: Numbers that a collector keeps beside the environment itself.
_NUMBERS = ("discounted", "return", "length", "fresh")
#: Bytes that it keeps, where there are any.
_BLOBS = ("obs", "snapshot", "mask")


def pack(spec: TaskSpec, trained: Trained) -> tuple[dict[str, object], dict[str, bytes]]:
    """Return plain data and files of a training's state.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    trained
        What is None in it gets no file.

    Returns
    -------
    tuple
        Facts that JSON holds, and file name -> content.
    """
    saved = trained.state.facts.get(LAYOUT)
    layout = make_actor(spec).layout if saved is None else layout_from(spec, saved)
    blobs = to_files(layout, trained.state)
    facts: dict[str, object] = {
        "spec": spec.to_plain(),
        "layout": describe_layout(layout),
        "learner": dict(trained.state.facts),
        "n_rounds": trained.n_rounds,
        "n_timesteps": trained.n_timesteps,
        "elapsed_s": trained.elapsed_s,
        "episodes": [[float(r), int(n)] for r, n in trained.episodes],
    }
    if trained.envs is not None:
        facts["envs"], blobs[_ENVS] = _packed_envs(trained.envs)
    if trained.replay is not None:
        facts["replay"] = dict(trained.replay.header)
        blobs[_REPLAY] = save({name: np.ascontiguousarray(a) for name, a in trained.replay.arrays.items()})
    return facts, blobs


def _packed_envs(state: Facts) -> tuple[Facts, bytes]:
    tensors: dict[str, np.ndarray] = {}
    rows = {}
    for index, env in state["envs"].items():
        rows[index] = {name: env[name] for name in _NUMBERS if name in env}
        blobs = {name: env[name] for name in _BLOBS if env.get(name) is not None}
        tensors |= {f"{index}/{name}": np.frombuffer(blob, np.uint8) for name, blob in blobs.items()}
    return {"round": state["round"], "rows": rows}, save(tensors)


def unpack(
    facts: Facts, blobs: Mapping[str, bytes], where: str, spec: TaskSpec | None = None
) -> tuple[TaskSpec, Trained]:
    """Return the task and the state that :func:`pack` was given.

    Parameters
    ----------
    facts, blobs
        What it returned.
    where
        The folder or file, for messages.
    spec
        The task that shall go on; None: the one that was saved.

    Raises
    ------
    LayoutMismatch
        If `spec` has another network; the first entry that differs is named.
    CheckpointError
        If something is missing or damaged, or was written by a version that knows more.
    """
    try:
        if spec is None:
            spec = TaskSpec.from_plain(facts["spec"])
        algo = facts["spec"]["algo"]
        if algo != spec.algo:
            raise CheckpointError(f"{where}: it was trained by {algo}, this task is {spec.algo}")
        if is_module(spec):
            layout = layout_from(spec, facts["layout"])  # the module's own is compared when it is built
        else:
            layout = make_actor(spec).layout
            check_layout(facts["layout"], layout, where)
        trained = Trained(
            state=from_files(layout, blobs, facts["learner"], where),
            n_rounds=int(facts["n_rounds"]),
            n_timesteps=int(facts["n_timesteps"]),
            elapsed_s=float(facts["elapsed_s"]),
            episodes=tuple((float(r), int(n)) for r, n in facts["episodes"]),
            envs=_unpacked_envs(facts["envs"], load(blobs[_ENVS])) if "envs" in facts else None,
            replay=Fragment(dict(facts["replay"]), load(blobs[_REPLAY])) if "replay" in facts else None,
        )
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"{where}: {error.args[0]} is missing") from None
    except (SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: cannot be read by this version ({error})") from None
    return spec, trained


def _unpacked_envs(saved: Facts, tensors: Mapping[str, np.ndarray]) -> Facts:
    envs = {}
    for index, numbers in saved["rows"].items():
        blobs = {name: tensors[f"{index}/{name}"].tobytes() for name in _BLOBS if f"{index}/{name}" in tensors}
        envs[index] = {"snapshot": None, **numbers, **blobs}
    return {"round": int(saved["round"]), "envs": envs}

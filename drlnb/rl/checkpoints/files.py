"""Turn a training's state into files and back: plain data and safetensors; nothing in them runs code.

A checkpoint of a run and a saved model are the same files; the model leaves out what only the very same run needs.

=========================  ==========================================================================================
``meta.json``              task, layout, counters, the learner's numbers (its container adds sizes and checksums)
``model.safetensors``      parameters by name
``normaliser.safetensors`` statistics of observations and returns
``optimizer.safetensors``  Adam's moments, a target network
``envs.safetensors``       checkpoints only: observations, and snapshots of environments as bytes (pickles, thawed only
                           to go on training)
``replay.safetensors``     checkpoints only, off-policy: the ring, or what it has got since earlier ones that are named
=========================  ==========================================================================================

A learner hands out two flat buffers: what actors need, and what it needs itself to go on.  Both become named tensors;
reading gives the same buffers, bit for bit.
"""

from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from drlnb.records.base import Facts
from drlnb.records.episodes import episode
from drlnb.records.errors import CheckpointError, LayoutMismatch
from drlnb.records.spec import RlWork, WorkSpec, read_work
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.algorithms.replay import ReplayRing
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import HEADER_BYTES, Layout, assemble, exploring
from drlnb.rl.networks.policies import is_module

__all__ = [
    "ENVS",
    "LAYOUT",
    "MODEL",
    "NORMALISER",
    "OPTIMIZER",
    "REPLAY",
    "check_layout",
    "describe_layout",
    "pack",
    "unpack",
]

#: Names of the files.
MODEL, OPTIMIZER, NORMALISER = "model.safetensors", "optimizer.safetensors", "normaliser.safetensors"

#: What the rows of a learner's buffer are, beside the parameters themselves.
_ROWS = ("exp_avg", "exp_avg_sq", "target")
#: What an algorithm sends to its actors beside statistics and parameters, after the layout's fingerprint.
_HEADER, _RESERVED = "header", slice(32, HEADER_BYTES)
#: Key of a learner's facts with the layout of a torch module, so that who writes a checkpoint needs no torch.
LAYOUT = "module_layout"

#: Name of the file that holds pickles, and of the one that holds the ring.
ENVS, REPLAY = "envs.safetensors", "replay.safetensors"


def pack(spec: WorkSpec, trained: Trained) -> tuple[dict[str, object], dict[str, bytes]]:
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
    laid_out: Facts = {}
    if isinstance(spec, RlWork):
        saved = trained.state.facts.get(LAYOUT)
        layout = make_actor(spec).layout if saved is None else layout_from(spec, saved)
        laid_out, blobs = {"layout": describe_layout(layout)}, to_files(layout, trained.state)
    else:  # its learner's buffers are files
        blobs = {MODEL: trained.state.published.tobytes(), OPTIMIZER: trained.state.buffer.tobytes()}
    facts: dict[str, object] = {
        "spec": spec.to_plain(),
        **laid_out,
        "learner": dict(trained.state.facts),
        "n_rounds": trained.n_rounds,
        "n_timesteps": trained.n_timesteps,
        "elapsed_s": trained.elapsed_s,
        "episodes": [list(episode(values)) for values in trained.episodes],
    }
    if trained.envs is not None:
        facts["envs"], blobs[ENVS] = _packed_envs(trained.envs)
    if trained.replay is not None:
        facts["replay"] = dict(trained.replay.header)
        blobs[REPLAY] = save({name: np.ascontiguousarray(a) for name, a in trained.replay.arrays.items()})
    return facts, blobs


def _packed_envs(state: Facts) -> tuple[Facts, bytes]:
    """Return what collectors keep as plain data, and what is bytes in it as tensors."""
    tensors: dict[str, np.ndarray] = {}
    rows: dict[str, Facts] = {}
    for index, env in state["envs"].items():
        rows[index] = {name: value for name, value in env.items() if not isinstance(value, bytes)}
        blobs = {name: value for name, value in env.items() if isinstance(value, bytes)}
        tensors |= {f"{index}/{name}": np.frombuffer(blob, np.uint8) for name, blob in blobs.items()}
    return {"round": state["round"], "rows": rows}, save(tensors)


def unpack(
    facts: Facts, blobs: Mapping[str, bytes], where: str, spec: WorkSpec | None = None
) -> tuple[WorkSpec, Trained]:
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
        spec = read_work(facts["spec"]) if spec is None else spec
        trained = Trained(
            state=_unpacked_state(spec, facts, blobs, where),
            n_rounds=int(facts["n_rounds"]),
            n_timesteps=int(facts["n_timesteps"]),
            elapsed_s=float(facts["elapsed_s"]),
            episodes=tuple(map(episode, facts["episodes"])),
            envs=_unpacked_envs(facts["envs"], load(blobs[ENVS])) if "envs" in facts else None,
            replay=_unpacked_replay(facts["replay"], blobs) if "replay" in facts else None,
        )
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"{where}: {error.args[0]} is missing") from None
    except (SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: cannot be read by this version ({error})") from None
    return spec, trained


def _unpacked_state(spec: WorkSpec, facts: Facts, blobs: Mapping[str, bytes], where: str) -> State:
    if not isinstance(spec, RlWork):
        published, buffer = (np.frombuffer(blobs[name], np.uint8) for name in (MODEL, OPTIMIZER))
        return State(published=published, facts=facts["learner"], buffer=buffer)
    algo = facts["spec"]["algo"]
    if algo != spec.algo:
        raise CheckpointError(f"{where}: it was trained by {algo}, this task is {spec.algo}")
    if is_module(spec):
        layout = layout_from(spec, facts["layout"])  # the module's own is compared when it is built
    else:
        layout = make_actor(spec).layout
        check_layout(facts["layout"], layout, where)
    return from_files(layout, blobs, facts["learner"], where)


def _unpacked_envs(saved: Facts, tensors: Mapping[str, np.ndarray]) -> Facts:
    envs = {index: dict(row) for index, row in saved["rows"].items()}
    for key, tensor in tensors.items():
        index, _, name = key.partition("/")
        envs[index][name] = tensor.tobytes()
    return {"round": int(saved["round"]), "envs": envs}


def _unpacked_replay(header: Facts, blobs: Mapping[str, bytes]) -> Fragment:
    """Return the ring; of one that was written in parts (`before`: names of the earlier ones' files) their whole."""
    *before, last = [load(blobs[name]) for name in (*header.get("before", ()), REPLAY)]
    if not header.get("part"):
        return Fragment(dict(header), last)
    n_rows, n_envs = int(header["n_rows"]), int(header["n_envs"])
    ring = ReplayRing(n_rows * n_envs, n_envs, last["obs"].shape[2:], last["obs"].dtype)
    for arrays in (*before, last):
        ring.restore(Fragment(header, arrays))
    whole = ring.state()
    return Fragment({**whole.header, "target_step": header["target_step"]}, whole.arrays)


def describe_layout(layout: Layout) -> Facts:
    """Return a layout as plain data: what :func:`check_layout` compares."""
    return {
        "sha": layout.sha.hex(),
        "entries": [[entry.name, list(entry.shape)] for entry in layout.entries],
        "n_published": sum(entry.stop <= layout.n_policy for entry in layout.entries),
        "n_buffers": layout.n_buffers,
        "head": [layout.head.kind, list(layout.head.sizes)],
        "activation": layout.activation,
        "norm_obs": layout.norm_obs,
        "norm_reward": layout.norm_reward,
    }


def layout_from(spec: RlWork, plain: Facts) -> Layout:
    """Rebuild the layout of a network that is a torch module from :func:`describe_layout`, without torch.

    Raises
    ------
    LayoutMismatch
        If the description does not fit the task's spaces.
    """
    shapes = [(str(name), tuple(shape)) for name, shape in plain["entries"]]
    n, sizes = int(plain["n_published"]), plain["head"][1]
    head, _ = exploring(spec, int(sizes[-1]) if sizes else 0)
    kind, n_buffers = str(plain["activation"]), int(plain["n_buffers"])
    made = assemble(spec, shapes[:n], shapes[n:], activation=kind, head=head, n_buffers=n_buffers)
    if made.sha.hex() != plain["sha"]:
        raise LayoutMismatch(f"the network of {spec.env} was saved for other spaces, or by another version")
    return made


def check_layout(saved: Facts, layout: Layout, where: str) -> None:
    """Refuse tensors that were saved for another network.

    Parameters
    ----------
    saved
        As of :func:`describe_layout`.
    layout
        The one that is needed.
    where
        The file, for the message.

    Raises
    ------
    LayoutMismatch
        Naming the first entry that differs.
    """
    wanted = describe_layout(layout)
    if saved["sha"] == wanted["sha"]:
        return
    theirs, ours = _in_words(saved), _in_words(wanted)
    for a, b in zip(theirs, ours, strict=False):
        if a != b:
            raise LayoutMismatch(f"{where}: it holds {a}, this task needs {b}")
    raise LayoutMismatch(f"{where}: its tensors lie otherwise ({saved['sha'][:12]}, here {wanted['sha'][:12]})")


def _in_words(plain: Facts) -> list[str]:
    entries = [f"{name} of shape {tuple(shape)}" for name, shape in plain["entries"]]
    return [*entries, *(f"{key} = {plain[key]}" for key in ("head", "activation", "norm_obs", "norm_reward"))]


def to_files(layout: Layout, state: State) -> dict[str, bytes]:
    """Return the safetensors files of a state.

    Parameters
    ----------
    layout
        Of the parameters.
    state
        As a learner of that layout handed it out; or without its buffer.

    Returns
    -------
    dict
        File name -> content; :data:`OPTIMIZER` only if the state has a learner's buffer.
    """
    statistics = layout.statistics(state.published)
    header = np.array(state.published[_RESERVED])
    files = {NORMALISER: save({_HEADER: header, **_named(layout, statistics)})}
    flat, entries = state.published[layout.policy_offset :].view(np.float32), layout.entries
    if state.buffer.size:
        tensors = state.buffer[: state.buffer.size - statistics.nbytes].view(np.float32)
        flat, *rows = tensors.reshape(-1, layout.n_total)
        files[OPTIMIZER] = save({
            f"{name}/{entry.name}": row[entry.start : entry.stop].reshape(entry.shape)
            for name, row in zip(_ROWS, rows, strict=False)
            for entry in entries
        })
    else:
        entries = tuple(entry for entry in entries if entry.stop <= layout.n_policy)
    files[MODEL] = save({entry.name: flat[entry.start : entry.stop].reshape(entry.shape) for entry in entries})
    return files


def _named(layout: Layout, statistics: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics under their names; of what is not normalised only the counts."""
    named = {"obs/n": statistics[:1], "returns/n": statistics[1:2]}
    named |= {"returns/mean": statistics[2:3], "returns/m2": statistics[3:4]}
    if layout.norm_obs:
        width = layout.obs_width
        named |= {"obs/mean": statistics[4 : 4 + width], "obs/m2": statistics[4 + width :]}
    return named


def from_files(layout: Layout, files: Mapping[str, bytes], facts: Facts, where: str) -> State:
    """Return the state that :func:`to_files` was given.

    Parameters
    ----------
    layout
        As it was then.
    files
        File name -> content.
    facts
        The learner's plain data.
    where
        The folder or file, for messages.

    Raises
    ------
    CheckpointError
        If a file is missing or damaged, or a tensor is missing or has another shape.
    """
    try:
        model, named = load(files[MODEL]), load(files[NORMALISER])
        optimizer = load(files[OPTIMIZER]) if OPTIMIZER in files else {}
        statistics = np.concatenate([named[name] for name in _named(layout, np.zeros(layout.n_statistics))])
        flat = _flat(layout, model, "", partly=not optimizer)
        published = layout.published(statistics, flat[: layout.n_policy])
        published[_RESERVED] = named[_HEADER]
        buffer = np.zeros(0, np.uint8)
        if optimizer:
            rows = _ROWS if any(name.startswith("target/") for name in optimizer) else _ROWS[:2]
            flats = [flat, *(_flat(layout, optimizer, f"{row}/") for row in rows)]
            buffer = np.concatenate([row.view(np.uint8) for row in (*flats, statistics)])
    except KeyError as error:
        raise CheckpointError(f"{where}: {error.args[0]} is missing") from None
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{where}: damaged ({error})") from None
    return State(published=published, facts=facts, buffer=buffer)


def _flat(layout: Layout, tensors: Mapping[str, np.ndarray], prefix: str, *, partly: bool = False) -> np.ndarray:
    flat = np.zeros(layout.n_total, np.float32)
    for entry in layout.entries:
        if partly and entry.stop > layout.n_policy:
            continue
        tensor = tensors[prefix + entry.name]
        if tensor.dtype != np.float32 or tensor.shape != entry.shape:
            raise ValueError(f"{prefix}{entry.name} is {tensor.dtype} {tensor.shape}, not float32 {entry.shape}")
        flat[entry.start : entry.stop] = tensor.ravel()
    return flat

"""What does a checkpoint or a saved model hold?  Tensors under their names, and plain data; nothing that runs code.

A learner hands out two flat buffers: what actors need, and what it needs itself to go on.  On disk both become named
tensors in safetensors files: the parameters in ``model.safetensors``, Adam's moments (and a target network) in
``optimizer.safetensors``, the statistics in ``normaliser.safetensors``.  Reading gives the same buffers, bit for bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from drlnb.records.errors import CheckpointError, LayoutMismatch
from drlnb.records.spec import TaskSpec
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import HEADER_BYTES, Layout, assemble

__all__ = [
    "MODEL",
    "NORMALISER",
    "OPTIMIZER",
    "State",
    "Trained",
    "check_layout",
    "describe_layout",
    "from_files",
    "joined",
    "layout_from",
    "to_files",
]

#: Names of the files.
MODEL, OPTIMIZER, NORMALISER = "model.safetensors", "optimizer.safetensors", "normaliser.safetensors"

#: What the rows of a learner's buffer are, beside the parameters themselves.
_ROWS = ("exp_avg", "exp_avg_sq", "target")
#: A buffer in a form of its algorithm's own is one tensor of bytes.
_RAW = "bytes"
#: What an algorithm says to its actors beside statistics and parameters, after the layout's fingerprint.
_HEADER, _RESERVED = "header", slice(32, HEADER_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A task's parameters at one moment, and what its learner needs to go on from there."""

    #: What the learner published; uint8, shape ``(published_bytes,)``.
    published: np.ndarray
    #: The learner's plain data, see :meth:`drlnb.rl.algorithms.protocol.Learner.state`; empty: only acting is possible.
    facts: Mapping[str, Any]
    #: The learner's buffer; uint8, empty if there is none.
    buffer: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Where a training stands between two rounds: all that it needs to go on."""

    state: State
    #: Rounds finished; the published version is one more.
    n_rounds: int
    #: Environment steps of the present budget.
    n_timesteps: int
    #: Seconds of training so far.
    elapsed_s: float = 0.0
    #: Returns and lengths of the latest episodes, oldest first.
    episodes: tuple[tuple[float, int], ...] = ()
    #: Joined :meth:`drlnb.rl.collecting.collector.Collector.state` of all environments; None: they start anew.
    envs: Mapping[str, Any] | None = None
    #: :meth:`drlnb.rl.algorithms.replay.Replay.state`; None: there is none, or it is filled anew.
    replay: Fragment | None = None


def joined(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the states of several collectors as one, from which any split of the environments can be restored."""
    envs: dict[str, Any] = {}
    for state in states:
        envs |= state["envs"]
    return {"round": max(int(state["round"]) for state in states), "envs": envs}


def describe_layout(layout: Layout) -> dict[str, Any]:
    """Return a layout as plain data: what :func:`check_layout` compares."""
    return {
        "sha": layout.sha.hex(),
        "entries": [[entry.name, list(entry.shape)] for entry in layout.entries],
        "n_published": sum(entry.stop <= layout.n_policy for entry in layout.entries),
        "head": [layout.head.kind, list(layout.head.sizes)],
        "activation": layout.activation,
        "norm_obs": layout.norm_obs,
        "norm_reward": layout.norm_reward,
    }


def layout_from(spec: TaskSpec, told: Mapping[str, Any]) -> Layout:
    """Rebuild the layout of a network that is a torch module from :func:`describe_layout`, without torch.

    Raises
    ------
    LayoutMismatch
        If the description does not fit the task's spaces.
    """
    shapes = [(str(name), tuple(shape)) for name, shape in told["entries"]]
    n = int(told["n_published"])
    made = assemble(spec, shapes[:n], shapes[n:], activation=str(told["activation"]))
    if made.sha.hex() != told["sha"]:
        raise LayoutMismatch(f"the network of {spec.env} was saved for other spaces, or by another version")
    return made


def check_layout(found: Mapping[str, Any], layout: Layout, where: str) -> None:
    """Refuse tensors that were saved for another network.

    Parameters
    ----------
    found
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
    if found["sha"] == wanted["sha"]:
        return
    theirs, ours = _told(found), _told(wanted)
    for a, b in zip(theirs, ours, strict=False):
        if a != b:
            raise LayoutMismatch(f"{where}: it holds {a}, this task needs {b}")
    more, whose = (theirs[len(ours) :], "it also holds") if len(theirs) > len(ours) else (ours[len(theirs) :], "lacks")
    if more:
        raise LayoutMismatch(f"{where}: {whose} {more[0]}")
    raise LayoutMismatch(f"{where}: its tensors lie otherwise ({found['sha'][:12]}, here {wanted['sha'][:12]})")


def _told(plain: Mapping[str, Any]) -> list[str]:
    entries = [f"{name} of shape {tuple(shape)}" for name, shape in plain["entries"]]
    return [*entries, *(f"{key} = {plain[key]}" for key in ("head", "activation", "norm_obs", "norm_reward"))]


def to_files(layout: Layout, state: State) -> dict[str, bytes]:
    """Return the safetensors files of a state.

    Parameters
    ----------
    layout
        Of the parameters.
    state
        Its buffers may be in a form of the algorithm's own: they are then kept as bytes.

    Returns
    -------
    dict
        File name -> content; :data:`OPTIMIZER` only if the state has a learner's buffer.
    """
    statistics = _statistics(layout, state.published)
    rows = _rows(layout, state.buffer)
    flat = np.zeros(layout.n_total, np.float32)
    flat[: layout.n_policy] = state.published[layout.policy_offset :].view(np.float32)
    if rows is not None:
        flat = rows[0]
    known = [entry for entry in layout.entries if rows is not None or entry.stop <= layout.n_policy]
    model = {entry.name: flat[entry.start : entry.stop].reshape(entry.shape) for entry in known}
    header = np.array(state.published[_RESERVED])
    files = {MODEL: save(model), NORMALISER: save({_HEADER: header, **_named(layout, statistics)})}
    if rows is not None:
        files[OPTIMIZER] = save({
            f"{row}/{entry.name}": rows[number][entry.start : entry.stop].reshape(entry.shape)
            for number, row in enumerate(_ROWS[: len(rows) - 1], 1)
            for entry in layout.entries
        })
    elif state.buffer.size:
        files[OPTIMIZER] = save({_RAW: state.buffer})
    found = from_files(layout, files, state.facts, "")
    if found.buffer.tobytes() != state.buffer.tobytes():
        files[OPTIMIZER] = save({_RAW: state.buffer})
    if found.published.tobytes() != np.asarray(state.published).tobytes():
        files[MODEL] = save({**model, _RAW: np.array(state.published)})
    return files


def _rows(layout: Layout, buffer: np.ndarray) -> list[np.ndarray] | None:
    """Return parameters, moments and target of a learner's buffer, each ``(n_total,)``; None if it is otherwise."""
    for n_rows in (3, 4):
        for n_statistics in (layout.n_statistics, 0):
            if buffer.size == 4 * n_rows * layout.n_total + 8 * n_statistics:
                return list(buffer[: 4 * n_rows * layout.n_total].view(np.float32).reshape(n_rows, -1))
    return None


def _statistics(layout: Layout, published: np.ndarray) -> np.ndarray:
    return np.array(published[HEADER_BYTES : HEADER_BYTES + 8 * layout.n_statistics]).view(np.float64)


def _named(layout: Layout, statistics: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics under their names; of what is not normalised only the counts."""
    named = {"obs/n": statistics[:1], "returns/n": statistics[1:2]}
    named |= {"returns/mean": statistics[2:3], "returns/m2": statistics[3:4]}
    if layout.norm_obs:
        width = layout.obs_width
        named |= {"obs/mean": statistics[4 : 4 + width], "obs/m2": statistics[4 + width :]}
    return named


def from_files(layout: Layout, files: Mapping[str, bytes], facts: Mapping[str, Any], where: str) -> State:
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
        flat = _flat(layout, model, "", partly=not optimizer or _RAW in optimizer)
        published = model.get(_RAW)
        if published is None:
            published = _published(layout, statistics, flat)
            published[_RESERVED] = named[_HEADER]
        buffer = optimizer.get(_RAW, np.zeros(0, np.uint8))
        if optimizer and _RAW not in optimizer:
            rows = _ROWS if any(name.startswith("target/") for name in optimizer) else _ROWS[:2]
            flats = [flat, *(_flat(layout, optimizer, f"{row}/") for row in rows)]
            # A target network stands where there are no statistics: an off-policy learner keeps none.
            tail = [] if "target" in rows else [statistics.view(np.uint8)]
            buffer = np.concatenate([row.view(np.uint8) for row in flats] + tail)
    except KeyError as error:
        raise CheckpointError(f"{where}: {error.args[0]} is missing") from None
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{where}: damaged ({error})") from None
    return State(published=published, facts=facts, buffer=buffer)


def _flat(layout: Layout, tensors: Mapping[str, np.ndarray], prefix: str, *, partly: bool = False) -> np.ndarray:
    flat = np.zeros(layout.n_total, np.float32)
    for entry in layout.entries:
        if partly and entry.stop > layout.n_policy and prefix + entry.name not in tensors:
            continue
        tensor = tensors[prefix + entry.name]
        if tensor.dtype != np.float32 or tensor.shape != entry.shape:
            raise ValueError(f"{prefix}{entry.name} is {tensor.dtype} {tensor.shape}, not float32 {entry.shape}")
        flat[entry.start : entry.stop] = tensor.ravel()
    return flat


def _published(layout: Layout, statistics: np.ndarray, flat: np.ndarray) -> np.ndarray:
    buffer = np.zeros(layout.published_bytes, np.uint8)
    buffer[:32] = np.frombuffer(layout.sha, np.uint8)
    buffer[HEADER_BYTES : HEADER_BYTES + 8 * layout.n_statistics] = statistics.view(np.uint8)
    buffer[layout.policy_offset :] = flat[: layout.n_policy].view(np.uint8)
    return buffer

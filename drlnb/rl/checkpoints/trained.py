"""Turn a trained state into named tensors and plain data, and back; nothing in it runs code.

A learner hands out two flat buffers: what actors need, and what it needs itself to go on.  On disk both become named
tensors in safetensors files: the parameters in ``model.safetensors``, Adam's moments (and a target network) in
``optimizer.safetensors``, the statistics in ``normaliser.safetensors``.  Reading gives the same buffers, bit for bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from drlnb.records.errors import CheckpointError, LayoutMismatch
from drlnb.records.spec import TaskSpec
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import HEADER_BYTES, Layout, assemble
from drlnb.rl.plain import Facts

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
#: What an algorithm sends to its actors beside statistics and parameters, after the layout's fingerprint.
_HEADER, _RESERVED = "header", slice(32, HEADER_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A task's parameters at one moment, and what its learner needs to go on from there."""

    #: What the learner published; uint8, shape ``(published_bytes,)``.
    published: np.ndarray
    #: The learner's plain data, see :meth:`drlnb.rl.algorithms.protocol.Learner.state`; empty: only acting is possible.
    facts: Facts
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
    envs: Facts | None = None
    #: :meth:`drlnb.rl.algorithms.replay.Replay.state`; None: there is none, or it is filled anew.
    replay: Fragment | None = None


def joined(states: Sequence[Facts]) -> Facts:
    """Return the states of several collectors as one, from which any split of the environments can be restored."""
    envs = {index: env for state in states for index, env in state["envs"].items()}
    return {"round": max(int(state["round"]) for state in states), "envs": envs}


def describe_layout(layout: Layout) -> Facts:
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


def layout_from(spec: TaskSpec, plain: Facts) -> Layout:
    """Rebuild the layout of a network that is a torch module from :func:`describe_layout`, without torch.

    Raises
    ------
    LayoutMismatch
        If the description does not fit the task's spaces.
    """
    shapes = [(str(name), tuple(shape)) for name, shape in plain["entries"]]
    n = int(plain["n_published"])
    made = assemble(spec, shapes[:n], shapes[n:], activation=str(plain["activation"]))
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
    more, whose = (theirs[len(ours) :], "it also holds") if len(theirs) > len(ours) else (ours[len(theirs) :], "lacks")
    if more:
        raise LayoutMismatch(f"{where}: {whose} {more[0]}")
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
        # With a target network there are no statistics: an off-policy learner keeps none.
        n_rows = 3 if state.buffer.size == 12 * layout.n_total + 8 * layout.n_statistics else 4
        flat, *rows = state.buffer[: 4 * n_rows * layout.n_total].view(np.float32).reshape(n_rows, -1)
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
        if partly and entry.stop > layout.n_policy:
            continue
        tensor = tensors[prefix + entry.name]
        if tensor.dtype != np.float32 or tensor.shape != entry.shape:
            raise ValueError(f"{prefix}{entry.name} is {tensor.dtype} {tensor.shape}, not float32 {entry.shape}")
        flat[entry.start : entry.stop] = tensor.ravel()
    return flat

"""Read the tensors of a model, and put others in their place."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from drlnb.fleet.policies.files import save_model
from drlnb.records.errors import ConfigError, nearest
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_actor, make_learner, off_policy
from drlnb.rl.checkpoints.trained import State, Trained
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.same_bits import one_thread
from drlnb.rl.normalise import Moments

if TYPE_CHECKING:
    import torch

    from drlnb.rl.networks.layout import Layout

__all__ = [
    "drawn",
    "republished",
    "save_ring",
    "save_with_ring",
    "tensors_of",
    "with_ring",
    "with_statistics",
    "with_tensors",
    "with_values",
]

#: What the file of a replay ring ends with.
_RING = ".safetensors"


def drawn(spec: RlWork) -> Trained:
    """Return the state that a task's seed gives."""
    import torch

    with one_thread(), torch.enable_grad():  # a network is tried, whoever asks for it first
        learner = make_learner(spec)
    facts, buffer = learner.state()
    return Trained(
        state=State(published=learner.published(), facts=facts, buffer=np.array(buffer)), n_rounds=0, n_timesteps=0
    )


def tensors_of(spec: RlWork, trained: Trained) -> "dict[str, torch.Tensor]":
    """Return copies of all tensors that are trained, by their names."""
    import torch

    layout = make_actor(spec).layout
    flat = torch.from_numpy(np.array(trained.state.buffer[: 4 * layout.n_total])).view(torch.float32)
    return {each.name: flat[each.start : each.stop].view(each.shape) for each in layout.entries}


def with_tensors(spec: RlWork, trained: Trained, given: object, *, exact: bool) -> Trained:
    """Return a state with some tensors changed, or with `exact` all; see :func:`with_values`.

    Raises
    ------
    ConfigError
        If a tensor is unknown, missing or of another shape.
    """
    import torch

    inner = given.get("policy", given) if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping) or not isinstance(inner, Mapping):
        raise ConfigError(f"parameters must be what get_parameters() returns, got {type(given).__name__}")
    if strange := [] if inner is given else sorted(map(str, given.keys() - {"policy"})):
        raise ConfigError(f"parameters hold {strange[0]!r}, which is not set: there is 'policy' alone, no optimiser's")
    layout = make_actor(spec).layout
    wanted = {entry.name for entry in layout.entries}
    if unknown := [str(name) for name in inner if name not in wanted]:
        raise ConfigError(f"parameters hold an unknown tensor {unknown[0]!r}{nearest(unknown[0], wanted)}")
    if missing := [entry.name for entry in layout.entries if exact and entry.name not in inner]:
        raise ConfigError(f"parameters lack the tensor {missing[0]!r}; exact_match=False leaves it as it is")
    values = {str(name): np.asarray(torch.as_tensor(value).detach().cpu(), np.float32) for name, value in inner.items()}
    return replace(trained, state=with_values(layout, spec.algo, trained.state, values))


def with_values(layout: "Layout", algo: str, state: State, values: Mapping[str, np.ndarray]) -> State:
    """Return a state with some tensors changed, a target network's too; the optimiser's stay.

    Raises
    ------
    ConfigError
        If one is of another shape.
    """
    buffer, published = np.array(state.buffer), np.array(state.published)
    n_rows = 4 if off_policy(algo) else 1  # two rows of moments between the parameters and the target network's
    rows = buffer[: 4 * n_rows * layout.n_total].view(np.float32).reshape(n_rows, -1)
    for name, array in values.items():
        entry = layout[name]
        if array.shape != entry.shape:
            raise ConfigError(f"parameter {name} must have the shape {entry.shape}, got {array.shape}")
        rows[:: max(n_rows - 1, 1), entry.start : entry.stop] = array.ravel()
    published[layout.policy_offset :] = rows[0, : layout.n_policy].view(np.uint8)
    return replace(state, buffer=buffer, published=published)


def with_statistics(spec: RlWork, trained: Trained, theirs: object) -> Trained:
    """Return a state that goes on from the statistics of a ``VecNormalize`` of Stable-Baselines3's.

    Parameters
    ----------
    spec, trained
        The task, and where it stands.
    theirs
        It has ``obs_rms`` and ``ret_rms``, each with ``mean``, ``var`` and ``count``.

    Raises
    ------
    ConfigError
        If it has none, or the task does not normalise, or observations of another shape.
    """
    observed, returned = getattr(theirs, "obs_rms", None), getattr(theirs, "ret_rms", None)
    if not hasattr(observed, "mean") or not hasattr(returned, "mean"):
        raise ConfigError(f"statistics must be a VecNormalize, with obs_rms and ret_rms of arrays, got {theirs!r}")
    with one_thread():
        learner = make_learner(spec)
        learner.restore(trained.state.facts, trained.state.buffer)
        kept, moments = learner.kept, [_moments(each) for each in (observed, returned)]
        wanted = kept.obs_moments.mean.shape
        if moments[0].mean.shape != wanted:
            n = moments[0].mean.size
            raise ConfigError(f"statistics are of {n} numbers, this model normalises {wanted[0]} of its observations")
        kept.obs_moments, kept.return_moments = moments
        facts, buffer = learner.state()
        state = replace(trained.state, published=learner.published(), facts=facts, buffer=np.array(buffer))
        return replace(trained, state=state)


def _moments(rms: Any) -> Moments:
    """Return running statistics as ours: count, mean and sum of squared deviations of each number."""
    mean, var = (np.asarray(value, np.float64).ravel() for value in (rms.mean, rms.var))
    return Moments(float(rms.count), mean, var * float(rms.count))


def save_ring(path: str | Path, trained: Trained | None) -> Path:
    """Write a replay ring as one file of safetensors; nothing in it is a pickle.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if trained is None or trained.replay is None:
        raise ConfigError("this model has no replay ring yet: a DQN has one once it has learnt")
    target = Path(path) if Path(path).suffix else Path(path).with_suffix(_RING)
    target.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(array) for name, array in trained.replay.arrays.items()}
    save_file(arrays, target, metadata={"header": json.dumps(trained.replay.header)})
    return target


def save_with_ring(path: str | Path, spec: RlWork, trained: Trained, ring: Path | None) -> None:
    """Write a model, and its replay ring into a file of its own if one is named and the model has a ring."""
    save_model(path, spec, trained)
    if ring is not None and trained.replay is not None:
        save_ring(ring, trained)


def with_ring(path: str | Path, trained: Trained) -> Trained:
    """Return a state with the replay ring that :func:`save_ring` wrote.

    Raises
    ------
    ConfigError
        If the file is none.
    """
    target = Path(path) if Path(path).suffix else Path(path).with_suffix(_RING)
    try:
        with safe_open(target, framework="numpy") as file:
            header = json.loads(file.metadata()["header"])
            ring = Fragment(header, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ConfigError(f"{target} holds no replay ring ({error})") from None
    return replace(trained, replay=ring)


def republished(spec: RlWork, trained: Trained) -> Trained:
    """Return the state with what its learner publishes under this budget: GPF's temperatures follow it."""
    with one_thread():
        learner = make_learner(spec)
        learner.restore(trained.state.facts, trained.state.buffer)
        return replace(trained, state=replace(trained.state, published=learner.published()))

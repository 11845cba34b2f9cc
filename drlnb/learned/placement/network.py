"""Evaluate the networks of the learned planners in numpy, from weights in files."""

import math
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from drlnb.learned.placement.features import N_JOB, N_SLOT, Array
from drlnb.records.errors import ConfigError

__all__ = ["VERSION", "Network", "Policy", "Scorer", "Weights", "load", "log_softmax", "save", "shipped"]

#: Name of a weight, by torch's names -> array.
Weights = Mapping[str, npt.NDArray[np.floating]]
#: Of the files of weights: another one has other inputs, or other layers.
VERSION = 1
#: Layers of the patent's policy network, by torch's names.
_LAYERS = ("0", "2", "4", "6", "8")


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities along the last axis; what has a logit of minus infinity has none."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normalised: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


class Scorer:
    """Scores rows that compete: two layers, between which each row meets the mean and the largest of its group.

    Parameters
    ----------
    weights
        ``own``, ``hidden`` and ``pooled`` with 64 outputs, and ``out`` with one, by torch's names.
    part
        What their names begin with.
    """

    def __init__(self, weights: Weights, part: str) -> None:
        names = ("own.weight", "own.bias", "hidden.weight", "hidden.bias", "pooled.weight", "out.weight")
        self._own, self._own_bias, self._hidden, self._hidden_bias, self._pooled, self._out = (
            np.asarray(weights[f"{part}.{name}"], dtype=float).T for name in names
        )

    def logits(self, groups: Sequence[Array]) -> Array:
        """Return the score of each row of several groups, in one pass.

        Parameters
        ----------
        groups
            Rows of each group, shape ``(n_rows, n_features)``, one row at least.

        Returns
        -------
        Array
            Shape ``(n_groups, most rows)``; minus infinity where a group has no such row.
        """
        counts = np.array([len(rows) for rows in groups])
        starts, group = np.concatenate([[0], np.cumsum(counts)[:-1]]), np.repeat(np.arange(len(counts)), counts)
        own = np.maximum(np.concatenate(groups) @ self._own + self._own_bias, 0.0)
        means = np.add.reduceat(own, starts) / counts[:, None]
        pooled = np.hstack([means, np.maximum.reduceat(own, starts)]) @ self._pooled
        hidden = np.maximum(own @ self._hidden + self._hidden_bias + pooled[group], 0.0)
        padded = np.full((len(counts), counts.max()), -math.inf)
        padded[group, np.arange(len(group)) - starts[group]] = (hidden @ self._out)[:, 0]
        return padded


class Network:
    """The network of planner `learned`: a scorer of jobs, and one of slots."""

    name = "learned"
    #: Part -> figures of a row.
    parts: Mapping[str, int] = {"jobs": N_JOB, "slots": N_SLOT}

    def __init__(self, weights: Weights) -> None:
        self._scorers = {part: Scorer(weights, part) for part in self.parts}

    def logits(self, part: str, groups: Sequence[Array]) -> Array:
        """Return the scores of rows; see :meth:`Scorer.logits`."""
        return self._scorers[part].logits(groups)


class Policy:
    """The policy network of planner `patent`: what is wanted and who is free -> a score of each slot.

    Parameters
    ----------
    weights
        ``LAYER.weight`` and ``LAYER.bias`` of its five layers, by torch's names; ``slots``: names of the slots that it
        was trained for, if they have any.
    """

    name = "patent"

    def __init__(self, weights: Weights) -> None:
        named = [(weights[f"{layer}.weight"], weights[f"{layer}.bias"]) for layer in _LAYERS]
        self._layers = [(weight.T, bias) for weight, bias in named]
        self.n_slots = self._layers[-1][1].shape[0]
        self.slots = tuple(map(str, weights["slots"])) if "slots" in weights else ()
        if self.slots and len(self.slots) != self.n_slots:
            raise ValueError(f"it names {len(self.slots)} slots, its layers are of {self.n_slots}")
        self.parts = {"patent": self.n_slots + 2}

    @property
    def weights(self) -> Weights:
        """The arrays of its layers, by torch's names."""
        named = zip(_LAYERS, self._layers, strict=True)
        return {f"{layer}.{what}": each for layer, (w, b) in named for what, each in (("weight", w.T), ("bias", b))}

    def logits(self, part: str, groups: Sequence[Array]) -> Array:
        """Return the score of each slot in some states; minus infinity where it is taken.

        Parameters
        ----------
        part
            Is not looked at: there is one.
        groups
            States, each of shape ``(1, n_slots + 2)``.

        Returns
        -------
        Array
            Shape ``(n_states, n_slots)``.
        """
        states = np.concatenate(groups)
        hidden = states
        for weight, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0.0)
        weight, bias = self._layers[-1]
        masked: Array = np.where(states[:, 2:] > 0.0, -math.inf, hidden @ weight + bias)
        return masked


AnyNetwork = TypeVar("AnyNetwork", Network, Policy)


def save(file: str | Path, name: str, weights: Weights, slots: Sequence[str] = ()) -> None:
    """Write weights of a planner of this name to a file, with half of their bits, and the slots that they are for."""
    arrays = {key: value.astype(np.float16) for key, value in weights.items()}
    more = {"slots": np.array(slots)} if slots else {}
    with Path(file).open("wb") as opened:
        np.savez_compressed(opened, planner=np.array(name), version=np.array(VERSION), **arrays, **more)  # type: ignore[arg-type]  # no array is called allow_pickle


def load(file: str | Path, kind: type[AnyNetwork]) -> AnyNetwork:
    """Read a network from a file.

    Raises
    ------
    ConfigError
        If there is none, it holds no weights, those of another network or version, or pickled objects.
    """
    try:
        with Path(file).open("rb") as opened, np.load(opened, allow_pickle=False) as loaded:
            return _network(loaded, kind)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, EOFError, TypeError, AttributeError, KeyError, zipfile.BadZipFile) as error:
        reason = (
            "it holds no arrays, or pickled objects, which are not read"
            if "pickle" in str(error)
            else " ".join(str(error).split())
        )
        raise ConfigError(
            f"{file} must hold weights for planner {kind.name}, of drlnb.placement.train: {reason}"
        ) from None


def _network(loaded: Weights, kind: type[AnyNetwork]) -> AnyNetwork:
    """Return the network of a file's arrays; it has been asked once, so their shapes fit together."""
    name, version = str(loaded["planner"]), int(loaded["version"])
    if name != kind.name:
        raise ValueError(f"it is of planner {name}")
    if version != VERSION:
        raise ValueError(f"it has version {version}, this is version {VERSION}")
    network = kind(loaded)
    for part, n in network.parts.items():
        if not np.isfinite(network.logits(part, [np.zeros((1, n))])).all():
            raise ValueError("some weights are not finite")
    return network


@cache
def shipped() -> Network:
    """Return the network of planner `learned` that is part of the package; it is read once."""
    with resources.as_file(resources.files("drlnb.learned.placement") / "weights/learned.npz") as file:
        return load(file, Network)

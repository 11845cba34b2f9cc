"""Evaluate the network of the learned batching planners in numpy, from weights that travel with the package."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

__all__ = ["ACTIONS", "Array", "Network", "shipped"]

#: Floats of the learned planners.
Array = npt.NDArray[np.float64]

#: What the network chooses from: the factor by which a member's next speed differs from its long-run one.
ACTIONS = (0.3, 0.45, 0.7, 1.0, 1.25)
#: Layers of the network, by torch's names.
_LAYERS = ("0", "2", "4")


class Network:
    """Three layers with rectified sums between them, shared by all members.

    Parameters
    ----------
    weights
        ``LAYER.weight``, shape ``(n_out, n_in)``, and ``LAYER.bias``, shape ``(n_out,)``, by torch's names.
    """

    def __init__(self, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
        self._layers = [
            (weights[f"{layer}.weight"].T.astype(float), weights[f"{layer}.bias"].astype(float)) for layer in _LAYERS
        ]

    def values(self, seen: Array) -> Array:
        """Return the value of each action for each member.

        Parameters
        ----------
        seen
            Shape ``(n_members, n_features)``.

        Returns
        -------
        Array
            Shape ``(n_members, len(ACTIONS))``.
        """
        (first, first_bias), (second, second_bias), (last, last_bias) = self._layers
        hidden = np.maximum(seen @ first + first_bias, 0.0)
        hidden = np.maximum(hidden @ second + second_bias, 0.0)
        values: Array = hidden @ last + last_bias
        return values

    def performance(self, seen: Array) -> Array:
        """Return the factor of the best action for each member, shape ``(n_members,)``."""
        best: Array = np.array(ACTIONS)[self.values(seen).argmax(axis=1)]
        return best


@cache
def shipped(name: str) -> Network:
    """Return a network of the package, such as ``ddqn``; it is read once."""
    with resources.files("drlnb.learned.batching").joinpath(f"weights/{name}.npz").open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        return Network({key: loaded[key] for key in loaded.files if "." in key})

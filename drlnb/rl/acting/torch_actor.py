"""Act by a torch module: it runs in the collector, which loads torch for it, and only then."""

from collections.abc import Mapping

import numpy as np
import torch

from drlnb.records.spec import RlWork
from drlnb.rl.networks.layout import Layout
from drlnb.rl.networks.modules import build, module_layout, tensors_of
from drlnb.rl.networks.same_bits import one_thread

__all__ = ["TorchNetwork"]


class TorchNetwork:
    """A task's module as an actor's network: the torch twin of :class:`drlnb.rl.acting.actors.NumpyMlp`.

    It is built by :func:`drlnb.rl.networks.modules.build`, which says what may be wrong with it.
    """

    def __init__(self, spec: RlWork) -> None:
        self._module = build(spec).requires_grad_(False)
        self.layout: Layout = module_layout(spec, self._module)
        self._tensors = tensors_of(self._module)

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Load published tensors, float32 by name."""
        for name, tensor in tensors.items():
            self._tensors[name].numpy()[...] = tensor  # torch warns of arrays that it may only read

    def forward(self, obs: np.ndarray) -> np.ndarray:
        """Return outputs, float32, shape ``(B, width)``, of observations ``(B, *obs)``."""
        with one_thread(), torch.inference_mode():
            outputs: np.ndarray = self._module.actor(torch.from_numpy(obs)).numpy()
        return outputs

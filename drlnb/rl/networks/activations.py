"""Name the activations of MLP towers: the same names in numpy, for actors, and in torch, for learners.

``tanh`` and ``relu`` have gradients by hand (:mod:`drlnb.rl.objectives.mlp_gradient`); the others go through autograd.
"""

from collections.abc import Callable
from math import erf, sqrt

import numpy as np

__all__ = ["BY_HAND", "NUMPY", "named"]

#: Activations whose gradients are written out.
BY_HAND = ("tanh", "relu")

#: Constants of SELU (Klambauer et al. 2017, arXiv 1706.02515).
_SELU, _SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)

_erf = np.frompyfunc(erf, 1, 1)


def named(value: object) -> str:
    """Return our name of an activation: ``ReLU``, ``nn.ReLU``, ``torch.nn.ReLU`` and the class itself are ``relu``.

    Examples
    --------
    >>> named("nn.LeakyReLU"), named("SiLU"), named("tanh")
    ('leaky_relu', 'silu', 'tanh')
    """
    text = value if isinstance(value, str) else getattr(value, "__name__", repr(value))
    word = str(text).rpartition(".")[2].lower()
    return {"leakyrelu": "leaky_relu", "swish": "silu"}.get(word, word)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(np.float32(0.5) * x))


#: Name, as in ``torch.nn.functional`` -> the activation for float32 arrays, which may overwrite its input.  Torch's
#: defaults: elu alpha 1, leaky_relu slope 0.01, exact gelu.
NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "leaky_relu": lambda x: np.where(x > 0.0, x, np.float32(0.01) * x),
    "gelu": lambda x: x * 0.5 * (1.0 + np.asarray(_erf(x / sqrt(2.0)), np.float32)),
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.logaddexp(np.float32(0.0), x),
    "mish": lambda x: x * np.tanh(np.logaddexp(np.float32(0.0), x)),
    "selu": lambda x: _SELU * np.where(x > 0.0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
    "relu6": lambda x: np.clip(x, 0.0, 6.0, out=x),
}

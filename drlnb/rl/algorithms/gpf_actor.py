"""Act as a member of GPF's family: softmax of advantages at the member's temperatures, in numpy.

The network's outputs are advantages A(s, .).  Member (eps, tau1, tau2) acts by
``eps softmax(A / tau1) + (1 - eps) softmax(A / tau2)``; environment i is played by member ``i mod M``.
"""

from dataclasses import replace

import numpy as np

from drlnb.records.spec import RlWork
from drlnb.rl.acting.actors import Actor
from drlnb.rl.heads import log_softmax
from drlnb.rl.settings.gpf import GpfSettings, ends

__all__ = ["GpfActor", "log_strategy", "pack_family", "unpack_family"]

#: Bytes of the published header that the family takes: remaining progress, one float64; then start and end of eps,
#: tau1 and tau2, six float32.  They may change while training, and an actor must not guess.
_PROGRESS, _PATHS = slice(32, 40), slice(40, 64)


def log_strategy(advantages: np.ndarray, strategy: np.ndarray) -> np.ndarray:
    """Return log-probabilities of all actions; the numpy twin of :func:`drlnb.rl.objectives.gpf_losses.log_strategy`.

    Parameters
    ----------
    advantages
        A(s, .); shape ``(..., R, A)``.
    strategy
        ``eps, tau1, tau2`` per row; shape ``(R, 3)``.

    Returns
    -------
    ndarray
        Shape ``(..., R, A)``, the dtype of `advantages`.

    Examples
    --------
    >>> log_strategy(np.log([[1.0, 3.0]]), np.array([[0.5, 1.0, 0.5]])).round(4).tolist()
    [[-1.743, -0.1924]]
    """
    eps, tau1, tau2 = (strategy[:, i, None].astype(advantages.dtype) for i in range(3))
    sharp = log_softmax(advantages / tau1)
    if (eps == 1.0).all():
        return sharp
    with np.errstate(divide="ignore"):  # log 0 = -inf is meant: a part without weight
        mixed: np.ndarray = np.logaddexp(np.log(eps) + sharp, np.log1p(-eps) + log_softmax(advantages / tau2))
    return mixed


class GpfActor(Actor):
    """GPF's policy of one task, in numpy; see :class:`drlnb.rl.acting.actors.Actor`.

    In a collector, row i of a forward pass is environment i and is played by member ``i mod M``; elsewhere the first
    member plays, and without noise it takes the largest A.  Temperatures are those of the published version: the
    learner knows them exactly, whoever acted and however late the fragment comes.
    """

    def __init__(self, spec: RlWork) -> None:
        super().__init__(spec)
        self._settings = GpfSettings.from_mapping(spec.hyperparameters)
        self._members = np.arange(spec.n_envs, dtype=np.int32) % self._settings.n_members
        self._play(self._settings.strategies(1.0))

    def _play(self, family: np.ndarray) -> None:
        self._target, self._strategy = family[:1], family[self._members]

    def load(self, parameters: np.ndarray) -> None:
        """Load a published buffer; see :meth:`drlnb.rl.acting.actors.Actor.load`."""
        super().load(parameters)
        self._play(unpack_family(parameters, self._settings))

    def choose(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return a collector's actions for advantages and Gumbel noise ``(R, A)``: row i is environment i."""
        return _perturbed(outputs, self._strategy, noise)

    def log_prob(self, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return log-probabilities, float32, ``(..., R)``, of a collector's actions for advantages ``(..., R, A)``."""
        log_p: np.ndarray = np.take_along_axis(log_strategy(outputs, self._strategy), actions[..., None], axis=-1)
        return log_p[..., 0]

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the first member's actions for advantages and Gumbel noise ``(B, A)``; noise 0: the largest A."""
        return _perturbed(outputs, self._target, noise)

    def extras(self, rows: slice | list[int]) -> dict[str, np.ndarray]:
        """Return who acted: ``member`` ``(n,)`` int32 and its ``strategy`` ``(n, 3)`` float32, eps, tau1, tau2."""
        return {"member": self._members[rows], "strategy": self._strategy[rows]}


def _perturbed(advantages: np.ndarray, strategy: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Sample by the Gumbel trick: the place of the largest of log pi + noise is distributed as pi."""
    one_softmax = (strategy[:, 0] == 1.0).all()  # its logarithm is A / tau1, shifted
    scores = advantages / strategy[:, 1:2] if one_softmax else log_strategy(advantages, strategy)
    return (scores + noise).argmax(axis=-1)


def pack_family(buffer: np.ndarray, settings: GpfSettings, progress_remaining: float) -> None:
    """Write progress and the paths of eps, tau1 and tau2 into the header of a published buffer."""
    paths = [ends(path) for path in (settings.eps, settings.tau1, settings.tau2)]
    buffer[_PROGRESS] = np.array([progress_remaining]).view(np.uint8)
    buffer[_PATHS] = np.array(paths, np.float32).ravel().view(np.uint8)


def unpack_family(buffer: np.ndarray, settings: GpfSettings) -> np.ndarray:
    """Return ``eps, tau1, tau2`` of each member as a published buffer has them; float32, shape ``(M, 3)``."""
    progress = np.array(buffer[_PROGRESS]).view(np.float64).item()
    eps, tau1, tau2 = np.array(buffer[_PATHS]).view(np.float32).reshape(3, 2).tolist()
    return replace(settings, eps=eps, tau1=tau1, tau2=tau2).strategies(progress)

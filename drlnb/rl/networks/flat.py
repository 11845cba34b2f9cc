"""Step many small tensors as one: parameters, gradient and moments are one flat tensor each.

Twelve tensors cost Adam eight times the call of one; the gradient's norm is one reduction; publishing is one copy.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from drlnb.rl.networks.layout import Layout

__all__ = ["ADAM_EPS", "FlatAdam"]

#: Stable-Baselines3's value for PPO (torch's default is 1e-8); it decides returns.
ADAM_EPS = 1e-5
#: Added to the norm before dividing, as ``torch.nn.utils.clip_grad_norm_`` does.
_NORM_EPS = 1e-6
#: Adam's decay rates, torch's and Stable-Baselines3's.
_BETAS = (0.9, 0.999)

# The kernel behind torch.optim.Adam(fused=True).  The class itself costs 1.1 s when it is first used (it loads torch's
# compiler) and 20 us per step; a test holds both equal.
_fused_adam = torch.ops.aten._fused_adam_.default


class FlatAdam:
    """One flat parameter tensor with its gradient and fused Adam.

    Parameters
    ----------
    flat
        Starting values, float32, shape ``(n,)``; owned from now on.
    eps
        Added to the root of the second moment.
    betas
        Decay rates of the moments.
    weight_decay
        Weight of the parameters that is added to the gradient, as ``torch.optim.Adam`` does.
    """

    def __init__(
        self, flat: Tensor, eps: float = ADAM_EPS, betas: Sequence[float] = _BETAS, weight_decay: float = 0.0
    ) -> None:
        self._eps, self._betas, self._weight_decay = eps, betas, weight_decay
        #: Parameters; shape ``(n,)``.
        self.flat = flat
        #: Gradient; shape ``(n,)``.
        self.grad = torch.zeros_like(flat)
        #: Step size of the next step.
        self.learning_rate = 0.0
        self._exp_avg = torch.zeros_like(flat)
        self._exp_avg_sq = torch.zeros_like(flat)
        self._step = torch.zeros((), dtype=torch.float32, device=flat.device)

    def leaves(self, views: Callable[[Tensor, Layout], dict[str, Tensor]], layout: Layout) -> dict[str, Tensor]:
        """Return each entry as a leaf whose storage and gradient are views of the flat ones."""
        leaves = views(self.flat.detach(), layout)
        for name, grad in views(self.grad, layout).items():
            leaves[name] = leaves[name].detach().requires_grad_()
            leaves[name].grad = grad
        return leaves

    def zero_grad(self) -> None:
        """Set the gradient to 0; it stays the same memory."""
        self.grad.zero_()

    def step(self, max_norm: float, *, norm_out: Tensor) -> None:
        """Clip the gradient's norm and take one step; the norm before clipping goes to `norm_out`."""
        norm = torch.linalg.vector_norm(self.grad)
        self.grad.mul_((max_norm / (norm + _NORM_EPS)).clamp(max=1.0))
        norm_out.copy_(norm)
        self._step += 1.0
        _fused_adam(
            [self.flat],
            [self.grad],
            [self._exp_avg],
            [self._exp_avg_sq],
            [],
            [self._step],
            lr=self.learning_rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=self._weight_decay,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )

    def copy_state(self) -> tuple[Tensor, float]:
        """Return parameters and both moments, shape ``(3, n)``, and the step count."""
        return torch.stack((self.flat, self._exp_avg, self._exp_avg_sq)), self._step.item()

    def load_state(self, state: tuple[Tensor, float]) -> None:
        """Put back what :meth:`copy_state` returned."""
        for target, value in zip((self.flat, self._exp_avg, self._exp_avg_sq), state[0], strict=True):
            target.copy_(value)
        self._step.fill_(state[1])

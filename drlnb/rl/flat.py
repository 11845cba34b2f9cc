"""How are many small tensors stepped as one?  Parameters, gradient and moments are one flat tensor each.

Twelve tensors cost Adam eight times the call of one; the gradient's norm is one reduction; publishing is one copy.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from drlnb.rl.layout import Layout

__all__ = ["ADAM_EPS", "FlatAdam"]

#: Stable-Baselines3's value for PPO (torch's default is 1e-8); it decides returns.
ADAM_EPS = 1e-5
#: Added to the norm before dividing, as ``torch.nn.utils.clip_grad_norm_`` does.
_NORM_EPS = 1e-6


class FlatAdam:
    """One flat parameter tensor with its gradient and fused Adam.

    Parameters
    ----------
    flat
        Starting values, float32, shape ``(n,)``; owned from now on.
    """

    def __init__(self, flat: Tensor) -> None:
        #: Parameters; shape ``(n,)``.
        self.flat = flat
        #: Gradient; shape ``(n,)``.
        self.grad = torch.zeros_like(flat)
        flat.grad = self.grad
        self._optimizer = torch.optim.Adam([flat], lr=0.0, eps=ADAM_EPS, fused=True)
        # Made here, not at the first step, so that a state can be taken and put back at any time.
        self._state = {
            "step": torch.zeros((), dtype=torch.float32, device=flat.device),
            "exp_avg": torch.zeros_like(flat),
            "exp_avg_sq": torch.zeros_like(flat),
        }
        self._optimizer.state[flat] = self._state

    @property
    def learning_rate(self) -> float:
        """Step size of the next step."""
        return float(self._optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._optimizer.param_groups[0]["lr"] = value

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
        self._optimizer.step()

    def copy_state(self) -> tuple[Tensor, float]:
        """Return parameters and both moments, shape ``(3, n)``, and the step count."""
        moments = self._state["exp_avg"], self._state["exp_avg_sq"]
        return torch.stack((self.flat, *moments)), self._state["step"].item()

    def load_state(self, state: tuple[Tensor, float]) -> None:
        """Put back what :meth:`copy_state` returned."""
        for target, value in zip((self.flat, self._state["exp_avg"], self._state["exp_avg_sq"]), state[0], strict=True):
            target.copy_(value)
        self._state["step"].fill_(state[1])

"""Keep what a learner carries between rounds: parameters, Adam's moments, the normaliser's statistics, three counters.

Everything that a checkpoint holds and that actors are sent is here, so an algorithm's own file is only about its loss.
Parameters, gradient and moments are one flat tensor each: twelve tensors cost Adam eight times the call of one; the
gradient's norm is one reduction; publishing is one copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from drlnb.rl.networks.layout import Layout
from drlnb.rl.normalise import Moments, scale
from drlnb.rl.plain import Facts

__all__ = ["ADAM_EPS", "FlatAdam", "Kept", "views"]


#: Stable-Baselines3's value for PPO (torch's default is 1e-8); it decides returns.
ADAM_EPS = 1e-5
#: Added to the norm before dividing, as ``torch.nn.utils.clip_grad_norm_`` does.
_NORM_EPS = 1e-6
#: Adam's decay rates, torch's and Stable-Baselines3's.
_BETAS = (0.9, 0.999)

# The kernel behind torch.optim.Adam(fused=True).  The class itself costs 1.1 s when it is first used (it loads torch's
# compiler) and 20 us per step; a test holds both equal.
_fused_adam = torch.ops.aten._fused_adam_.default


def views(flat: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return each entry as a view of the flat tensor."""
    return {entry.name: flat[entry.start : entry.stop].view(entry.shape) for entry in layout.entries}


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

    def leaves(self, layout: Layout) -> dict[str, Tensor]:
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
        """Put back what :meth:`copy_state` returned; the gradient becomes 0."""
        self.zero_grad()  # also between the entries, where nothing writes: what a NaN left there would stay
        for target, value in zip((self.flat, self._exp_avg, self._exp_avg_sq), state[0], strict=True):
            target.copy_(value)
        self._step.fill_(state[1])


class Kept:
    """One task's trained state.

    Parameters
    ----------
    layout
        Of the flat parameters.
    start
        Starting values, float32, shape ``(n_total,)``.
    device
        A torch device.
    optimizer
        Adam's ``eps``, ``betas`` and ``weight_decay``, where they differ from Stable-Baselines3's.
    target
        Keep a target network, too; such a learner keeps no statistics.
    """

    def __init__(
        self,
        layout: Layout,
        start: np.ndarray,
        device: torch.device,
        optimizer: Facts | None = None,
        *,
        target: bool = False,
    ) -> None:
        self.layout, self.device = layout, device
        self.adam = FlatAdam(torch.from_numpy(start).to(device), **(optimizer or {}))
        #: Parameters of the target network, flat like the trained ones; None: there is none.
        self.target: Tensor | None = self.adam.flat.clone() if target else None
        #: Statistics of the observations and of the discounted returns.
        self.obs_moments, self.return_moments = Moments.start(layout.obs_width), Moments.start(1)
        self.round = self.n_timesteps = self.n_updates = 0

    def rewards(self, raw: np.ndarray) -> np.ndarray:
        """Return rewards, scaled by the statistics if the task's are normalised."""
        return scale(raw, self.return_moments.var.item()) if self.layout.norm_reward else raw

    def merge(self, column: Mapping[str, Tensor]) -> None:
        """Merge one environment's ``obs_moments`` and ``return_moments``, where it has them: count, means, M2."""
        if "obs_moments" in column:
            self.obs_moments = self.obs_moments.merge(Moments.from_row(column["obs_moments"].cpu().numpy()))
        if "return_moments" in column:
            self.return_moments = self.return_moments.merge(Moments.from_row(column["return_moments"].cpu().numpy()))

    def _statistics(self) -> np.ndarray:
        obs, returns = self.obs_moments, self.return_moments
        head = [obs.n, returns.n, returns.mean.item(), returns.m2.item()]
        return np.concatenate((head, obs.mean, obs.m2)) if self.layout.norm_obs else np.array(head)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Put parameters, moments and target back if the body raises anything.

        A revoked lease or Ctrl-C, too: the round must be repeatable from where it began.
        """
        saved, target = self.adam.copy_state(), None if self.target is None else self.target.clone()
        try:
            yield
        except BaseException:
            self.adam.load_state(saved)
            if self.target is not None and target is not None:
                self.target.copy_(target)
            raise

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.algorithms.learner.Learner.published`."""
        statistics = None if self.target is not None else self._statistics()
        return self.layout.published(statistics, self.adam.flat[: self.layout.n_policy].cpu().numpy())

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.learner.Learner.state`."""
        tensors, adam_step = self.adam.copy_state()
        meta = {
            "layout": self.layout.sha.hex(),
            "round": self.round,
            "n_timesteps": self.n_timesteps,
            "n_updates": self.n_updates,
            "adam_step": adam_step,
        }
        if self.target is not None:
            return meta, torch.cat((tensors, self.target[None])).cpu().numpy().ravel().view(np.uint8)
        return meta, np.concatenate([tensors.cpu().numpy().ravel().view(np.uint8), self._statistics().view(np.uint8)])

    def restore(self, meta: Facts, buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        ValueError
            If the state was made for another layout or has another size.
        """
        layout = self.layout
        if meta["layout"] != layout.sha.hex():
            raise ValueError(f"state has layout {meta['layout'][:12]}, this task needs {layout.sha.hex()[:12]}")
        n_rows = 3 if self.target is None else 4
        split = 4 * n_rows * layout.n_total
        size = split + (8 * layout.n_statistics if self.target is None else 0)
        if buffer.shape != (size,):
            raise ValueError(f"state must hold {size} bytes, got shape {buffer.shape}")
        raw = np.array(buffer)
        tensors = torch.from_numpy(raw[:split].view(np.float32).reshape(n_rows, -1)).to(self.device)
        self.adam.load_state((tensors[:3], float(meta["adam_step"])))
        self.round, self.n_timesteps, self.n_updates = (
            int(meta[name]) for name in ("round", "n_timesteps", "n_updates")
        )
        if self.target is not None:
            self.target.copy_(tensors[3])
            return
        statistics = np.array(raw[split:]).view(np.float64)
        self.return_moments = Moments(statistics[1].item(), statistics[2:3].copy(), statistics[3:4].copy())
        if layout.norm_obs:
            width = layout.obs_width
            self.obs_moments = Moments(statistics[0].item(), statistics[4 : 4 + width], statistics[4 + width :])

"""Keep what a learner carries between rounds: parameters, optimiser, the normaliser's statistics, three counters.

Everything that a checkpoint holds and that actors are sent is here, so an algorithm's own file is only about its loss.
Parameters, gradient and the optimiser's moments are one flat tensor each: twelve tensors cost Adam eight times the call
of one; the gradient's norm is one reduction; publishing is one copy.  Every optimiser with a name here works number by
number, so a step on the flat tensor is its step on each tensor, and has two rows of state at most; one of the user's
own steps each tensor (:mod:`.own_optimizer`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from drlnb.records.base import Facts
from drlnb.rl.networks.layout import Entry, Layout
from drlnb.rl.networks.own_optimizer import Make, OwnOptimizer
from drlnb.rl.normalise import Moments, split_statistics, statistics_of

__all__ = ["ADAM_EPS", "FlatAdam", "Kept", "views"]


#: Stable-Baselines3's value for PPO where no arguments of the optimiser are given; it decides returns.
ADAM_EPS = 1e-5
#: torch's default, which Stable-Baselines3 leaves for DQN and beside other arguments.
_TORCH_EPS = 1e-8
#: Added to the norm before dividing, as ``torch.nn.utils.clip_grad_norm_`` does.
_NORM_EPS = 1e-6
#: Adam's decay rates, torch's and Stable-Baselines3's.
_BETAS = (0.9, 0.999)

# The kernels behind torch.optim's Adam(fused=True) and AdamW's.  The classes themselves cost 1.1 s when they are first
# used (they load torch's compiler) and 20 us per step; a test holds both equal.
_FUSED = {"Adam": torch.ops.aten._fused_adam_.default, "AdamW": torch.ops.aten._fused_adamw_.default}
#: Weight decay that torch's AdamW has by default.
_ADAMW_DECAY = 0.01
#: Other optimiser -> torch's names of what its two rows hold.
_STATE = {"SGD": ("momentum_buffer",), "RMSprop": ("momentum_buffer", "square_avg"), "Adagrad": ("sum",)}


def views(flat: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return each entry as a view of the flat tensor."""
    return dict(zip((entry.name for entry in layout.entries), _places(flat, layout.entries), strict=True))


def _places(flat: Tensor, entries: Sequence[Entry]) -> Iterator[Tensor]:
    return (flat[entry.start : entry.stop].view(entry.shape) for entry in entries)


class FlatAdam:
    """One flat parameter tensor with its gradient and its optimiser: fused Adam, unless another one is asked for.

    Parameters
    ----------
    start
        Starting values, float32, shape ``(n,)``; they are copied.
    arguments
        The optimiser's, as its class in ``torch.optim`` takes them; None: its defaults, Adam's with
        Stable-Baselines3's `eps`.
    kind
        Name of the class, one of :data:`drlnb.rl.settings.checks.OPTIMIZERS`.
    make, entries
        Makes the optimiser instead, which steps each of these tensors; None: nothing does.
    target
        A target network's parameters are kept beside the trained ones.
    n_trained
        How many of the numbers it steps; what is behind them are buffers; None: all.
    """

    def __init__(
        self,
        start: Tensor,
        arguments: Facts | None = None,
        *,
        kind: str = "Adam",
        target: bool = False,
        n_trained: int | None = None,
        make: Make | None = None,
        entries: Sequence[Entry] = (),
    ) -> None:
        own = ({"eps": ADAM_EPS} if kind == "Adam" else {}) if arguments is None else arguments
        self._rows = torch.zeros((4 if target else 3, len(start)), device=start.device)
        self._rows[0] = self._rows[3:] = start
        #: Parameters; shape ``(n,)``.
        self.flat = self._rows[0]
        #: Gradient; shape ``(n,)``.
        self.grad = torch.zeros_like(self.flat)
        #: What is stepped: parameters, gradient, and two moments.
        self._stepped = tuple(row[:n_trained] for row in (self.flat, self.grad, self._rows[1], self._rows[2]))
        #: Parameters of the target network; shape ``(n,)``; None: there is none.
        self.target = self._rows[3] if target else None
        #: Step size of the next step.
        self.learning_rate = 0.0
        self._own: OwnOptimizer | None = None
        self._fused = None if make else _FUSED.get(kind)
        self._step = torch.zeros((), dtype=torch.float32, device=start.device if self._fused else "cpu")
        if self._fused:
            decay = _ADAMW_DECAY if kind == "AdamW" else 0.0
            given = {"eps": _TORCH_EPS, "betas": _BETAS, "weight_decay": decay, **own}
            beta1, beta2 = given.pop("betas")
            self._constants = {**given, "beta1": beta1, "beta2": beta2, "amsgrad": False, "maximize": False}
            return
        if make:
            places = (_places(of, entries) for of in (self.flat, self.grad))
            self._own = OwnOptimizer(make, zip(*places, strict=True))
            return
        stepped, stepped.grad, *moments = self._stepped
        self._torch: torch.optim.Optimizer = getattr(torch.optim, kind)([stepped], lr=1.0, foreach=False, **own)
        state = dict(zip(_STATE[kind], moments, strict=False))  # it lies in the rows
        self._torch.state[stepped] = {"step": self._step, **state}

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
        if self._own is not None:
            self._own.step(self.learning_rate)
            return
        if self._fused is None:
            self._torch.param_groups[0]["lr"] = self.learning_rate
            self._torch.step()
            return
        self._step += 1.0
        lists = ([tensor] for tensor in self._stepped)
        self._fused(*lists, [], [self._step], lr=self.learning_rate, **self._constants)

    def copy_state(self) -> tuple[Tensor, float | str]:
        """Return parameters, moments and the target's parameters, shape ``(3 or 4, n)``, and the step count.

        Of an optimiser of the user's own all that it keeps takes the place of the step count; its moments are 0.
        """
        return self._rows.clone(), self._step.item() if self._own is None else self._own.state()

    def load_state(self, rows: Tensor, step: float | str) -> None:
        """Put back what :meth:`copy_state` returned; the gradient becomes 0."""
        self.zero_grad()  # also between the entries, where nothing writes: what a NaN left there would stay
        self._rows.copy_(rows)
        if self._own is None:
            self._step.fill_(float(step))
        else:
            self._own.restore(str(step))


class Kept:
    """One task's trained state.

    Parameters
    ----------
    layout
        Of the flat parameters.
    adam
        The parameters; with a target network's the learner keeps no statistics.
    """

    def __init__(self, layout: Layout, adam: FlatAdam) -> None:
        self.layout, self.adam, self.device = layout, adam, adam.flat.device
        #: Statistics of the observations, where they are normalised, and of the discounted returns.
        self.obs_moments, self.return_moments = split_statistics(np.zeros(layout.n_statistics))
        if adam.target is None:
            self.obs_moments, self.return_moments = Moments.start(len(self.obs_moments.mean)), Moments.start(1)
        self.round = self.n_timesteps = self.n_updates = 0

    def merge(self, column: Mapping[str, Tensor]) -> None:
        """Merge one environment's ``obs_moments`` and ``return_moments``, where it has them: count, means, M2."""
        for name in {"obs_moments", "return_moments"} & column.keys():
            setattr(self, name, getattr(self, name).merge(Moments.from_row(column[name].cpu().numpy())))

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Put everything back if the body raises anything.

        A revoked lease or Ctrl-C, too: the round must be repeatable from where it began.
        """
        saved = self.adam.copy_state()
        counted = self.n_updates, self.obs_moments, self.return_moments
        try:
            yield
        except BaseException:
            self.adam.load_state(*saved)
            self.n_updates, self.obs_moments, self.return_moments = counted
            raise

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.algorithms.learner.Learner.published`."""
        statistics = statistics_of(self.obs_moments, self.return_moments)
        return self.layout.published(statistics, self.adam.flat[: self.layout.n_policy].cpu().numpy())

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.learner.Learner.state`."""
        rows, adam_step = self.adam.copy_state()
        meta = {
            "layout": self.layout.sha.hex(),
            "round": self.round,
            "n_timesteps": self.n_timesteps,
            "n_updates": self.n_updates,
            "adam_step": adam_step,
        }
        statistics = statistics_of(self.obs_moments, self.return_moments)
        return meta, np.concatenate([rows.cpu().numpy().ravel().view(np.uint8), statistics.view(np.uint8)])

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
        split = 4 * layout.n_total * (3 if self.adam.target is None else 4)
        size = split + 8 * layout.n_statistics
        if buffer.shape != (size,):
            raise ValueError(f"state must hold {size} bytes, got shape {buffer.shape}")
        raw = np.array(buffer)
        rows = torch.from_numpy(raw[:split].view(np.float32).reshape(-1, layout.n_total))
        self.adam.load_state(rows, meta["adam_step"])
        self.round, self.n_timesteps = int(meta["round"]), int(meta["n_timesteps"])
        self.n_updates = int(meta["n_updates"])
        self.obs_moments, self.return_moments = split_statistics(np.array(raw[split:]).view(np.float64))

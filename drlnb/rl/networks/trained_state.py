"""Keep what a learner carries between rounds: parameters, Adam's moments, the normaliser's statistics, three counters.

Everything that a checkpoint holds and that actors are sent is here, so an algorithm's own file is only about its loss.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from drlnb.rl.networks.flat import FlatAdam
from drlnb.rl.networks.layout import Layout
from drlnb.rl.normalise import Moments, normalise, scale
from drlnb.rl.plain import Facts

__all__ = ["Kept"]


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

    def rows(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays ``(.., *obs)`` as one of rows, float32, normalised if the task is."""
        rows = np.concatenate([part.reshape(len(part), self.layout.obs_width) for part in parts])
        if self.layout.norm_obs:
            rows = normalise(rows, self.obs_moments.mean, self.obs_moments.var)
        rows = rows.astype(np.float32, copy=False)
        return rows / np.float32(255.0) if self.layout.scaled else rows

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
        """Return what actors need; see :meth:`drlnb.rl.algorithms.protocol.Learner.published`."""
        statistics = None if self.target is not None else self._statistics()
        return self.layout.published(statistics, self.adam.flat[: self.layout.n_policy].cpu().numpy())

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.protocol.Learner.state`."""
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

"""What does a learner keep between rounds?  Parameters, Adam's moments, the normaliser's statistics and three counters.

Everything that a checkpoint holds and that actors are sent is here, so an algorithm's own file is only about its loss.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from drlnb.rl.networks.flat import FlatAdam
from drlnb.rl.networks.layout import HEADER_BYTES, Layout
from drlnb.rl.normalise import Moments, normalise, scale

__all__ = ["Kept"]


class Kept:
    """One task's trained state.

    Parameters
    ----------
    algo
        Name of the algorithm, told in the state.
    layout
        Of the flat parameters.
    start
        Starting values, float32, shape ``(n_total,)``.
    device
        A torch device.
    optimizer
        Adam's ``eps``, ``betas`` and ``weight_decay``, where they differ from Stable-Baselines3's.
    """

    def __init__(
        self,
        algo: str,
        layout: Layout,
        start: np.ndarray,
        device: torch.device,
        optimizer: Mapping[str, Any] | None = None,
    ) -> None:
        self._algo, self.layout, self.device = algo, layout, device
        self.adam = FlatAdam(torch.from_numpy(start).to(device), **(optimizer or {}))
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

    def merge(self, obs: np.ndarray | None, returns: np.ndarray | None) -> None:
        """Take in one environment's moments as a fragment carries them: count, mean, M2; None leaves them."""
        if obs is not None:
            self.obs_moments = self.obs_moments.merge(_unpacked(obs))
        if returns is not None:
            self.return_moments = self.return_moments.merge(_unpacked(returns))

    def _statistics(self) -> np.ndarray:
        obs, returns = self.obs_moments, self.return_moments
        head = [obs.n, returns.n, returns.mean.item(), returns.m2.item()]
        return np.concatenate((head, obs.mean, obs.m2)) if self.layout.norm_obs else np.array(head)

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.algorithms.protocol.Learner.published`."""
        layout = self.layout
        buffer = np.zeros(layout.published_bytes, np.uint8)
        buffer[:32] = np.frombuffer(layout.sha, np.uint8)
        buffer[HEADER_BYTES : HEADER_BYTES + 8 * layout.n_statistics] = self._statistics().view(np.uint8)
        buffer[layout.policy_offset :] = self.adam.flat[: layout.n_policy].cpu().numpy().view(np.uint8)
        return buffer

    def state(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.protocol.Learner.state`."""
        tensors, adam_step = self.adam.copy_state()
        meta = {
            "algo": self._algo,
            "layout": self.layout.sha.hex(),
            "round": self.round,
            "n_timesteps": self.n_timesteps,
            "n_updates": self.n_updates,
            "adam_step": adam_step,
        }
        parts = [tensors.cpu().numpy().ravel().view(np.uint8), self._statistics().view(np.uint8)]
        return meta, np.concatenate(parts)

    def restore(self, meta: Mapping[str, Any], buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        ValueError
            If the state was made for another layout or has another size.
        """
        layout = self.layout
        if meta["layout"] != layout.sha.hex():
            raise ValueError(f"state has layout {meta['layout'][:12]}, this task needs {layout.sha.hex()[:12]}")
        split, size = 12 * layout.n_total, 12 * layout.n_total + 8 * layout.n_statistics
        if buffer.shape != (size,):
            raise ValueError(f"state must hold {size} bytes, got shape {buffer.shape}")
        raw = np.array(buffer)
        tensors = torch.from_numpy(raw[:split].view(np.float32).reshape(3, -1))
        self.adam.load_state((tensors.to(self.device), float(meta["adam_step"])))
        statistics = np.array(raw[split:]).view(np.float64)
        self.return_moments = Moments(statistics[1].item(), statistics[2:3].copy(), statistics[3:4].copy())
        if layout.norm_obs:
            width = layout.obs_width
            self.obs_moments = Moments(statistics[0].item(), statistics[4 : 4 + width], statistics[4 + width :])
        self.round, self.n_timesteps = int(meta["round"]), int(meta["n_timesteps"])
        self.n_updates = int(meta["n_updates"])


def _unpacked(row: np.ndarray) -> Moments:
    width = (len(row) - 1) // 2
    return Moments(row[0].item(), row[1 : 1 + width], row[1 + width :])

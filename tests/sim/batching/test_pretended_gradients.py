"""Pretended gradients beside drawn ones."""

import numpy as np
import pytest

from drlnb.sim.batching.gradients import gradient_scalars


def test_figures_are_those_of_gaussian_gradients():
    """20,000 parameters, noise of 300 samples: norms and cosines of drawn gradients to 3 %; who sends none has none."""
    used, n, draw = (200, 100, 0, 12), 20_000, np.random.default_rng(4)
    true = np.full(n, n**-0.5)
    drawn = [true + draw.normal(0.0, (300 / k / n) ** 0.5, n) if k else None for k in used]
    mean = sum(k * part for k, part in zip(used, drawn, strict=True) if k) / sum(used)
    scalars = gradient_scalars(used, (0.5, 0.4, 0.3, 0.2), 300.0)
    for i in (0, 1, 3):
        norm = np.linalg.norm(drawn[i])
        assert scalars["norms"][i] == pytest.approx(norm, rel=0.03)
        assert scalars["cosines"][i] == pytest.approx(drawn[i] @ mean / norm / np.linalg.norm(mean), rel=0.03)
    assert [scalars[name][2] for name in ("norms", "cosines", "ages_s")] == [None] * 3
    assert scalars["ages_s"] == (0.5, 0.4, None, 0.2)

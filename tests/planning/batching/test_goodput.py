"""What a split was worth, and the noise of gradients from their norms alone."""

import math

import numpy as np
import pytest

from drlnb.planning.batching.goodput import goodput_hz, noise_after, noise_scale


def test_goodput_lies_between_steps_and_samples():
    """80 of 100 samples in 2 s: 50 a second if only steps count, 40 if only samples do; no sample is worth nothing."""
    assert goodput_hz(80, 100, 2.0, 0.0) == 50.0
    assert goodput_hz(80, 100, 2.0, math.inf) == 40.0
    assert goodput_hz(80, 100, 2.0, 120.0) == pytest.approx(40.0 * 220 / 200)
    assert goodput_hz(100, 100, 2.0, 7.0) == 50.0
    assert goodput_hz(0, 100, 2.0, 0.0) == 0.0


@pytest.mark.parametrize("sizes", [(64, 64), (200, 100, 50, 12), (128, 1)])
def test_noise_is_found_from_norms(sizes):
    """Planted: 200 parameters of true gradient .05 and noise 1: variance 200, signal .5, so phi is 400; within 10 %."""
    draw, noise, seen = np.random.default_rng(3), {}, []
    for _ in range(1500):
        # the mean gradient of a share has a noise of 1 / sqrt(n)
        parts = [draw.normal(0.05, 1 / math.sqrt(n), 200) for n in sizes]
        mean = np.average(parts, axis=0, weights=sizes)
        noise = noise_after(noise, sizes, [float(part @ part) for part in parts], float(mean @ mean))
        seen.append(noise)
    variance = sum(each["variance"] for each in seen[100:]) / 1400
    signal = sum(each["signal"] for each in seen[100:]) / 1400
    assert variance == pytest.approx(200, rel=0.1)
    assert signal == pytest.approx(0.5, rel=0.1)
    assert noise_scale({"variance": variance, "signal": signal}) == pytest.approx(400, rel=0.15)


def test_noise_needs_two_shares():
    """With one there is nothing to compare, and what is known stays."""
    assert noise_after({}, (8,), (1.0,), 1.0) == {}
    known = noise_after({}, (4, 4), (3.0, 3.0), 2.0)
    # (3 - 2) / (1/4 - 1/8) = 8; 2 - 8 / 8 = 1
    assert known == {"variance": 8.0, "signal": 1.0}
    assert noise_after(known, (8,), (1.0,), 1.0) == known
    assert noise_after(known, (), (), 0.0) == known
    assert noise_after(known, (4, 4), (5.0, 5.0), 2.0) == pytest.approx({"variance": 9.6, "signal": 0.8})


def test_the_scale_of_what_is_all_signal_or_all_noise():
    """No noise: steps count; no signal: samples count."""
    assert noise_scale({}) == 0.0
    assert noise_scale({"variance": -1.0, "signal": 2.0}) == 0.0
    assert noise_scale({"variance": 8.0, "signal": 2.0}) == 4.0
    assert noise_scale({"variance": 8.0, "signal": -2.0}) == math.inf

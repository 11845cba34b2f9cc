"""Turn what members did in the last splits into what the network sees of each of them.

Nothing here knows a member's number, its speed or how many members there are but by log N: one network serves gangs of
any size, whose members stand in any order, on devices of any speed.  A member's history is z = log(speed / long-run
speed) by split; it is *slow* where z < -.5.
"""

import math

import numpy as np
import numpy.typing as npt

__all__ = ["N_FEATURES", "WINDOW", "features"]

Array = npt.NDArray[np.float64]

#: Splits that are looked back on.
WINDOW = 64
#: A member is slow below this z: it has lost more than two fifths of its speed.
_SLOW_Z = -0.5
#: Splits of a member's own z, and of the mean of all, that are shown as they are.
_OWN, _ALL = 16, 4
#: Lags of whom else foretells a member, and of itself.
_PARTNER_LAGS = (1, 2)
_FIRST_LAG, _LAST_LAG = 4, 32
#: Slow splits of either that a match needs: fewer agree by chance.
_LEAST_UNION = 4
#: A lag with such a score is believed.
_GATE = 0.6
#: Figures per member: the network's inputs.
N_FEATURES = _OWN + _ALL + 3 * len(_PARTNER_LAGS) + 4


def features(z: Array) -> Array:
    """Return what the network sees of each member before the next split.

    Parameters
    ----------
    z
        log(speed / long-run speed), dimensionless, oldest split first; shape ``(n_splits, n_members)`` with at most
        :data:`WINDOW` splits.  Splits before the first one count as 0: at its long-run speed.

    Returns
    -------
    Array
        Shape ``(n_members, N_FEATURES)``: the member's own last 16 z, newest first; the mean of all in the last 4
        splits; for lags 1 and 2 the z of its *partner* (the other member whose slow splits best match its own so much
        later) that foretells its next split, how well they match, and the partner's newest z; log of the number of
        members; how well its slow splits match its own at the best lag from 4 to 32, its z one such lag before the
        next split, and the same where the match is believed, else 0.
    """
    n = z.shape[1]
    whole = np.vstack([np.zeros((WINDOW - len(z), n)), z])
    slow = (whole < _SLOW_Z).astype(float)
    score, lag = _own_lag(slow)
    one_lag_ago = whole[WINDOW - lag, np.arange(n)]
    columns = [
        whole[: -_OWN - 1 : -1].T,
        np.tile(whole[: -_ALL - 1 : -1].mean(axis=1), (n, 1)),
        *(_partner(whole, slow, lag) for lag in _PARTNER_LAGS),
        np.full((n, 1), math.log(n)),
        np.column_stack([score, one_lag_ago, np.where(score >= _GATE, one_lag_ago, 0.0)]),
    ]
    return np.hstack(columns)


def _matches(both: Array, either: Array) -> Array:
    """Return how well slow splits match, from 0 to 1: those of both over those of either (Jaccard)."""
    return np.where(either >= _LEAST_UNION, both / np.maximum(either, 1.0), 0.0)


def _own_lag(slow: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return how well each member's slow splits match its own at the best lag, and that lag."""
    lags = np.arange(_FIRST_LAG, _LAST_LAG + 1)
    before = np.vstack([np.zeros((_LAST_LAG, slow.shape[1])), slow])
    # by split and lag: whether it was slow so long before
    earlier = np.stack([before[_LAST_LAG - lag : _LAST_LAG - lag + WINDOW] for lag in lags])
    both = (earlier * slow).sum(axis=1)
    until = np.cumsum(slow, axis=0)
    either = (until[-1] - until[lags - 1]) + until[WINDOW - lags - 1] - both
    score = _matches(both, either)
    best = score.argmax(axis=0)
    return score[best, np.arange(slow.shape[1])], lags[best]


def _partner(z: Array, slow: Array, lag: int) -> Array:
    """Return what the best partner at a lag foretells, how well it matches, and its newest z; shape ``(n_members, 3)``.

    Of several that match as well the mean is taken, so that the order of members changes nothing.
    """
    mine, theirs = slow[lag:], slow[:-lag]
    both = mine.T @ theirs
    score = _matches(both, mine.sum(axis=0)[:, None] + theirs.sum(axis=0) - both)
    np.fill_diagonal(score, -1.0)
    best = score.max(axis=1, keepdims=True)
    weights = np.where((score == best) & (best > 0.0), 1.0, 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    return np.column_stack([weights @ z[-lag], np.maximum(best[:, 0], 0.0), weights @ z[-1]])

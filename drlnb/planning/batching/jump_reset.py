"""Split units by speeds that follow noise slowly and a jump at once: the default of learners."""

from drlnb.planning.batching.estimate import Estimating

__all__ = ["JumpReset"]

#: Weight of a measurement that is about as expected.
_WEIGHT = 0.1
#: Outside these times what was expected a measurement is a jump: something has begun or ended.
_LEAST, _MOST = 0.6, 1.6


class JumpReset(Estimating):
    """Expects each member at a slow moving average, which begins anew where a measurement is far from it."""

    name = "jump-reset"

    @staticmethod
    def moved(speed_hz: float, measured_hz: float, is_few: bool) -> float:
        """Return a speed after a measurement; one of few samples is no jump."""
        if not is_few and not _LEAST <= measured_hz / speed_hz <= _MOST:
            return measured_hz
        return (1 - _WEIGHT) * speed_hz + _WEIGHT * measured_hz

"""Split units by a moving average of the members' speeds."""

from drlnb.planning.batching.estimate import Estimating

__all__ = ["Ewma"]

#: Weight of the latest measurement.
_WEIGHT = 0.3


class Ewma(Estimating):
    """Expects each member at the exponentially weighted mean of its speeds: smooth, and late after a change."""

    name = "ewma"

    @staticmethod
    def moved(speed_hz: float, measured_hz: float, is_few: bool) -> float:
        """Return the mean after a measurement."""
        return (1 - _WEIGHT) * speed_hz + _WEIGHT * measured_hz

"""Split units by the members' long-run speeds, whatever slows them down now."""

from drlnb.planning.batching.estimate import Estimating

__all__ = ["Static"]


class Static(Estimating):
    """Expects each member at its long-run speed."""

    name = "static"
    by_long = True

    @staticmethod
    def moved(speed_hz: float, measured_hz: float, is_few: bool) -> float:
        """Return the latest measurement: it is not planned by."""
        return measured_hz

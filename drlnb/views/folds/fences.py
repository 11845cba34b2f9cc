"""Match work with the lease that it was computed under, in whichever order the two are recorded."""

from drlnb.records.ids import Fence
from drlnb.views.folds.grow import Grow

__all__ = ["Fences"]


class Fences:
    """Leases by their fence, and work whose lease has not been recorded yet."""

    def __init__(self) -> None:
        #: Fence -> rows of the pool's leases, one per slot.
        self.rows: dict[Fence, list[int]] = {}
        self._wanted: dict[Fence, list[tuple[Grow, int]]] = {}

    def granted(self, fence: Fence, row: int) -> None:
        """Keep a lease's row, and write it into the work that came before it."""
        rows = self.rows.setdefault(fence, [])
        rows.append(row)
        if len(rows) == 1:
            for work, at in self._wanted.pop(fence, ()):
                work.set(at, "lease", float(row))

    def worked(self, fence: Fence, work: Grow, row: int) -> None:
        """Write the lease's row into the column ``lease`` of a row of work, now or as soon as it is known."""
        rows = self.rows.get(fence)
        if rows:
            work.set(row, "lease", float(rows[0]))
        else:
            self._wanted.setdefault(fence, []).append((work, row))

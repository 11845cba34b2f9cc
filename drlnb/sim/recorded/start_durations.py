"""Give the duration of a start in a recorded run: that very one, or one of its node, start mode and number at once."""

from collections.abc import Iterable

from drlnb.planning.warmup.history import StartBook
from drlnb.planning.warmup.processes import is_guide
from drlnb.records.base import Event
from drlnb.records.columns.warmup import CollectorReady, StartCollector

__all__ = ["StartDurations"]


class StartDurations:
    """What starts took in a run, in seconds.

    Parameters
    ----------
    events
        Of the run, in order.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        #: (round that it is for, collector) -> node, mode, seconds, starts at once.
        self._between: dict[tuple[int, int], tuple[str, str, float, int]] = {}
        #: Node -> modes of starts between rounds; (node, mode) -> number of starts.
        self._modes: dict[str, set[str]] = {}
        self._known: dict[tuple[str, str], int] = {}
        self._book = StartBook()
        warm_t: dict[str, float] = {}
        for event in events:
            if isinstance(event, CollectorReady):
                key = event.round, event.collector
                self._add(key, event.node, event.start_mode, event.start_s, event.n_starting, is_guide(warm_t, event))

    def _add(
        self, key: tuple[int, int], node: str, mode: str, seconds: float, n_starting: int, guides: bool = True
    ) -> None:
        if key[0]:
            self._between[key] = (node, mode, seconds, n_starting)
            self._modes.setdefault(node, set()).add(mode)
        if guides:
            self._book.add(node, mode, n_starting, seconds)
            self._known[node, mode] = self._known.get((node, mode), 0) + 1

    def of(self, command: StartCollector, mode: str, at_once: int, *, strict: bool) -> tuple[float, int | None, str]:
        """Return the seconds of a start, how many started at once if it is known, and its mode.

        Raises
        ------
        ValueError
            If there is none of its kind.
        """
        node, kind, seconds, n_starting = self._between.get((command.round, command.collector), ("", "", 0.0, 0))
        if node == command.node and (kind == mode or not strict):
            return seconds, n_starting, kind
        others = () if strict else sorted(self._modes.get(command.node, ()))
        for kind in (mode, *others):
            samples = self._book.samples(command.node, kind, at_once)
            if samples:
                return samples[(command.round * at_once + command.collector) % len(samples)], None, kind
        known = ", ".join(f"{n} by {kind} on {node}" for (node, kind), n in sorted(self._known.items()))
        waited = ", but for those that waited for the zygote itself" if mode == "zygote" else ""
        raise ValueError(
            f"no start by {mode} on node {command.node} is in the journal{waited}; there are: {known or 'none'}"
        )

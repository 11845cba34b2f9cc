"""Send versions for real, to every worker of the cluster that a panel is attached to."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from drlnb.fleet.cluster.pool import Client
from drlnb.fleet.whatif.distribution import numbers_of, planner
from drlnb.planning.distribution import STRATEGIES
from drlnb.records.errors import ConfigError
from drlnb.views.distribution import measured
from drlnb.views.distribution.simulated import Spread
from drlnb.views.distribution.topology import topology
from drlnb.views.drawing import words
from drlnb.views.drawing.payload import Floats
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.widgets.panels.frame import Panel, Plain, button
from drlnb.widgets.transport.commands import Args, Command

if TYPE_CHECKING:
    from drlnb.distribution import PublishReport
    from drlnb.widgets.panels.distribution.timings import Case

__all__ = ["Publishing"]

#: Largest version that is sent at a click, in MB: hosts keep four of them; longest wait for its report, in seconds.
_LARGEST_MB, _PATIENCE_S = 1000.0, 600.0
#: Shards that a version may have, before there is one.
_MOST_SHARDS = 1_000_000
#: Versions that are sent with each m.
_TIMES = 3


class Publishing:
    """Versions that are sent for real, beside what else goes on there.

    Parameters
    ----------
    panel, case
        Of which the fields are.
    client
        Returns the cluster's client, or a text: why there is none.
    """

    def __init__(self, panel: Panel, case: "Case", client: Callable[[], Client]) -> None:
        self._panel, self._case, self.client = panel, case, client
        #: How the version spread that was sent, or simulated, last; and one to show before that.
        self.latest: Spread | None = None
        self.newest: Callable[[], Spread | None] = lambda: None
        #: What came of the last one, in words; of the last sweep: of what it is, m, and median seconds.
        self.said = ""
        self.measured: tuple[str, Floats, Floats] | None = None
        panel.commands.add("publish", Command(label="publish once", run=self._publish, check=self._check))
        panel.commands.add("sweep", Command(label="sweep m", run=self._sweep, check=self._check))

    @property
    def off(self) -> str:
        """Why nothing can be sent; empty if it can."""
        client = self.client()
        return client if isinstance(client, str) else ""

    def buttons(self) -> list[Plain]:
        """Return the buttons, which are off where there is no cluster."""
        reason = self._case.problem or self.off
        return [button("publish", "Publish once", reason=reason), button("sweep", "Sweep m", reason=reason)]

    @property
    def n_shards(self) -> int:
        """Shards of the version that is drawn; before there is one, as many as there may ever be."""
        of = self.latest or self.newest()
        return _MOST_SHARDS if of is None else len(of.sizes)

    def draw(self) -> View:
        """Return how a version spread."""
        of = self.latest or self.newest()
        if of is None:
            return nothing("distribution.topology", "topology", "no version yet: press Simulate or Publish once")
        return topology(of, self._case.value("shard"))

    def _check(self, args: Args) -> None:
        mb = self._case.value("model_mb")
        if self.off or mb > _LARGEST_MB:
            raise ConfigError(self.off or f"model, MB must be at most {_LARGEST_MB:g} here, got {mb:g}")
        self._case.check(args)

    def _send(self, numbers: Callable[[int], Sequence[int]]) -> "list[tuple[int, PublishReport]]":
        """Send a version with each m for so many workers, one after the other."""
        from drlnb.distribution import Publisher  # Dask, for who presses this

        model, sent = {"model": np.zeros(self._case.given[1], np.uint8)}, []
        with Publisher(self.client(), task="panel") as publisher:
            for m in numbers(len(publisher.hosts)):
                publisher.plan = planner(self._case.value("plan"), m, self._case.value("chunks"))
                sent.append((m, publisher.publish(model).result(_PATIENCE_S)))
        fold = Fold()
        fold.feed(("distribution", record) for record in sent[-1][1].trace)
        self.latest = measured.spread(fold)
        return sent

    def _publish(self, args: Args) -> None:
        ((_, report),) = self._send(lambda n_hosts: [self._case.value("m")])
        self.said = f"published once: {report}"
        self._panel.touch()

    def _sweep(self, args: Args) -> None:
        name = self._case.value("plan")
        if "m" not in numbers_of(name):
            raise ConfigError(f"{name} has no m")
        of = dict[int, list[float]]()
        sent = self._send(lambda n: [m for m in STRATEGIES[name].m(n) if m == n or not m & (m - 1)] * _TIMES)
        for m, report in sent:
            of.setdefault(m, []).append(report.publish_s)
        whom = f"{name}, {self._case.value('model_mb'):g} MB, {words.plural(sent[0][1].n_hosts, 'worker')}"
        medians = {m: median(each) for m, each in of.items()}
        self.measured = f"measured: {whom}", np.array(list(of), float), np.array(list(medians.values()))
        self.said = f"swept m ({whom}): " + ", ".join(
            f"{m} {words.duration(seconds)}" for m, seconds in medians.items()
        )
        self._panel.touch()

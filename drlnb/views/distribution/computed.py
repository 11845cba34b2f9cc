"""Draw what the closed forms say of a plan before anything is sent: models per second over m, and what each sends."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Content, Floats
from drlnb.views.drawing.pictures import Body, Lines, axis, picture
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, numbered, table

__all__ = ["COMPUTED", "Computed", "egress", "models", "scaling", "sweep"]

#: Origin of what closed forms say: nothing was sent, not even on a virtual clock.
COMPUTED = "computed"

#: m of the distribution patent, and for how many machines it gives it.
_PATENT = {10.0: 100, 30.0: 298}

SWEEP = table(
    "points",
    Column("line", "plan", "how versions travel; bound: no plan is faster", kind="name"),
    Column("x", "m", "relays, trees or intermediate hosts; plans without such a number are level lines"),
    Column("y", "models/s", "versions per second if each leaves once all hosts hold the one before"),
)
SCALING = table(
    "points",
    Column(
        "line",
        "plan",
        "how versions travel, each at its best numbers; with numbers: as chosen; bound: no plan is faster",
        kind="name",
    ),
    Column("x", "hosts", "that each version goes to"),
    Column("y", "models/s", "versions per second if each leaves once all hosts hold the one before"),
)
EGRESS = table(
    "hosts",
    Column("host", "host", "who sends: the learner, then the hosts by number", kind="name"),
    Column("computed", "computed", "bytes that leave it by the plan, in multiples of one version", unit="models"),
    Column(
        "simulated", "simulated", "the same, as simulated message by message; nothing: not simulated", unit="models"
    ),
)
NUMBERS = {
    "publish": ("predicted", "s", "from the first byte until every host holds the version, by the closed form"),
    "times": ("in L", "x", "the same, in multiples of L: one version through the learner's card"),
    "rate": ("models per second", "", "versions per second if each leaves once all hosts hold the one before"),
    "bound": ("of the possible", "%", "the least time that any plan can take / the time of this one"),
}
SENT = {
    "learner": ("models from the learner", "", "bytes that leave the learner by the plan, in multiples of one version"),
    "host": ("from the busiest host", "", "the most that leaves one host, in multiples of one version"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What the closed forms say of one plan on one link; times in seconds."""

    #: Name of the planner, such as ``relay:m=8``.
    plan: str
    #: What is planned by it, with its numbers: ``relay m=8``.
    name: str
    n_hosts: int
    model_bytes: int
    #: The network in words.
    link: str
    #: Relays, trees or intermediate hosts.
    m: int
    publish_s: float
    #: One version through the learner's card: L.
    one_s: float
    #: No plan is faster.
    bound_s: float
    #: Every strategy, in an order that is always the same -> its numbers m and its time with each; shapes ``(k,)``.
    curves: Mapping[str, tuple[Floats, Floats]]
    #: Versions that the learner (first) and each host send; shape ``(n_hosts + 1,)``.
    egress: Floats
    #: Every strategy, in the same order, and the bound -> hosts, and its time at its best numbers; last the plan, where
    #: it has numbers of its own; shapes ``(k,)``.
    scaling: Mapping[str, tuple[Floats, Floats]]

    @property
    def notes(self) -> tuple[str, ...]:
        """Size and network in words."""
        return (f"{self.model_bytes / 1e6:g} MB, {self.link}",)


def models(amount: float) -> str:
    """Return an amount of bytes in multiples of one version.

    Examples
    --------
    >>> models(1.0), models(1.875)
    ('1.00 models', '1.88 models')
    """
    return f"{amount:.2f} models"


def sweep(of: Computed, more: str = "", measured: tuple[str, Floats, Floats] | None = None) -> View:
    """Return models per second over m, a line per strategy, with the chosen plan and the numbers of the patent marked.

    Parameters
    ----------
    of
        What was computed.
    more
        What the sentence goes on with.
    measured
        What was measured, in words; its m, and seconds with each; shapes ``(k,)``.
    """
    lines = Lines()
    bound = np.array([1.0, of.n_hosts]), np.full(2, of.bound_s)
    _add(lines, {**of.curves, "bound": bound, f"chosen: {of.name}": (np.array([of.m]), np.array([of.publish_s]))})
    if measured:
        lines.add(measured[0], "#B3261E", measured[1], 1.0 / measured[2], dots=True, style=("M", ""))
    times = of.publish_s / of.one_s
    sentence = (
        f"{of.name} to {words.plural(of.n_hosts, 'host')}: {times:.2f} L, predicted {words.duration(of.publish_s)}, "
        f"{words.number(1.0 / of.publish_s)} models/s; the learner sends {models(of.egress[0])}"
    )
    origin = f"{COMPUTED} and measured" if measured else COMPUTED
    body = lines.body(axis("m: relays, trees, intermediate hosts"), axis("models per second"))
    rate, share = 1.0 / of.publish_s, of.bound_s / of.publish_s
    numbers = numbered(NUMBERS, publish=of.publish_s, times=times, rate=rate, bound=share)
    facts, said = {"marks": _marks(of)}, sentence + more
    return picture("distribution.sweep", origin, said, SWEEP, body, facts=facts, notes=of.notes, numbers=numbers)


def scaling(of: Computed) -> View:
    """Return models per second over the number of hosts, a line per strategy; the chosen plan keeps to its numbers."""
    lines, most = Lines(), {name: 1.0 / float(seconds[-1]) for name, (_, seconds) in of.scaling.items()}
    _add(lines, of.scaling)
    bound, last = most.pop("bound"), list(of.scaling)[-1]
    best = max(most, key=lambda name: most[name])
    own = "" if last == "bound" or last == best else f"; {last}: {words.number(most[last])}"
    sentence = (
        f"{words.plural(int(of.scaling['bound'][0][-1]), 'host')}: {best} is the fastest, {words.number(most[best])} "
        f"models/s of {words.number(bound)} possible{own}"
    )
    marks: list[Content] = [
        {"t": float(n), "label": f"patent: {n}", "said": f"{n} machines, as the distribution patent has", "task": ""}
        for n in _PATENT.values()
    ]
    chosen = {"t": float(of.n_hosts), "label": f"here: {of.n_hosts}", "said": f"chosen: {of.name}", "task": ""}
    body, facts = lines.body(axis("hosts"), axis("models per second")), {"marks": [*marks, chosen]}
    return picture("distribution.scaling", COMPUTED, sentence, SCALING, body, facts=facts, notes=of.notes)


def _add(lines: Lines, curves: Mapping[str, tuple[Floats, Floats]]) -> None:
    """Add a line per strategy, the bound, and what is chosen of a strategy, marked as such."""
    looks = {style.name: style for style in theme.styles(curves)}
    for name, (x, seconds) in curves.items():
        look, strategy = looks[name], name.removeprefix("chosen: ").partition(" ")[0]
        if name == "bound":
            look = Style(name, "=", "#777777", "/")
        elif strategy != name:
            look = looks[strategy]._replace(letter="*", hatch="/")
        is_dot = name.startswith("chosen")
        lines.add(name, look.colour, x, 1.0 / seconds, dots=is_dot, style=(look.letter, look.hatch))


def _marks(of: Computed) -> list[Content]:
    """Return where the chosen number stands, and the patent's own numbers of relays."""
    marks = [
        (m, f"patent: {m:g}", f"m = {m:g}, which the distribution patent gives for {n} machines")
        for m, n in _PATENT.items()
    ]
    placed = [*(mark for mark in marks if mark[0] <= of.n_hosts), (float(of.m), "chosen", f"chosen: {of.name}")]
    return [{"t": m, "label": label, "said": said, "task": ""} for m, label, said in placed]


def egress(of: Computed, simulated: Floats | None = None) -> View:
    """Return how many versions each host sends, the learner first, a bar each: as computed and as simulated.

    Parameters
    ----------
    of
        What was computed.
    simulated
        What was sent in a simulation of the same plan, repair included; shape ``(n_hosts + 1,)``.
    """
    place = np.arange(-1.0, of.n_hosts)  # the learner's number is -1
    known = np.full(len(place), np.nan) if simulated is None else simulated
    lines = Lines()
    for label, colour, sent_by in (("simulated", "#56B4E9", simulated), ("computed", "#E69F00", of.egress)):
        if sent_by is not None:
            x, y = _bars(place, sent_by)
            lines.add(label, colour, x, y, band=(0.0, y), style=(label[0].upper(), ""))
    body = lines.body(axis("host; the learner stands at -1"), axis("models sent"))
    sent = {"learner": float(of.egress[0]), "host": float(of.egress[1:].max(initial=0.0))}
    sentence = f"the learner sends {models(sent['learner'])}, a host at most {models(sent['host'])}"
    if simulated is not None:
        sentence += f"; simulated: {models(simulated[0])} and {models(simulated[1:].max(initial=0.0))}"
    hosts = {"host": np.arange(of.n_hosts + 1), "computed": of.egress, "simulated": known}
    names = ("learner", *(str(number) for number in range(of.n_hosts)))
    origin = COMPUTED if simulated is None else f"{COMPUTED} and simulated"
    body = Body(body.module, {**body.columns, "hosts": hosts}, body.facts, names)
    return picture("distribution.egress", origin, sentence, EGRESS, body, numbers=numbered(SENT, **sent))


def _bars(place: Floats, height: Floats) -> tuple[Floats, Floats]:
    """Return the outline of bars around places, one after another, with room at both ends; shapes ``(4 n + 2,)``."""
    x = (place[:, None] + np.array([-0.4, -0.4, 0.4, 0.4])).ravel()
    y = (height[:, None] * np.array([0.0, 1.0, 1.0, 0.0])).ravel()
    room = max(0.5, len(place) / 60)  # so that the learner's bar is not the picture's edge
    return np.concatenate([x[:1] - room, x, x[-1:] + room]), np.concatenate([[0.0], y, [0.0]])

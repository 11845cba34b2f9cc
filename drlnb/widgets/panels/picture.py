"""Send one view to the page: by messages while it lives, by traits for pages that open later."""

from collections.abc import Callable

from drlnb.views.drawing.payload import Content, Drawn, Message, Plain, Wire
from drlnb.widgets.transport.commands import Reply
from drlnb.widgets.transport.modules import Module, free_route

__all__ = ["Picture"]

#: Seconds between two snapshots in the traits while the run lives, and between two signs of life.
_SNAPSHOT_S, _BEAT_S = 5.0, 2.0
#: Bytes per second that snapshots of one picture may take: a large one comes less often.  A page that opens meanwhile
#: asks for the whole picture anyway, and the last one is always kept.
_SNAPSHOT_BYTES_S = 2_500
#: Bytes per second that whole pictures may take which a page asks for: if the server drops one, since a kernel has sent
#: too much, the page asks again, and that must not keep the rate where it was.
_ANSWER_BYTES_S = 50_000
#: Modules of words and numbers.
_CALM = frozenset({"shell", "table"})


class Picture:
    """One module's widget, and what it has been told.

    Parameters
    ----------
    widget
        The widget.
    draw
        Returns what it shall show now; called by the hub, or by whoever refreshes.
    receive
        Takes messages of the page, within its callback, and what answers them.
    """

    def __init__(
        self,
        widget: Module,
        draw: Callable[[], Drawn],
        receive: Callable[[Content, Reply], None] = lambda content, reply: None,
    ) -> None:
        self.widget = widget
        self.draw = draw
        self._receive = receive
        self._wire = Wire()
        #: Whether a page has asked for the whole picture.
        self.greeted = False
        self._traits: Content | None = None
        self._snapshot_t = self._beat_t = self._answer_t = float("-inf")
        self._seq = -1
        #: Seconds until the next snapshot.
        self._pause_s = _SNAPSHOT_S
        widget.on_msg(self._heard)

    # ------------------------------------------------------------------ the page's callback
    def _heard(self, widget: object, content: object, buffers: object) -> None:
        if isinstance(content, dict) and content.get("kind") == "hello":
            self.greeted = True
        if isinstance(content, dict):
            self._receive(content, self.send)

    @property
    def calm(self) -> bool:
        """Whether it is read rather than watched, and need not move with every turn."""
        return self.widget.MODULE in _CALM

    # ------------------------------------------------------------------ the hub
    def push(self, now_s: float, *, keep: bool = False) -> None:
        """Send what is new, or a sign of life; note the traits that are due, or at once to `keep` them."""
        drawn = self.draw()
        hello = self.greeted and now_s >= self._answer_t
        message = self._wire.delta(drawn) if not hello else self._answer(now_s, drawn)
        # Nothing moves: the traits shall have it soon, however large it is.
        pause_s = _SNAPSHOT_S if message is None else self._pause_s
        if message is None and now_s - self._beat_t >= _BEAT_S:
            message = self._wire.beat()
        if message is not None:
            self._beat_t = now_s
            self.send(*message)
        if hello or keep or now_s - self._snapshot_t >= pause_s:
            self._snapshot_t = now_s
            self.note(drawn)

    def _answer(self, now_s: float, drawn: Drawn) -> Message:
        """Return the whole picture; the next one not before this one has had its time."""
        self.greeted = False
        header, buffers = message = self._wire.snapshot(drawn)
        self._answer_t = now_s + (len(str(header)) + sum(map(len, buffers))) / _ANSWER_BYTES_S
        return message

    def note(self, drawn: Drawn) -> None:
        """Keep the whole picture for the traits, unless they have it."""
        if self._wire.seq != self._seq or self._seq < 1:
            self._seq = self._wire.seq
            self._traits = self._wire.traits(drawn)
            n_bytes = len(self._traits["_header"]) + len(self._traits["_snapshot"])
            self._pause_s = max(_SNAPSHOT_S, n_bytes / _SNAPSHOT_BYTES_S)

    def send(self, content: Plain, buffers: list[bytes] | None = None) -> None:
        """Send a message to every page that shows this; nothing happens if the model is gone."""
        if not self.widget.gone:
            self.widget.send(dict(content), buffers=buffers or None)
            free_route(self.widget)

    # ------------------------------------------------------------------ the pump
    def write(self) -> None:
        """Write the traits that were noted."""
        traits, self._traits = self._traits, None
        if traits is not None and not self.widget.gone:
            with self.widget.hold_sync():
                for name, value in traits.items():
                    setattr(self.widget, name, value)

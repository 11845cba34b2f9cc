"""Carry out clicks: each is acknowledged at once, carried out by a thread, and answered with its outcome.

The callback returns within milliseconds whatever the cluster does: it may run on the kernel's main thread, in the
middle of a user's ``await``.  A click that is heard twice (a reload, a second view) is carried out once.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from drlnb.views.drawing.payload import Content, Plain
from drlnb.widgets.transport.messages import MessageArea, sentence_of

__all__ = ["Command", "Commands"]

#: Ids that are remembered: far more than a user clicks before an answer comes.
_MOST = 256

#: Arguments of a command.
Args = Plain

#: Sends the content of a message to the page that asked.
Reply = Callable[[Content], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing that can be clicked."""

    #: In words, as the message of a failure begins: ``pause task``.
    label: str
    #: Carries it out, off the callback's thread; returns what to say, or nothing.
    run: Callable[[Args], str | None]
    #: Looks at the arguments within the callback: fast, raises InputError with the reason.
    check: Callable[[Args], None] = lambda args: None


class Commands:
    """The commands of one panel, carried out one after the other; failures are messages."""

    def __init__(self, messages: MessageArea) -> None:
        self.messages = messages
        self._known: dict[str, Command] = {}
        self._states: OrderedDict[str, Content] = OrderedDict()
        self._queue: deque[tuple[str, Command, Args, Reply]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, name: str, command: Command) -> None:
        """Make something clickable under a name."""
        self._known[name] = command

    def receive(self, content: Args, reply: Reply) -> None:
        """Receive a message ``{"kind": "command", "id", "name", "args"}``; returns at once."""
        ident, name = str(content.get("id", "")), str(content.get("name", ""))
        said = self._states.get(ident)
        if said is not None:
            reply(said)  # heard before: say again how it stands
            return
        command = self._known.get(name)
        args = dict(content.get("args") or {})
        if command is None:
            self._settle(reply, "failed", ident, f"this panel has no command {name!r}")
            return
        try:
            command.check(args)
        except Exception as error:  # noqa: BLE001 - the page must hear of it, or its button waits for ever
            self._settle(reply, "failed", ident, self.messages.failed(command.label, error))
            return
        self._settle(reply, "ack", ident, "")
        with self._lock:
            self._queue.append((ident, command, args, reply))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="drlnb-commands", daemon=True)
                self._thread.start()

    def _settle(self, reply: Reply, kind: str, ident: str, text: str) -> None:
        self._states[ident] = {"kind": kind, "id": ident, "text": text}
        while len(self._states) > _MOST:
            self._states.popitem(last=False)
        reply(self._states[ident])

    def _next(self) -> tuple[str, Command, Args, Reply] | None:
        """Return the next command; with none left the thread is over."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._thread = None
            return None

    def _work(self) -> None:
        while (queued := self._next()) is not None:
            ident, command, args, reply = queued
            try:
                text = command.run(args) or ""
            except Exception as error:  # noqa: BLE001 - told in the panel
                self.messages.failed(command.label, error)
                self._settle(reply, "failed", ident, sentence_of(error))
            else:
                self.messages.worked(command.label)
                self._settle(reply, "done", ident, text)

    def join(self, timeout_s: float = 5.0) -> None:
        """Wait for the command that is being carried out; forget those that wait."""
        with self._lock:
            self._queue.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

"""Keep what a user should read in the panel: cells show nothing of a callback's or thread's failure."""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from drlnb.records.errors import InputError, PeerError

__all__ = ["Message", "MessageArea", "sentence_of"]

#: Messages that are kept.
_MOST = 20

_LOG = logging.getLogger("drlnb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One thing that a user should know."""

    #: ``info``, ``warning`` or ``error``.
    level: str
    text: str
    details: str = ""
    #: How often it was said.
    n: int = 1
    #: What did not work; empty: nothing was tried.
    action: str = ""


class MessageArea:
    """The messages of one panel, newest first; any thread may add one.

    Parameters
    ----------
    told
        Called with each new message, by the thread that says it.
    """

    def __init__(self, on_message: Callable[[Message], None] = lambda message: None) -> None:
        self._told = on_message
        self._lock = threading.Lock()
        self._messages: list[Message] = []

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._messages))

    def __len__(self) -> int:
        return len(self._messages)

    def say(self, level: str, text: str, details: str = "", *, action: str = "") -> None:
        """Add a message; the same as one that is there already counts one more."""
        with self._lock:
            new = Message(level=level, text=text, details=details, action=action)
            same = next((m for m in self._messages if (m.level, m.text) == (level, text)), None)
            if same is not None:
                self._messages.remove(same)
                new = replace(new, n=same.n + 1)
            self._messages = [new, *self._messages][:_MOST]
        self._told(new)

    def failed(self, action: str, error: BaseException) -> str:
        """Add a message that something did not work; return the sentence."""
        text = f"{action}: {sentence_of(error)}"
        expected = isinstance(error, InputError | PeerError)
        details = "" if expected else "".join(traceback.format_exception(error))
        _LOG.log(logging.INFO if expected else logging.ERROR, text, exc_info=None if expected else error)
        self.say("error", text, details, action=action)
        return text

    def worked(self, action: str) -> None:
        """Withdraw what was said of an action that had not worked: its cause is gone."""
        if any(message.action == action for message in self._messages):
            with self._lock:
                self._messages = [message for message in self._messages if message.action != action]

    @contextmanager
    def guard(self, action: str) -> Iterator[None]:
        """Turn an exception into a message."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told in the panel: nobody else would hear of it
            self.failed(action, error)
        else:
            self.worked(action)


def sentence_of(error: BaseException) -> str:
    """Return an exception in one line: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError | PeerError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""Try the environment that is typed on the cluster before Start is pressed."""

import time
from collections.abc import Callable

from drlnb.fleet.tasks.launch_form import LaunchForm
from drlnb.records.errors import EnvError
from drlnb.widgets.transport.commands import Args, Command, Commands
from drlnb.widgets.transport.messages import MessageArea

__all__ = ["Trial"]

#: Seconds after the last key before an environment is tried: nobody wants every prefix of a name built.
_PAUSE_S = 0.5


class Trial:
    """What is known of the environments that were typed.

    Parameters
    ----------
    probe
        Builds an environment on the cluster and returns its spaces; takes seconds, raises EnvError.
    messages
        Where other failures are told.
    changed
        Called when there is something new to say.
    """

    def __init__(self, probe: Callable[[str], Args], messages: MessageArea, changed: Callable[[], None]) -> None:
        self._probe = probe
        self._changed = changed
        #: A thread of its own: a slow environment must not keep a click waiting.
        self._commands = Commands(messages)
        self._commands.add("try", Command(label="try the environment", run=self._try))
        self._spaces: dict[str, Args] = {}
        #: (environment, algorithm) -> why it cannot be trained; empty if it can.
        self._unfit: dict[tuple[str, str], str] = {}
        self._asked: set[tuple[str, str]] = set()
        self._typed: tuple[tuple[str, str], float] | None = None

    def refused(self, form: LaunchForm, why: str) -> None:
        """Keep why the cluster refused when the form was started."""
        self._unfit[_key(form)] = why

    def problem(self, form: LaunchForm) -> str:
        """Return why the form's algorithm cannot be trained on its environment, empty as far as that is known."""
        return self._unfit.get(_key(form), "")

    def typed(self, form: LaunchForm | None) -> None:
        """Keep what stands in the form; None: a name that nobody knows, or half of one."""
        self._typed = None if form is None else (_key(form), time.monotonic())

    def tick(self, now_s: float) -> None:
        """Try what was typed, once nothing has changed for a moment; returns at once."""
        if self._typed is None or now_s - self._typed[1] < _PAUSE_S:
            return
        key, self._typed = self._typed[0], None
        if key not in self._asked:
            self._asked.add(key)
            content = {"id": "\n".join(key), "name": "try", "args": {"env": key[0], "algo": key[1]}}
            self._commands.receive(content, lambda reply: None)

    def _try(self, args: Args) -> None:
        form = LaunchForm(env=args["env"], algo=args["algo"])
        try:
            if form.env not in self._spaces:
                self._spaces[form.env] = self._probe(form.env)
            self._unfit[_key(form)] = form.unfit(self._spaces[form.env])
        except EnvError as error:
            self._unfit[_key(form)] = str(error)
        except Exception:
            self._asked.discard(_key(form))  # the cluster's fault, not the environment's: it is tried again
            raise
        self._changed()

    def close(self) -> None:
        """Wait for the environment that is being tried."""
        self._commands.join()


def _key(form: LaunchForm) -> tuple[str, str]:
    return form.env.strip(), form.algo

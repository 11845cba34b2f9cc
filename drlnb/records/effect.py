"""Name the moments from which a changed setting counts; settings are declared with one of them."""

from collections.abc import Mapping

__all__ = ["AT_ONCE", "NEXT_GRANT", "NEXT_LOOK", "NEXT_PLACEMENT", "NEXT_ROUND", "takes_effect"]

#: Whoever decides next decides by it.
AT_ONCE = "at once"
#: The pool looks now and then; the look that is due comes by the former value.
NEXT_LOOK = "from the next look on"
#: It goes to a holder with its grant, and stays his until that lease ends.
NEXT_GRANT = "from the next grant on"
#: Collectors are placed when an attempt starts, and when a node is lost.
NEXT_PLACEMENT = "from the next placement on"
#: A round has one set of settings.
NEXT_ROUND = "from the next round on"

#: Keys that do not count at once.  What goes to a holder with its grant counts from its next one on; docs/reference/
#: settings.md is checked against this.
_LATER: Mapping[str, str] = {
    "leasing.hold": NEXT_ROUND,
    "leasing.ttl_s": NEXT_GRANT,
    "leasing.holder_ttl_s": NEXT_GRANT,
    "leasing.renew_s": NEXT_GRANT,
    "leasing.max_hold_s": NEXT_GRANT,
    "leasing.max_hold_factor": NEXT_GRANT,
    "leasing.compute_timeout_s": NEXT_GRANT,
    "leasing.residency": NEXT_GRANT,
    "leasing.poll_s": NEXT_LOOK,
    "leasing.lost_polls": NEXT_LOOK,
    "leasing.reap_s": NEXT_LOOK,
}
#: Rooms of which every setting counts from a round's begin on.
_OF_ROUNDS = ("warmup.", "rl.")


def takes_effect(key: str) -> str:
    """Return from when on a change of a setting counts, in words that end a sentence.

    Examples
    --------
    >>> takes_effect("task.priority"), takes_effect("leasing.ttl_s"), takes_effect("rl.learning_rate")
    ('at once', 'from the next grant on', 'from the next round on')
    """
    return NEXT_ROUND if key.startswith(_OF_ROUNDS) else _LATER.get(key, AT_ONCE)

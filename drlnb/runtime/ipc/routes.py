"""Follow what came of a range of bytes at each host of its route, from the answers that come back along it."""

from collections.abc import Iterator

from drlnb.planning.distribution import below
from drlnb.records.columns.distribution import Route
from drlnb.runtime.protocol import Plain

__all__ = ["route_results"]


def route_results(host: str, children: Route, reply: Plain, elapsed_s: float) -> Iterator[Plain]:
    """Yield what came of a range at each host of its route.

    Parameters
    ----------
    host, children
        The host that it was sent to, and the hosts below: ``(host, children)`` pairs.
    reply
        The host's answer, or ``refused`` with the reason.
    elapsed_s
        Seconds from the sending to the answer, at the sender.

    Yields
    ------
    dict
        ``host``; ``whole``, whether it holds the version; ``after_s``, seconds from the sending until it had kept the
        range; ``reason`` if it was not reached, and ``relay`` if that was because another host was not.
    """
    if reply.get("refused"):
        reason = str(reply["refused"])
        yield {"host": host, "whole": False, "after_s": elapsed_s, "reason": reason, "relay": ""}
        for cut_off in below(children):
            text = f"cut off: {host} was not reached ({reason})"
            yield {"host": cut_off, "whole": False, "after_s": elapsed_s, "reason": text, "relay": host}
        return
    way_s = elapsed_s - reply["all_s"]
    yield {"host": host, "whole": reply["whole"], "after_s": way_s + reply["own_s"], "reason": "", "relay": ""}
    for row in reply["below"]:
        yield {**row, "after_s": way_s + row["after_s"]}

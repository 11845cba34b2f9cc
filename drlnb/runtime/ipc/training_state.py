"""Take out of a training state what only the slot needs that makes the steps."""

import json
from itertools import accumulate
from operator import itemgetter

from drlnb.records.base import Facts
from drlnb.runtime.protocol import Payload

__all__ = ["OPTIMIZER", "without_optimizer"]

#: What the names of an optimiser's tensors begin with.
OPTIMIZER = "optimizer/"


def without_optimizer(facts: Facts, state: Payload) -> tuple[Facts, bytes]:
    """Return a training state of supervised work without what its optimiser keeps of each parameter.

    Parameters
    ----------
    facts, state
        Plain data, and the bytes of a safetensors file; of such a file 8 bytes hold the length of the JSON after them,
        which names the tensors with their first and last byte in the rest.
    """
    view = memoryview(state).cast("B")
    first = 8 + int.from_bytes(view[:8], "little")
    kept = {name: about for name, about in json.loads(bytes(view[8:first])).items() if not name.startswith(OPTIMIZER)}
    parts = [view[first + start : first + stop] for start, stop in map(itemgetter("data_offsets"), kept.values())]
    ends = [0, *accumulate(map(len, parts))]
    named = {name: {**kept[name], "data_offsets": ends[i : i + 2]} for i, name in enumerate(kept)}
    head = json.dumps(named).encode()
    head += b" " * (-len(head) % 8)
    return {**facts, "numbers": {}}, b"".join([len(head).to_bytes(8, "little"), head, *parts])

"""Make tapes and swappers for tests: everything moves, however small, and copies wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch._dynamo  # noqa: F401 - checkpoints load it on first use: seconds that are no test's fault
from torch.autograd.graph import saved_tensors_hooks

from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapPlan, SwapProfile
from drlnb.runtime.swapping.attribution import Attribution
from drlnb.runtime.swapping.client.swapper import Swapper
from drlnb.runtime.swapping.memory import storages_of
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Meter
from drlnb.runtime.swapping.tiers.file import FileTier
from drlnb.runtime.swapping.tiers.slab import SlabTier
from tests.planning.swapping.swap_words import having
from tests.runtime.swapping.checked import CheckedStreams
from tests.runtime.swapping.nets import images, plain_step

TIERS = {
    "file": lambda meter: FileTier(meter, in_flight_bytes=0),
    "checked": lambda meter: SlabTier(meter, CheckedStreams(3), 0),
}


class Step:
    """A tape around code of a test, and the tier that it swaps to."""

    def __init__(self, tier, action=SWAP, min_bytes=0, module=None) -> None:
        self.meter = tier.meter
        self.tier, self.module = tier, module or torch.nn.Identity()
        self.attribution = Attribution(self.module, entered=lambda call: None, left=lambda call, output: None)
        self.tape = Tape(
            self.meter, tier, self.attribution, action=lambda key: action, min_bytes=min_bytes, window_bytes=1 << 30
        )

    @contextmanager
    def open(self) -> Iterator[Tape]:
        """Open a step."""
        self.tape.begin(storages_of(self.module)[0])
        try:
            with self.attribution, saved_tensors_hooks(self.tape.pack, self.tape.unpack):
                yield self.tape
        finally:
            self.tape.end()

    def away(self) -> None:
        """Part with what nobody else has, and wait until every copy out is done."""
        self.tape.part(with_all=True)
        while self.tier.relieve():
            pass

    @property
    def n_places(self) -> int:
        """Places of the tier that are taken."""
        return self.tier.places.n_taken


@contextmanager
def stepping(action=SWAP, tier="file", **more) -> Iterator[Step]:
    """Give a rig, and end its tier."""
    made = TIERS[tier](Meter())
    try:
        yield Step(made, action, **more)
    finally:
        made.close()


@contextmanager
def swapper(net, *, planner="all", tier="file", min_bytes=0, **more) -> Iterator[Swapper]:
    """Give a swapper that moves everything, and close it."""
    with Swapper(net, planner=planner, tier=TIERS.get(tier, tier), min_bytes=min_bytes, **more) as made:
        yield made


def everywhere(profile: SwapProfile, action: str) -> SwapPlan:
    """Return the plan that does the same with every row that allows it."""
    kept = SwapPlan.keeping(profile)
    if action == BLOCK:
        chosen: list = []
        for block in sorted(profile.blocks, key=lambda each: -len(each.rows)):
            if not any(_within(block.path, other.path) or set(block.rows) & set(other.rows) for other in chosen):
                chosen.append(block)
        inside = {key for block in chosen for key in block.rows}
        actions = tuple([BLOCK if key in inside else KEEP for key in kept.keys])
        return replace(kept, blocks=tuple([block.path for block in chosen]), actions=actions)
    actions: dict = {}
    for row in profile.rows:
        allowed = action in row.actions and not (action == DERIVE and actions[row.derive_from] == DERIVE)
        actions[row.key] = action if allowed else KEEP
    return having(kept, actions)


def _within(one: str, other: str) -> bool:
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def profiled(made: Swapper, net, x, autocast=False) -> SwapProfile:
    """Record one step, random numbers and buffers as before."""
    before = {name: each.clone() for name, each in net.named_buffers()}
    random = torch.get_rng_state()
    profile = made.profile(lambda n: plain_step(net, x, autocast), batches=(len(x),))
    torch.set_rng_state(random)
    for name, each in net.named_buffers():
        each.copy_(before[name])
    net.zero_grad()
    return profile


__all__ = ["SQUEEZE", "Step", "everywhere", "images", "profiled", "stepping", "swapper"]

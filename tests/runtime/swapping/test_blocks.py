"""Blocks: forward passes are made again only where a trial has shown that this changes nothing, and nobody sees it."""

import copy
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from drlnb.planning.swapping.profile import BLOCK
from drlnb.runtime.swapping.blocks.state import Unknowable, everything
from tests.runtime.swapping.nets import differing, made, state
from tests.runtime.swapping.rig import everywhere, swapper


class Part(nn.Module):
    """Two layers and something beside them."""

    def __init__(self, beside=lambda self, y: y, **attributes) -> None:
        super().__init__()
        self.one, self.other, self.beside = nn.Linear(8, 8), nn.Linear(8, 8), beside
        for name, each in attributes.items():
            setattr(self, name, each)

    def forward(self, x):
        return x + self.other(functional.gelu(self.beside(self, self.one(x))))


class Meter:
    """Counts, as many classes of that name do."""

    n = 0

    def update(self):
        self.n += 1


class Unseen:
    """Something that pickle sees nothing of, and that copies have in common."""

    now, numbers = False, iter([*range(1, 99)])

    def __reduce__(self):
        return "UNSEEN"


UNSEEN = Unseen()


class Remembering(nn.Module):
    """A part that keeps in mind what its base class gave."""

    def __init__(self, part) -> None:
        super().__init__()
        self.part = part

    def forward(self, x, *, scale=1.0):
        return self.part(x) * scale


def net_of(beside=lambda self, y: y, **attributes):
    torch.manual_seed(0)
    parts = [Part(beside, **attributes) for _ in range(2)]
    return nn.Sequential(*parts, nn.Linear(8, 3))


def step_of(net, i=0):
    net.zero_grad()
    torch.manual_seed(i)
    net(torch.randn(4, 8)).square().mean().backward()


def offered(net, step=step_of):
    """Return the paths of blocks that a profile offers."""
    with swapper(net) as swap:
        return [block.path for block in swap.profile(lambda n: step(net), batches=(4,)).blocks]


def counted(self, y):
    self.n += 1
    return y


def listed(self, y):
    self.seen.append(1)
    return y


def added(self, y):
    with torch.no_grad():
        self.counter.add_(1)
    return y


def kept(self, y):
    self.last = y.detach()
    return y


COUNT = [0]


def globally(self, y):
    COUNT[0] += 1
    return y


STATES = {
    "an attribute": (counted, lambda: {"n": 0}),
    "a list": (listed, lambda: {"seen": []}),
    "a frozen parameter": (added, lambda: {"counter": nn.Parameter(torch.zeros(()), requires_grad=False)}),
    "a tensor": (added, lambda: {"counter": torch.zeros(())}),
    "what it has made": (kept, lambda: {"last": None}),
    "a global name": (globally, dict),
    "a parameter's data": (lambda self, y: (self.one.weight.data.mul_(0.9), y)[1], dict),
    "an object's attribute": (lambda self, y: (self.meter.update(), y)[1], lambda: {"meter": Meter()}),
}
DRAWS = {
    "random": (lambda self, y: y * random.random(), dict),
    "numpy": (lambda self, y: y * float(np.random.rand()), dict),  # noqa: NPY002
    "a generator": (lambda self, y: y + torch.rand(8, generator=self.own), lambda: {"own": torch.Generator()}),
    "numpy's generator": (lambda self, y: y * self.own.random(), lambda: {"own": np.random.default_rng(0)}),
    "Python's generator": (lambda self, y: y if self.own.random() < 0.01 else -y, lambda: {"own": random.Random(0)}),
    "an iterator": (lambda self, y: y * next(self.own), lambda: {"own": iter([*range(1, 99)])}),
}


@pytest.mark.parametrize("case", [*STATES, *DRAWS])
def test_what_changes_or_draws_is_not_offered(case):
    """Whatever form the state has; batch statistics and torch's own draws are another matter."""
    beside, attributes = {**STATES, **DRAWS}[case]
    assert offered(net_of(beside, **attributes())) == []


def test_what_changes_nothing_is_offered():
    """Plain parts, dropout, batch statistics, buffers that are only read, hooks, and a mask that is made once."""

    def masked(self, y):
        if self.mask is None:
            self.mask = torch.ones(8)
        return self.norm(self.drop(y * self.mask + self.table))

    net = net_of(masked, mask=None, norm=nn.BatchNorm1d(8), drop=nn.Dropout(0.5))
    for part in net[:2]:
        part.register_buffer("table", torch.arange(8.0))
        part.one.register_forward_hook(lambda module, args, out: out * 2)
    assert offered(net) == ["0", "1"]


def test_what_returns_other_numbers_when_it_is_made_again_is_not_offered():
    """Nobody sees where they come from: the clock, say."""
    assert offered(net_of(lambda self, y: y * next(self.unseen.numbers), unseen=UNSEEN)) == []


def test_what_cannot_be_compared_is_not_offered():
    """A lock, say: nobody can tell what is behind it."""
    with pytest.raises(Unknowable, match=r"cannot pickle '_thread.lock' object"):
        everything([__import__("threading").Lock()])
    assert offered(net_of(lambda self, y: y, out=(each for each in ()))) == []


@pytest.mark.parametrize("case", [*STATES, *DRAWS])
def test_a_trial_changes_nothing(case):
    """Bits, batch statistics and all draws of recorded steps are plain's, whatever comes of the trial."""
    for beside, attributes in [{**STATES, **DRAWS}[case]]:
        seen = []
        for recorded in (False, True):
            net, COUNT[0] = net_of(beside, **attributes()), 0
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            if recorded:
                with swapper(net) as swap:
                    swap.profile(lambda n, net=net: step_of(net), batches=(4,))
            else:
                for _ in range(3):
                    step_of(net)
            drawn = random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
            seen.append((state(net), *drawn, COUNT[0], vars(net[0]).get("n")))
        assert differing(seen[0][0], seen[1][0]) == []
        assert seen[0][1:] == seen[1][1:]


def blocked(net, step=step_of):
    """Return a swapper whose plan makes every block again."""
    made_swapper = swapper(net)
    swap = made_swapper.__enter__()
    swap.apply(everywhere(swap.profile(lambda n: step(net), batches=(4,)), BLOCK))
    assert swap.report().plan.blocks
    return made_swapper, swap


def test_a_copy_within_the_step_is_a_network_of_its_own():
    """Deep, shallow or pickled: it has no part of the original, whose class is as before after the step."""
    net = net_of()
    forward = vars(Part)["forward"]
    context, swap = blocked(net)
    with swap.step():
        out = net(torch.ones(4, 8))
        copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net[2])), copy.copy(net[0])]
        assert "forward" not in vars(net[0])
        with torch.no_grad():
            copies[0][0].one.weight.zero_()
            assert not torch.equal(copies[0](torch.ones(4, 8)), out)
            assert torch.equal(net(torch.ones(4, 8)), out)
        assert vars(copies[2]) == vars(net[0])
        out.sum().backward()
    assert vars(Part)["forward"] is forward
    context.__exit__(None, None, None)


def test_a_class_that_inherits_its_forward_pass_does_so_again_after_the_step():
    """And within it, its block is made again once, not once for each class."""

    class Child(Part):
        pass

    class Grandchild(Child):
        def forward(self, x):
            return super().forward(x) * 2

    torch.manual_seed(0)
    net = nn.Sequential(Child(), Grandchild(), nn.Linear(8, 3))
    plain = copy.deepcopy(net)
    context, swap = blocked(net)
    step_of(plain)
    with swap.step():
        step_of(net)
    assert differing(state(plain), state(net)) == []
    assert "forward" not in vars(Child)
    context.__exit__(None, None, None)


def test_each_manner_of_working_is_tried_out():
    """What was shown in training says nothing of evaluation: there a block is tried out first, and then made again."""
    net = net_of(lambda self, y: y + (torch.rand(8) if self.training else 0))
    context, swap = blocked(net)
    saved = []
    for i in range(3):
        net.eval()
        with swap.step() as told:
            step_of(net, i)
        saved.append(told.n_saved)
    assert saved[0] > saved[1] == saved[2]
    context.__exit__(None, None, None)


def test_what_begins_to_count_is_left_alone_with_one_warning():
    """A schedule that an attribute shows: from then on the block's tensors stay."""

    def late(self, y):
        if self.begun:
            self.n += 1
        return y

    net = net_of(late, begun=False, n=0)
    context, swap = blocked(net)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(12):
            net[0].begun = i > 1
            with swap.step():
                step_of(net, i)
    assert net[0].n == 10
    assert [str(each.message) for each in seen] == [
        "block '0' is not made again, what it saves stays: its forward pass changes what it refers to"
    ]
    context.__exit__(None, None, None)


def test_what_begins_to_draw_unseen_raises(monkeypatch):
    """Its activations are gone by then: an error, where the gradient would be wrong."""
    net = net_of(lambda self, y: y * random.random() if self.unseen.now else y, unseen=UNSEEN)
    context, swap = blocked(net)
    monkeypatch.setattr(UNSEEN, "now", True)
    with swap.step(), pytest.raises(RuntimeError, match="block '1' draws numbers of Python or numpy, as it did"):
        step_of(net)
    context.__exit__(None, None, None)


def test_a_block_is_made_again_as_it_was():
    """Toggled, reparametrised or rescaled between the two passes: plain's gradients."""

    def passes(net):
        net.zero_grad()
        net.train()
        torch.manual_seed(3)
        other = {name: each * 1.5 for name, each in net.named_parameters()}
        value = net(torch.randn(4, 8)).sum() + torch.func.functional_call(net, other, (torch.randn(4, 8),)).sum()
        net.eval()
        net[0].scale = 5.0
        value.backward()
        net[0].scale = 1.0

    def beside(self, y):
        return self.drop(y) * self.scale

    net = net_of(beside, drop=nn.Dropout(0.5), scale=1.0)
    plain = copy.deepcopy(net)
    context, swap = blocked(net, lambda net: step_of(net.train()))
    with swap.step():
        passes(net)
    passes(plain)
    assert differing(state(plain), state(net)) == []
    context.__exit__(None, None, None)


def test_a_block_is_made_again_where_it_made_its_tensors():
    """The default device of the forward pass is in force once more: torch leaves it aside within backward passes."""

    def beside(self, y):
        return y * (2.0 if torch.empty(0).device.type == "meta" else 1.0)

    def passes(net):
        net.zero_grad()
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
        with torch.device("meta"):
            value = net(x).sum()
        value.backward()

    net = net_of(beside)
    plain = copy.deepcopy(net)
    context, swap = blocked(net, passes)
    with swap.step():
        passes(net)
    passes(plain)
    assert differing(state(plain), state(net)) == []
    context.__exit__(None, None, None)


def test_a_plan_that_nobody_has_tried_out_is_tried_first(tmp_path):
    """It is from a file, so another process has: the first step keeps what the block saves, the second one does not."""
    plan = tmp_path / "plan.json"
    net = made("residual")
    x = torch.randn(2, 3, 32, 32)

    def step():
        net.zero_grad()
        net(x).square().mean().backward()

    with swapper(net) as swap:
        swap.apply(everywhere(swap.profile(lambda n: step(), batches=(2,)), BLOCK))
        swap.save(plan)
    before = {name: each.clone() for name, each in net.state_dict().items()}
    step()
    plain, saved = state(net), []
    with swapper(net) as swap:
        swap.load(plan)
        for _ in range(3):
            net.load_state_dict(before)
            with swap.step() as told:
                step()
            saved.append(told.n_saved)
            assert differing(plain, state(net)) == []
    assert saved[0] > saved[1] == saved[2]


def test_a_block_that_fails_its_trial_is_said_once_and_its_tensors_stay():
    """A plan for a module whose blocks count since: nothing is wrong, and the reason is told."""
    net, counting = net_of(n=0), net_of(counted, n=0)
    context, swap = blocked(net)
    plan = swap.report().plan
    context.__exit__(None, None, None)
    with swapper(counting) as swap:
        swap.apply(plan)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(20):
                with swap.step():
                    step_of(counting)
    said = "is not made again, what it saves stays: its forward pass changes what it refers to"
    assert [str(each.message) for each in seen] == [f"block '{path}' {said}" for path in "01"]
    assert [part.n for part in counting[:2]] == [20, 20]


def test_keywords_are_seen():
    """A block that is called by keywords is made again with them."""
    net, x = nn.Sequential(Remembering(Part()), nn.Linear(8, 3)), torch.randn(4, 8)
    plain = copy.deepcopy(net)

    def step(net):
        net.zero_grad()
        net[1](net[0](x, scale=3.0)).sum().backward()

    context, swap = blocked(net, step)
    with swap.step():
        step(net)
    step(plain)
    assert differing(state(plain), state(net)) == []
    context.__exit__(None, None, None)

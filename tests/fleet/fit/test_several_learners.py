"""What `fleet.fit` says to several learners: which losses and modules they can share, and which settings they have."""

import random
import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.fleet.fit import fit
from drlnb.records.errors import ConfigError
from drlnb.rl.objectives.denominators import Divided, divided
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, Door

F = nn.functional
CROSS_ENTROPY, MSE = F.cross_entropy, F.mse_loss


def plain_net(*more, width=2):
    """Return a module that neither mixes samples nor draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), *more, nn.Linear(16, width))


def zeros(layer):
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def asked(module=None, dataset=None, loss=CROSS_ENTROPY, optimizer=torch.optim.Adam, **more):
    """Put work of two learners through the door; return what was begun."""
    door = Door()
    given = {**ADAM, "n_learners": 2, **more}
    fit(door, module or plain_net(), dataset or work.table(), loss, optimizer, **given)
    return door.begun[0]


def refused(**given):
    with pytest.raises(ConfigError) as caught:
        asked(**given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- what is refused by its value ------------------------------------------------------------------------------------
QUORUM = "batching.quorum: quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 on, got "
ALL = "has no effect while quorum is {}: all {}are waited for"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_learners": 0}, "n_learners must be a whole number in 1..64, got 0"),
        ({"n_learners": 65}, "n_learners must be a whole number in 1..64, got 65"),
        ({"n_learners": "2"}, "n_learners must be a whole number in 1..64, got '2'"),
        ({"n_learners": True}, "n_learners must be a whole number in 1..64, got True"),
        ({"n_learners": 10}, "batch_size must be >= n_learners = 10, got 9: samples are not divided"),
        ({"exact": 1}, "exact must be true or false, got 1"),
        ({"settings": {"batching.quorum": 0}}, QUORUM + "0"),
        ({"settings": {"batching.quorum": 1}}, QUORUM + "1"),
        ({"settings": {"batching.quorum": True}}, QUORUM + "True"),
        ({"settings": {"batching.quorum": 1.5}}, QUORUM + "1.5"),
        ({"settings": {"batching.quorum": float("nan")}}, QUORUM + "nan"),
        (
            {"settings": {"batching.quorum": 3}},
            "batching.quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 2, got 3",
        ),
        ({"settings": {"batching.late": "slow"}}, "batching.late: late must be one of cut, drop, got 'slow'"),
        ({"settings": {"batching.late": "drop"}}, "batching.late " + ALL.format(1.0, "")),
        ({"settings": {"batching.deadline_s": 0.1}}, "batching.deadline_s " + ALL.format(1.0, "")),
        (
            {"settings": {"batching.quorum": 0.75, "batching.max_age_s": 1.0}},
            "batching.max_age_s " + ALL.format(0.75, "2 "),
        ),
        (
            {"settings": {"batching.quorum": 0.5, "batching.deadline_s": -1}},
            "batching.deadline_s: deadline_s must be a number from 0 to 1e9, or none, got -1",
        ),
        ({"planners": {"collect": "equal"}}, "collect has no effect on supervised work: it has no collectors"),
        (
            {"settings": {"batching.collect": "equal"}},
            "batching.collect has no effect on supervised work: it has no collectors",
        ),
        ({"planners": {"batching": "best"}}, "batching planner must be one of equal, "),
        (
            {"n_learners": 1, "planners": {"batching": "ewma"}},
            "batching has no effect on supervised work: it has one learner and no collectors",
        ),
        (
            {"n_learners": 1, "settings": {"batching.quorum": 0.5}},
            "batching.quorum has no effect on supervised work: it has one learner and no collectors",
        ),
        (
            {"exact": True, "settings": {"batching.quorum": 0.5}},
            "exact=True needs every sample of a step: batching.quorum must be 1.0 (all), got 0.5",
        ),
    ],
)
def test_a_wrong_value_is_one_line(given, said):
    assert refused(**given).startswith(said)


def test_what_is_good_reaches_the_rounds():
    """Learners in the task, settings and planner in the run, as the round machine is configured."""
    late = {"batching.quorum": 0.5, "batching.deadline_s": 0.1, "batching.max_age_s": 2.0, "batching.late": "drop"}
    begun = asked(planners={"batching": "ewma"}, settings=late)
    assert begun.task.n_learners == 2
    assert begun.spec.planners["batching"] == "ewma"
    assert begun.spec.settings == {"batching": {"quorum": 0.5, "deadline_s": 0.1, "max_age_s": 2.0, "late": "drop"}}
    assert asked(n_learners=3, settings={"batching.quorum": 2, "batching.late": "drop"}).task.n_learners == 3


# -- the law of the loss ---------------------------------------------------------------------------------------------
def masked_table():
    """Return samples of which some have no class, more of the first three of the order than of the next six."""
    inputs, targets = work.tensors()
    order = np.random.default_rng((0, 0)).permutation(work.N_SAMPLES)
    targets[order[[0, 2, 4, *range(20, 40)]].tolist()] = -100
    return TensorDataset(inputs, targets)


def total(ours, theirs):
    return CROSS_ENTROPY(ours, theirs, reduction="sum")


def contrastive(ours, theirs):
    """Each sample against all others of its batch."""
    return CROSS_ENTROPY(ours @ ours.T, torch.arange(len(ours)))


def masked(ours, theirs):
    return CROSS_ENTROPY(ours, theirs)  # whose mean is over what is not masked, and nobody sees that from outside


def with_denominator(ours, theirs):
    return masked(ours, theirs), (theirs != -100).sum()


def squared(ours, theirs):
    return MSE(ours[:, 0], theirs.float())


@pytest.mark.parametrize(
    ("given", "n"),
    [
        ({"loss": total}, 9),
        ({"loss": contrastive}, 9),
        ({"loss": masked, "dataset": masked_table()}, 9),
        ({"loss": lambda ours, theirs: (masked(ours, theirs), 1.0)}, 9),
        ({"loss": nn.CrossEntropyLoss(reduction="sum")}, 9),
        ({"loss": partial(CROSS_ENTROPY, reduction="sum")}, 9),
        ({"loss": lambda ours, theirs: squared(ours, theirs).sqrt()}, 9),
        ({"loss": lambda ours, theirs: CROSS_ENTROPY(ours, theirs, weight=torch.tensor([1.0, 5.0]))}, 9),
        ({"module": nn.Sequential(plain_net(), nn.Softmax(0))}, 9),
        ({"module": zeros(plain_net()), "loss": masked, "dataset": masked_table()}, 9),
        ({"loss": total, "batch_size": 50}, 32),
        ({"loss": total, "batch_size": 2}, 2),
    ],
)
def test_a_loss_whose_parts_mean_something_else_is_refused(given, n):
    """Sums, losses among samples, masks that nobody names, weights of classes, layers that mix samples."""
    said = refused(**given)
    assert re.match(rf"loss of the first {n} samples is [\d.e+-]+, but [\d.e+-]+ as the mean of two parts", said)
    assert said.endswith("take n_learners=1")
    assert "(loss, denominator)" in said
    assert asked(**{**given, "n_learners": 1}).task.n_learners == 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"loss": squared},
        {"loss": with_denominator, "dataset": masked_table()},
        {"loss": CROSS_ENTROPY, "dataset": masked_table()},
        {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0])), "dataset": masked_table()},
        {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]), label_smoothing=0.2)},
        {"loss": partial(CROSS_ENTROPY, weight=torch.tensor([1.0, 5.0]), ignore_index=1)},
        {"loss": nn.NLLLoss(ignore_index=0), "module": nn.Sequential(plain_net(), nn.LogSoftmax(1))},
        {"module": plain_net().double(), "dataset": TensorDataset(work.tensors()[0].double(), work.tensors()[1])},
        {"module": plain_net().bfloat16(), "dataset": TensorDataset(work.tensors()[0].bfloat16(), work.tensors()[1])},
        {"loss": lambda ours, theirs: 0.0 * squared(ours, theirs)},
        {"module": nn.Sequential(nn.Flatten(), *[zeros(nn.Linear(10, 2))])},
    ],
)
def test_a_mean_over_samples_or_over_what_it_says_is_taken(given):
    assert asked(**given).task.n_learners == 2


def test_all_that_is_masked_counts_nothing():
    """The first part of the samples has only what does not count: 0/0, which must not spoil the mean."""
    order = np.random.default_rng((0, 0)).permutation(work.N_SAMPLES)
    inputs, targets = work.tensors()
    targets[order[:3].tolist()] = -100
    half_masked = TensorDataset(inputs, targets)
    assert asked(dataset=half_masked).task.n_learners == 2
    assert asked(dataset=half_masked, loss=with_denominator).task.n_learners == 2
    assert "but nan as the mean of two parts of them" in refused(dataset=half_masked, loss=masked)
    targets[order[:9].tolist()] = -100
    assert refused(dataset=TensorDataset(inputs, targets)).startswith("loss is nan for the first 9 samples, so nobody")


def test_a_decay_of_weights_in_the_loss_is_no_matter():
    """It is the same in each part, so in their mean."""
    module = plain_net()

    def decayed(ours, theirs):
        return CROSS_ENTROPY(ours, theirs) + 0.1 * sum(each.square().sum() for each in module.parameters())

    assert asked(module=module, loss=decayed).task.n_learners == 2


class Halved(torch.autograd.Function):
    """Is the identity, and halves gradients above some size."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.where(gradient.abs() > 0.1, 0.5, 1.0)


def hooked(hook):
    def made(parameters, lr):
        parameters = list(parameters)
        for parameter in parameters:
            parameter.register_hook(hook)
        return torch.optim.Adam(parameters, lr=lr)

    return made


@pytest.mark.parametrize(
    "given",
    [
        {"loss": lambda ours, theirs: (each := squared(ours, theirs)) / each.detach()},
        {"loss": lambda ours, theirs: CROSS_ENTROPY(Halved.apply(ours), theirs)},
        {"optimizer": hooked(lambda gradient: gradient.clamp(-0.01, 0.01))},
        {"optimizer": hooked(lambda gradient: gradient / gradient.norm())},
    ],
)
def test_a_gradient_whose_parts_mean_something_else_is_refused(given):
    """Where the loss is a mean, and its gradient is not: balanced losses, own backward passes, hooks that clip."""
    assert re.match(r"gradient of the first 9 samples is \d+% off the mean of two parts of them", refused(**given))
    assert asked(**{**given, "n_learners": 1}).task.n_learners == 1


def test_a_hook_that_treats_each_sample_by_itself_is_no_matter():
    assert asked(optimizer=hooked(lambda gradient: 0.5 * gradient)).task.n_learners == 2


class Drawing(nn.Module):
    """Adds noise, in evaluation mode, too, if it is told so."""

    def __init__(self, always):
        super().__init__()
        self.always = always

    def forward(self, inputs):
        return inputs + torch.randn_like(inputs) if self.always or self.training else inputs


def test_what_cannot_be_tried_is_refused_with_the_reason():
    said = refused(module=plain_net(Drawing(always=True)))
    assert said.startswith("module or loss draws random numbers in evaluation mode, so nobody can see whether several")
    assert asked(module=plain_net(Drawing(always=False))).task.n_learners == 2
    said = refused(module=plain_net(width=1), loss=CROSS_ENTROPY)
    assert said.startswith(
        "module and loss cannot be tried here on 9 samples, on the CPU and in evaluation mode, which"
    )
    assert ": IndexError: Target 1 is out of bounds" in said
    vector = refused(loss=partial(CROSS_ENTROPY, reduction="none"))
    assert vector.endswith("TypeError: loss must return a tensor without axes, such as a mean, got shape (9,)")
    for denominator in (-1, float("inf")):
        said = refused(loss=lambda ours, theirs, d=denominator: (masked(ours, theirs), d))
        assert said.endswith(f"TypeError: the denominator of loss must be a number from 0 on, got {denominator}")


class Scaled(nn.Module):
    """Has a parameter that may have one value alone."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs):
        if self.scale.item() != 1.0:
            raise ValueError("no such scale")
        return inputs


class Broken(TensorDataset):
    """Cannot read one of its samples, not the first one."""

    def __getitem__(self, index):
        if index == np.random.default_rng((0, 0)).permutation(work.N_SAMPLES)[4]:
            raise KeyError("no such file")
        return super().__getitem__(index)


def test_a_module_that_cannot_have_other_numbers_is_tried_with_its_own():
    assert asked(module=plain_net(Scaled())).task.n_learners == 2
    assert refused(module=plain_net(Scaled()), loss=total).startswith("loss of the first 9 samples is ")


def test_a_sample_that_cannot_be_read_is_told():
    assert refused(dataset=Broken(*work.tensors())) == "dataset cannot be read: KeyError: 'no such file'"


def test_the_trial_leaves_everything_as_it_is():
    """Parameters, buffers, the loss's own state, random numbers, modes and gradients."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_calls = 0

        def forward(self, ours, theirs):
            self.n_calls += 1
            return CROSS_ENTROPY(ours, theirs)

    module, loss = work.net(), Counting()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random.seed(3), np.random.seed(3), torch.manual_seed(3)  # noqa: NPY002
    wanted = random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002
    random.seed(3), np.random.seed(3), torch.manual_seed(3)  # noqa: NPY002
    with pytest.warns(RuntimeWarning, match="normalises"), pytest.warns(RuntimeWarning, match=r"^loss.n_calls changes"):
        asked(module=module, loss=loss)
    assert (random.random(), np.random.random(), torch.rand(1).item()) == wanted  # noqa: NPY002
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert loss.n_calls == 0
    assert module.training
    assert all(each.grad is None for each in module.parameters())


# -- what differs in training mode -----------------------------------------------------------------------------------
NOT_EQUAL = "1 normalises each learner's share by itself: not equal to one big batch (exact=True refuses it)"


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(16), nn.SyncBatchNorm(16)])
def test_norms_of_batches_warn_once_and_are_refused_if_exact(layer):
    module = nn.Sequential(nn.Linear(10, 16), layer, nn.Linear(16, 2))
    if isinstance(layer, nn.BatchNorm1d):  # the other one computes on no CPU in training mode
        with pytest.warns(RuntimeWarning) as told:
            asked(module=module)
        assert [str(each.message) for each in told] == [NOT_EQUAL]
        assert told[0].filename == __file__, "it is told of the line that calls fit"
    assert refused(module=module, exact=True).startswith("exact=True: 1 normalises each learner's share by itself")
    layer.eval()
    assert asked(module=module, exact=True).task.n_learners == 2, "a frozen one mixes nothing"


@pytest.mark.parametrize("layer", [nn.GroupNorm(4, 16), nn.LayerNorm(16), nn.Unflatten(1, (4, 4))])
def test_norms_of_samples_are_no_matter(layer):
    more = [layer] if not isinstance(layer, nn.Unflatten) else [layer, nn.InstanceNorm1d(4), nn.Flatten()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked(module=plain_net(*more), exact=True).task.n_learners == 2


class Centred(nn.Module):
    """Mixes samples in training mode, under a name that nobody knows."""

    def forward(self, inputs):
        return inputs - inputs.mean(0) if self.training else inputs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"module": plain_net(nn.Dropout(0.3))}, "exact=True: in training mode module or loss draws random numbers"),
        ({"module": plain_net(nn.RReLU())}, "exact=True: in training mode module or loss draws random numbers"),
        ({"module": plain_net(Centred())}, "exact=True: in training mode the loss of the first 9 samples is "),
        ({"dataset": work.Noisy()}, "exact=True: the data set draws random numbers, and several learners draw"),
    ],
)
def test_what_differs_from_one_learner_is_refused_if_exact(given, said):
    module = given.get("module") or nn.Sequential(Taken(), plain_net())
    assert refused(**{**given, "module": module, "exact": True}).startswith(said)
    assert asked(**{**given, "module": module}).task.n_learners == 2
    assert asked(**{**given, "module": module, "exact": True, "n_learners": 1}).task.n_learners == 1


class Taken(nn.Module):
    """Takes the tensor out of a mapping."""

    def forward(self, inputs):
        return inputs["x"]


# -- what torch's own losses divide by -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "loss",
    [
        CROSS_ENTROPY,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.5]), ignore_index=0, label_smoothing=0.1),
        partial(CROSS_ENTROPY, weight=torch.tensor([1.0, 5.0, 0.5]), label_smoothing=0.1),
        nn.NLLLoss(weight=torch.tensor([1.0, 5.0, 0.5])),
        F.nll_loss,
    ],
)
@pytest.mark.parametrize("shape", [(), (4,)])
def test_gradients_of_parts_weighted_by_what_they_divide_by_are_that_of_all(loss, shape):
    """As autograd has it of the whole batch, with masks that lie unevenly, and a part that is all masked."""
    numbers = torch.Generator().manual_seed(1)
    output = torch.randn(9, 3, *shape, generator=numbers, dtype=torch.float64).log_softmax(1)
    target = torch.randint(3, (9, *shape), generator=numbers)
    target[0] = target[2:4] = getattr(loss, "ignore_index", -100)
    mine = divided(loss)
    if (weight := getattr(mine, "weight", None)) is not None:
        mine.double()
        loss = mine.loss if isinstance(mine.loss, nn.Module) else partial(mine.loss, weight=weight.double())
        mine.loss = loss
    leaf = output.clone().requires_grad_()
    loss(leaf, target).backward()
    summed, divisor = torch.zeros_like(output), 0.0
    for rows in (slice(0, 1), slice(1, 3), slice(3, 9)):
        part = output[rows].clone().requires_grad_()
        value, denominator = mine(part, target[rows])
        if denominator:
            value.backward()
            summed[rows] += denominator * part.grad
            divisor += float(denominator)
    assert torch.allclose(summed / divisor, leaf.grad, rtol=1e-12, atol=1e-15)


def test_probabilities_of_classes_are_divided_by_samples():
    mine = divided(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0])))
    _, denominator = mine(torch.zeros(4, 2), torch.full((4, 2), 0.5))
    assert denominator == 4.0


@pytest.mark.parametrize(
    "loss",
    [
        squared,
        nn.MSELoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        partial(CROSS_ENTROPY, size_average=True),
        partial(squared, 1),
        type("Own", (nn.CrossEntropyLoss,), {})(),
    ],
)
def test_other_losses_stay_as_they_are(loss):
    assert divided(loss) is loss


def test_a_wrapped_loss_moves_with_its_weights():
    """It is a module, so that a slot's device gets both."""
    mine = divided(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]))).to("meta")
    assert isinstance(mine, Divided)
    assert {mine.weight.device.type, mine.loss.weight.device.type} == {"meta"}

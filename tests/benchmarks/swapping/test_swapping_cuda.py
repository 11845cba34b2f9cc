"""The course of the benchmark ``swapping --device cuda`` with answers that are played, and its parts on the CPU."""

import contextlib

import pytest
import torch
from torch import nn

from benchmarks.benches import BENCHES
from benchmarks.efforts import Swapping
from benchmarks.swapping import cuda, ways
from benchmarks.swapping.ways import WAYS, OwnOffload, Way, offloaded
from drlnb.records.errors import ConfigError

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@without_cuda
def test_without_a_device_nothing_is_measured(tmp_path):
    """One line says why; no file is written."""
    with pytest.raises(ConfigError, match=r"bench swapping --device cuda needs a CUDA device, and torch .* sees none"):
        BENCHES["swapping"].main(["--device", "cuda", "--json", str(tmp_path / "x.json")])
    assert not [*tmp_path.iterdir()]


def test_rows_of_the_device_are_refused_on_the_cpu(capsys):
    """They are named in --rows without --device: a row with the reason, and exit 1."""
    assert BENCHES["swapping"].main(["--rows", "batches,steps,task"]) == 1
    assert capsys.readouterr().out.count("not measured: ValueError: these rows need --device cuda") == 3


# ------------------------------------------------------------------ the largest batch
@pytest.mark.parametrize("most", [1, 2, 7, 99, 100, 101, 640, 5000])
@pytest.mark.parametrize("guess", [0, 1, 100, 4096])
def test_the_largest_batch_is_found_to_one_part_in_fifty(most, guess):
    """From any guess; what is returned was tried and fits, and nothing is tried twice."""
    asked = []

    def fits(n):
        asked.append(n)
        return n <= most

    found = cuda.bracketed(fits, guess)
    assert most - max(1, 0.02 * most) <= found <= most
    assert found in asked
    assert len(set(asked)) == len(asked)


def test_probes_by_hand():
    """From 100 with room for 130: up by quarters to 156, then halves of what is between until a fiftieth is left."""
    asked = []
    assert cuda.bracketed(lambda n: not asked.append(n) and n <= 130, 100) == 130
    assert asked == [100, 125, 156, 140, 132, 128, 130]


def test_where_nothing_fits_there_is_no_batch():
    """Down to a single sample."""
    assert cuda.bracketed(lambda n: False, 5) == 0


def test_a_guess_is_the_cost_models():
    """Plain's batch under the cap of 10.4 GiB is a little below that under 11; all swapped holds several times more."""
    plain, swapped = (cuda.guessed("resnet50_32", planner) for planner in ("none", "all"))
    assert 370 < plain < 418
    assert swapped > 5 * plain


# ------------------------------------------------------------------ rows
def seconds(**more):
    """Return the seconds of each way's steps of a batch; auto takes one."""
    return {way: [2.0, 2.0, 2.0] for way in WAYS} | {"auto": [1.0, 0.9, 1.1]} | more


def barred(rows):
    return {row.id: (row.bar.text(row.unit), row.holds) for row in rows if row.bar}


def test_steps_are_compared_with_plain_and_with_each_rival():
    """200 samples in a second under auto; plain made 160 a second at its largest batch."""
    rows = list(cuda.compared("resnet50_32", 2.0, 200, seconds(save_on_cpu=[2.0], checkpoint=[0.95]), 160.0))
    assert barred(rows) == {
        "speed-resnet50_32-x2.0-auto": ("ratio >= 0.75", True),
        "step-resnet50_32-x2.0-save_on_cpu": ("ratio <= 1/2", True),
        "step-resnet50_32-x2.0-offload": ("ratio <= 0.75", True),
        "step-resnet50_32-x2.0-checkpoint": ("ratio <= 0.97", False),
        "step-resnet50_32-x2.0-best": ("ratio <= 1.02", False),
    }
    by_id = {row.id: row for row in rows}
    assert by_id["speed-resnet50_32-x2.0-auto"].ratio == pytest.approx(200 / 160)
    assert by_id["step-resnet50_32-x2.0-best"].ratio == pytest.approx(1.0 / 0.95)


def test_where_all_fits_plain_is_the_rival():
    """At plain's own batch auto may cost a hundredth; no speed is asked for there."""
    rows = list(cuda.compared("vgg16_224", 1.0, 100, seconds(plain=[0.995]), 100.0))
    assert barred(rows)["step-vgg16_224-x1.0-plain"] == ("ratio <= 1.01", True)
    assert "speed-vgg16_224-x1.0-auto" not in barred(rows)


def test_what_does_not_fit_is_told_and_is_nobodys_rival():
    """A way without steps has a row with the reason; where auto itself has none, its bars are missed by nothing."""
    rows = list(cuda.compared("resnet50_32", 1.4, 200, seconds(plain=[], offload=[]), 160.0))
    reasons = {row.id: (row.not_measured, row.skipped) for row in rows if row.not_measured}
    assert reasons == {
        f"speed-resnet50_32-x1.4-{way}": ("it does not fit", True) for way in ("plain", "offload")
    }  # fmt: skip
    assert "step-resnet50_32-x1.4-offload" not in {row.id for row in rows}
    rows = list(cuda.compared("resnet50_32", 1.4, 200, seconds(auto=[]), 160.0))
    assert {row.holds for row in rows if row.bar} == {None}
    assert not any(row.measured for row in rows if row.id.startswith("step"))


class Played:
    """Children whose answers are known."""

    def __init__(self, monkeypatch, answers):
        self.asked, self.answers = [], answers
        monkeypatch.setattr(cuda, "in_child", self.answer)
        monkeypatch.setattr(cuda, "guessed", lambda net, planner: 100)
        monkeypatch.setattr(cuda, "_LARGEST", {"resnet50_32": 5.0})

    def answer(self, left_s, function, net, way, mode, *given):
        self.asked.append((function.__name__, net, way, mode, *given))
        answer = self.answers(function.__name__, way, *given)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def effort(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return Swapping(device="cuda", mode="tf32")


def test_batches_of_every_way_and_those_at_a_speed(monkeypatch, effort):
    """Plain holds 100 at 50 samples a second; auto 600, 300 at four fifths of that; a way that fails says so."""
    largest = {"plain": 100, "auto": 600, "vdnn_all": 400, "capuchin": 500, "save_on_cpu": 390, "checkpoint": 300}

    def answers(function, way, guess, least):
        if way == "offload":
            return RuntimeError("out of luck")
        if least:
            return {"auto": 300, "vdnn_all": 200, "capuchin": 295}[way], 41.0
        return largest[way], 50.0

    played = Played(monkeypatch, answers)
    rows = {row.id: row for row in cuda.batches(effort)}
    assert rows["batch-resnet50_32-auto"].ratio == 6.0
    assert rows["batch-resnet50_32-auto"].holds
    assert rows["batch-resnet50_32-offload"].not_measured == "offload: out of luck"
    assert "re-implemented" in rows["batch-resnet50_32-offload"].title
    assert (rows["fast-resnet50_32-vdnn_all"].ratio, rows["fast-resnet50_32-vdnn_all"].holds) == (1.5, True)
    assert rows["fast-resnet50_32-capuchin"].holds is False
    assert played.asked[0] == ("largest_batch", "resnet50_32", "plain", "tf32", 100, 0.0)
    assert [each[-1] for each in played.asked[len(WAYS) :]] == [40.0] * 3
    assert {row.id for row in cuda.batches(effort)} == set(rows)


def test_steps_at_multiples_of_plains_batch_and_predictions_beside(monkeypatch, effort):
    """Plain's 100 samples give batches of 100, 140 and 200; errors of the planners are put together."""

    def answers(function, way, *given):
        if function == "largest_batch":
            return 100, 50.0
        planner = way in cuda._BEFORE
        return [([2.0 + planner * 0.1], (0.05 * i, 0.01) if planner else None) for i in range(3)]

    played = Played(monkeypatch, answers)
    rows = {row.id: row for row in cuda.steps(effort)}
    assert {each[4][0] for each in played.asked if each[0] == "timed"} == {100}
    assert next(each[4] for each in played.asked if each[0] == "timed") == [100, 140, 200]
    assert sorted(rows["predicted-step"].samples) == pytest.approx([0.0] * 3 + [0.05] * 3 + [0.1] * 3)
    assert rows["predicted-peak"].value == 0.01
    assert rows["predicted-peak"].holds
    assert rows["speed-resnet50_32-x2.0-auto"].value == pytest.approx(200 / 2.1)


def test_a_network_without_a_batch_is_one_row(monkeypatch, effort):
    """And no prediction is told of where none was made."""
    Played(monkeypatch, lambda function, way, *given: RuntimeError("no kernel image"))
    (row,) = cuda.steps(effort)
    assert (row.id, row.not_measured) == ("speed-resnet50_32", "plain: no kernel image")


def test_a_phase_that_is_over_asks_nobody(monkeypatch, effort):
    """Its rows are left out with the reason, which is no failure."""
    played = Played(monkeypatch, lambda *given: (100, 50.0))
    monkeypatch.setattr(cuda, "_PHASE_S", 0.0)
    rows = list(cuda.batches(effort))
    assert not played.asked
    assert {(row.not_measured, row.skipped) for row in rows} == {("the phase is over", True)}


# ------------------------------------------------------------------ ways
@pytest.fixture
def tiny(monkeypatch):
    """Have a network of two blocks and one of layers, that cost nothing."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

        def forward(self, x):
            return x + self.inner(x)

    def blocks():
        return nn.Sequential(nn.Linear(64, 64), nn.Sequential(Block(), Block()), nn.Linear(64, 4))

    def layers():
        return nn.Sequential(*[each for _ in range(4) for each in (nn.Linear(64, 64), nn.Tanh())], nn.Linear(64, 4))

    nets = {"blocks": (blocks, (64,)), "layers": (layers, (64,))}
    monkeypatch.setattr(ways, "NETS", nets)
    return nets


def gradients(way, name):
    net = ways.made(name)
    here = Way(way, net, 1 << 20)
    here.steps(ways.samples(name, 256), 3)
    if hasattr(here, "swapper"):
        here.swapper.close()
    return [each.grad for each in net.parameters()], here


@pytest.mark.parametrize("name", ["blocks", "layers"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_plains_gradients(tiny, way, name):
    """On the CPU, bit by bit, whatever saves the memory; a planner's steps are told."""
    plain, _ = gradients("plain", name)
    mine, here = gradients(way, name)
    assert all(torch.equal(a, b) for a, b in zip(plain, mine, strict=True))
    assert (here.step.n_saved > 0) == (way in cuda._BEFORE)


def test_offloading_copies_what_is_large_and_no_parameter(tiny):
    """Activations of 64 KiB go, a weight and a scalar stay; what comes back is the same."""
    weight, small, large = nn.Parameter(torch.ones(64, 64)), torch.ones(8), torch.randn(256, 64)
    offload = OwnOffload(torch.device("cpu"))
    assert offload._pack(weight)[0].data_ptr() == weight.data_ptr()
    assert offload._pack(small)[0].data_ptr() == small.data_ptr()
    packed = offload._pack(large)
    assert packed[0].data_ptr() != large.data_ptr()
    assert torch.equal(offload._unpack(packed), large)


def test_trls_class_is_taken_where_it_is(monkeypatch):
    """Otherwise ours, and the row says which."""
    assert "re-implemented" in offloaded(torch.device("cpu"))[0]
    there = type("There", (), {"OffloadActivations": contextlib.nullcontext})
    monkeypatch.setattr(ways, "import_module", lambda name: there)
    assert offloaded(torch.device("cpu")) == ("TRL's OffloadActivations", contextlib.nullcontext)


def test_a_batch_is_tried_as_it_comes(tiny, monkeypatch):
    """Seconds of as many steps as were asked for; none where the memory does not suffice."""
    took, errors = cuda.tried("layers", "plain", "fp32", 64, 3, device="cpu")
    assert (len(took), errors) == (3, None)
    assert min(took) > 0.0
    monkeypatch.setattr(Way, "steps", lambda *given: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    assert cuda.tried("layers", "plain", "fp32", 64, 3, device="cpu") == ([], None)

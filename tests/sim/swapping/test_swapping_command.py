"""``drlnb simulate swapping``: the table of the design page, JSON, and what is refused."""

import json
import re

import pytest

from drlnb.cli.main import main
from drlnb.planning.swapping.trace import GIB
from drlnb.sim.swapping.nets import net_names, net_trace, plain_batch


def run(capsys, *words):
    """Return the lines that a command prints."""
    assert main(["simulate", "swapping", *words]) == 0
    return capsys.readouterr().out.splitlines()


def ratios(capsys, *words):
    """Return throughput relative to the largest batch without a plan, of each plan that fits."""
    report = json.loads(run(capsys, *words, "--json")[-1])
    return {row["id"]: row["ratio"] for row in report["rows"] if row["fits"]}


def test_a_line_for_each_planner(capsys):
    """Under a title that says what was simulated."""
    title, head, *lines = run(capsys, "--net", "nature_cnn", "--multiple", "0.5", "1.2", "--planner", "none", "all")
    assert title.startswith("nature_cnn on 2080ti (roofline), 11 GiB: 0.19 MiB saved per sample; without a plan")
    assert title.endswith("(simulated)")
    assert head.split() == ["planner", "samples", "fits", "v", "plain", "step", "stalls", "peak"]
    cells = [line.split() for line in lines]
    assert [words[:2] for words in cells] == [["none", "x0.5"], ["all", "x0.5"], ["none", "x1.2"], ["all", "x1.2"]]
    assert [words[3] for words in cells] == ["yes", "yes", "no", "yes"]
    assert cells[1][-2:] == ["swap", "5"]


@pytest.mark.thorough
def test_one_of_each_kind_is_compared(capsys):
    """Unless planners are named; the search is never slower than a rule."""
    found = ratios(capsys, "--net", "impala", "--multiple", "1.5")
    assert {name.split()[0] for name in found} >= {"all", "capuchin", "hybrid", "auto"}
    assert found["hybrid x1.5"] == max(found.values())


def test_the_seeds_batch_is_the_pages(capsys):
    """ResNet-50 at 32 x 32: 416 samples without a plan by the page's prototype, 418 here."""
    report = json.loads(run(capsys, "--planner", "none", "--json")[-1])
    assert report["plain_batch"] == pytest.approx(416, abs=3)
    assert report["rows"][0]["n_samples"] == int(1.7 * report["plain_batch"])
    assert report["rows"][0]["origin"] == "simulated"
    assert (report["bench"], report["net"], report["preset"]) == ("simulate-swapping", "resnet50_32", "2080ti")


#: The design page's table: throughput relative to plain; actions as its prototype had them.
PAGE = {
    "all": (0.32, 0.32, 0.32, 0.32),
    "capuchin:actions=swap": (0.90, 0.67, 0.57, 0.44),
    "hybrid:actions=swap": (0.92, 0.68, 0.58, 0.44),
    "hybrid:actions=swap+derive": (0.99, 0.93, 0.81, 0.57),
}


@pytest.mark.slow
def test_the_pages_table_comes_out_again(capsys):
    """ResNet-50 at 32 x 32 at four multiples, every planner within 0.03."""
    multiples = ("1.4", "1.7", "2", "3")
    found = ratios(capsys, "--multiple", *multiples, "--planner", *PAGE)
    for name, values in PAGE.items():
        assert [found[f"{name} x{each}"] for each in multiples] == pytest.approx(values, abs=0.031)


def test_the_pages_rules_come_out_again(capsys):
    """Those that take no search, at the multiple of the command's default."""
    found = ratios(capsys, "--planner", "all")
    assert found["all x1.7"] == pytest.approx(0.32, abs=0.01)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--net", "resnet50"], "--net must be one of alexnet_224, .* got 'resnet50'"),
        (["--swap-budget", "much"], "argument --swap-budget: must be a size from 1B to 8388607TiB, got 'much'"),
        (["--budget", "1GiB"], r"unknown option --budget; did you mean '--swap-budget'\?"),
        (["--swap-budget", "700MiB"], "--swap-budget must hold resnet50_32 and one sample, got 700MiB"),
        (["--multiple", "1", "0"], "--multiple must be from 0.01 to 100, got 0"),
        (["--planner", "clever"], "--planner: swapping planner must be one of none, .* got 'clever'"),
        (["--planner", "hybrid:actions=fly"], "--planner: .* actions must be some of"),
    ],
)
def test_wrong_options_are_one_line(capsys, words, problem):
    """With the option, what it may be and what it was."""
    assert main(["simulate", "swapping", *words]) == 2
    error = capsys.readouterr().err
    assert re.search(problem, error)
    assert error.count("\n") == 1


def test_budgets_are_read_in_their_units(capsys):
    """Half the memory holds about half the batch: context and parameters stay."""
    report = json.loads(run(capsys, "--planner", "none", "--swap-budget", "5632 MiB", "--json")[-1])
    assert report["memory_budget_bytes"] == 5.5 * GIB
    assert report["plain_batch"] == pytest.approx(418 * (5.5 - 0.97) / (11 - 0.97), rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("name", net_names())
def test_every_net_fits_somewhere(name):
    """A trace has rows, and a batch that fits."""
    trace = net_trace(name)
    assert trace.rows
    assert len({row.key for row in trace.rows}) == len(trace.rows)
    assert plain_batch(trace, "2080ti", 11 * GIB) > 50

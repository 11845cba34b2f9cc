"""Panels of real runs, and of a real kernel."""

import time

import pytest

import drlnb
from tests.widgets.conftest import clicked, until

pytestmark = pytest.mark.cluster


def tasks(steps=200_000, seeds=(0, 1)):
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=seed) for seed in seeds]


def refreshed(panel, look, patience_s=60.0):
    """Bring a panel up to date until something is so."""
    end = time.monotonic() + patience_s
    while True:
        panel.refresh()
        if look():
            return
        assert time.monotonic() < end, panel.view().sentence
        time.sleep(0.05)


def test_a_run_is_watched_steered_and_joined(tmp_path):
    """Pause, resume and a new rule by clicks; a second client sees the same from the beginning and stops the run."""
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(tasks(), out=tmp_path / "run")
        table, leases = run.panel("fleet"), run.panel("leasing")
        refreshed(leases, lambda: len(leases.view().columns["bars"]["start"]) > 3)
        assert "of 1 slots busy" in leases.view().sentence
        clicked(table.picture.widget, "pause", task="CartPole-v1-s0")
        refreshed(table, lambda: "1 paused" in table.view().sentence)
        clicked(table.picture.widget, "resume", ident="c2", task="CartPole-v1-s0")
        refreshed(table, lambda: "paused" not in table.view().sentence)
        leases.fields["hold"].field.value, leases.fields["task"].field.value = "last", "CartPole-v1-s1"
        clicked(leases.shell.widget, "apply")
        refreshed(leases, lambda: leases.view().header["marks"])
        letters = {style["name"]: style["letter"] for style in leases.view().header["series"]}  # by who asked first
        assert [mark["label"] for mark in leases.view().header["marks"]] == [f"{letters['CartPole-v1-s1']} hold: last"]
        with drlnb.Fleet(fleet.address) as other:
            guest = other.attach(run.id)
            assert guest is not run
            same = guest.panel("leasing")
            refreshed(same, lambda: len(same.view().columns["bars"]["start"]) > 3)
            first = [panel.view().columns["bars"]["start"][:3].tolist() for panel in (leases, same)]
            assert first[0] == pytest.approx(first[1], abs=0.5)
            assert same.view().header["series"] == leases.view().header["series"]
            clicked(guest.panel("fleet").shell.widget, "stop")
            assert run.watch.settle(60)
            assert guest.watch.settle(60)
        refreshed(table, lambda: table.view().sentence == "2 tasks: 2 stopped")
        assert [list(panel.messages) for panel in (table, leases, same)] == [[], [], []]


def test_the_panel_of_a_short_run_reaches_its_end(tmp_path):
    """The last picture has every lease of the journal; its digest is that of the journal read anew."""
    from drlnb.views.leasing import gantt

    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(tasks(2_000), out=tmp_path / "run")
        panel = run.panel("leasing")
        run.wait(60)
        refreshed(panel, lambda: run.ended)
        until(lambda: gantt.gantt(run.journal()).digest() == panel.view().digest(), 10)
        assert run.report(tmp_path / "run.html").n_bytes < 500_000

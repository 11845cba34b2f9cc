"""The distribution panel: controls, simulations, and the plan of a running task."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ipywidgets.widgets import widget as ipywidgets_widget

import drlnb
from drlnb.fleet import fleet as door
from drlnb.records.columns.distribution import DistributionPlanned, HostCompleted, SendParameters, VersionPublished
from drlnb.records.errors import ConfigError
from drlnb.widgets import faces
from drlnb.widgets.panels.settings import UnknownSetting
from tests.fleet.conftest import header, opened
from tests.widgets.conftest import clicked, until
from tests.widgets.panels.test_recorded_panels import recorded  # noqa: F401 - a fixture


@pytest.fixture
def panel():
    """Return the panel without a run, to 16 hosts."""
    return faces.distribution()


def press(panel, name, **args):
    """Press a button and wait for what it does; return the answer."""
    comm = panel.shell.widget.comm
    n = len(comm.custom)
    clicked(panel.shell.widget, name, ident=f"{name} {n}", **args)
    until(lambda: comm.custom[n:] and comm.custom[-1]["kind"] in {"done", "failed"})
    return comm.custom[-1]["text"]


def fields(panel):
    return {name: panel.fields[name].field for name in panel.content.CHECKS}


def test_it_begins_with_the_seeds_scheme(panel):
    """Eight relays to 16 hosts, 20 MB, computed: 1 + 15/8 versions' time, and a little for latency."""
    said = panel.view().sentence
    assert said.startswith("relay m=8 to 16 hosts: 2.91 L, predicted 50 ms")
    assert said.endswith("the learner sends 1.00 models")
    assert panel.content.facts()["origin"] == "computed"
    assert panel.view("egress").value("host") == 15 / 8
    assert panel.view("shards").sentence == "nothing is simulated yet: press Simulate"


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({"m": 16}, "relay m=16 to 16 hosts: 1.97 L"),
        ({"plan": "star"}, "star to 16 hosts: 16.02 L"),
        ({"n_hosts": 298, "m": 30}, "relay m=30 to 298 hosts: 10.94 L"),
        ({"plan": "tree", "m": 4}, "tree k=4 to 16 hosts: 7.0"),
        ({"chunks": 4}, "relay m=8, c=4 to 16 hosts"),
        ({"model_mb": 0.5, "link": "1GbE", "latency_us": 0.0, "overhead_us": 0.0}, "relay m=8 to 16 hosts: 2.88 L"),
        ({"n_hosts": 4}, "relay m=4 to 4 hosts"),
        ({"n_hosts": 1}, "relay m=1 to 1 host: 1.02 L"),
    ],
)
def test_every_control_moves_pictures_and_code(panel, moves, said):
    """By hand and by `set` it is the same picture, and the copied lines give it once more."""
    for name, value in moves.items():
        fields(panel)[name].value = value
        panel.refresh()  # the slider of m gets its room
    assert panel.view().sentence.startswith(said)
    known = {}
    exec(panel.code(), known)
    assert faces.distribution(**panel.settings).view().digest() == panel.view().digest()
    other = faces.distribution(latency_us=7.0)
    other.set(**{"latency_us": 300.0, **moves})
    other.refresh()
    assert other.view().digest() == panel.view().digest()
    assert {name: fields(other)[name].value for name in moves} == moves


def test_controls_that_a_plan_does_not_take_are_off(panel):
    """A star has no m; what a tree calls k is labelled so; the slider ends at the number of hosts."""
    m, chunks = fields(panel)["m"], fields(panel)["chunks"]
    fields(panel)["plan"].value = "star"
    panel.refresh()
    assert (m.disabled, chunks.disabled) == (True, True)
    fields(panel)["plan"].value = "tree"
    fields(panel)["n_hosts"].value = 300
    panel.refresh()
    assert (m.disabled, m.description, m.max) == (False, "k", 300)
    assert (chunks.disabled, chunks.description) == (False, "levels")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"m": 0}, "m must be a whole number in 1..300, got 0"),
        ({"m": 2.5}, "m must be a whole number in 1..300, got 2.5"),
        ({"n_hosts": 301}, "n_hosts must be a whole number in 1..300, got 301"),
        ({"latency_us": float("nan")}, "latency_us must be a number from 0 to 1e6, got nan"),
        ({"plan": "swarm"}, "plan must be one of auto, star"),
    ],
)
def test_wrong_settings_are_refused_with_limit_and_value(panel, given, said):
    """Nothing is changed then; typed into a field they are told in the panel."""
    before = panel.view().digest()
    with pytest.raises(ConfigError, match=said):
        panel.set(**given)
    with pytest.raises(UnknownSetting, match="did you mean 'plan'"):
        faces.distribution(plans="star")
    fields(panel)["model_mb"].value = -1.0
    assert list(panel.fields.refusals.values()) == ["model_mb must be a number from 1e-6 to 1e6, got -1.0"]
    panel.refresh()
    assert fields(panel)["model_mb"].value == 20.0
    assert panel.view().digest() == before


def test_a_plan_that_cannot_be_made_says_why_and_turns_buttons_off(panel):
    """One tree is a chain; nothing else in the panel breaks."""
    panel.set(plan="multitree", m=1)
    assert panel.view().sentence.endswith("m must be >= 2: with one tree, use chain")
    assert panel.view("egress").sentence == panel.view().sentence
    assert all(one["reason"] for one in panel.content.facts()["buttons"] if one["name"] != "apply")
    assert "use chain" in press(panel, "simulate")
    panel.refresh()


def test_simulate_kill_and_race(panel):
    """Each shows its tab; the sentence names the lost host; origin and bars say what is simulated."""
    tabs = panel.content.tabs
    assert press(panel, "race") == "simulated: 4 plans"
    panel.refresh()
    assert tabs.titles[tabs.selected_index] == "Race"
    assert press(panel, "simulate") == "simulated: 128 messages"
    panel.refresh()
    assert tabs.selected_index == 0
    assert panel.view().sentence.endswith("; all 16 hosts complete after 50 ms (simulated)")
    press(panel, "kill")
    assert "h11 (relay 3) lost half way; 15 of 16 hosts complete" in panel.view().sentence
    facts = panel.content.facts()
    assert facts["origin"] == "computed and simulated"
    assert "multitree m=3, c=16 is first" in " ".join(facts["notes"])
    assert panel.view("egress").origin == "computed and simulated"


def test_what_was_simulated_follows_the_controls(panel):
    """Once per move, with the same kind of loss; a relay that is no more is replaced by the last one."""
    press(panel, "kill")
    fields(panel)["m"].value = 1
    panel.content.tick(0.0)
    until(lambda: "(relay 0) lost half way" in panel.view().sentence)
    fields(panel)["m"].value = 16
    panel.content.tick(0.0)
    panel.content.tick(0.25)
    until(lambda: "(relay 3) lost half way; 15 of 16" in panel.view().sentence)
    assert panel.view().sentence.startswith("relay m=16")
    assert not list(panel.messages)


def test_the_topology_shows_what_was_simulated_last_by_shard(panel):
    """Before, it says what to press; a shard that is no more is replaced by the last one; its tab stays open."""
    assert panel.view("topology").sentence == "no version yet: press Simulate or Publish once"
    press(panel, "kill")
    panel.refresh()
    panel.set(shard=3)
    assert panel.view("topology").sentence.startswith("relay m=8, shard 3 of 8: h11 (relay 3) lost half way")
    assert panel.view("topology").columns["cells"]["state"].tolist().count(3) == 1
    tabs = panel.content.tabs
    tabs.selected_index = tabs.titles.index("Topology")
    fields(panel)["m"].value = 2
    press(panel, "simulate")
    panel.refresh()
    assert tabs.titles[tabs.selected_index] == "Topology"
    assert panel.view("topology").sentence.startswith("relay m=2, shard 1 of 2: all 16 hosts complete")
    sent = panel.content.publishing.latest = replace(panel.content.publishing.latest, origin="measured")
    fields(panel)["m"].value = 4
    panel.content.tick(0.0)
    until(lambda: panel.view().sentence.startswith("relay m=4") and "complete after" in panel.view().sentence)
    assert panel.content.publishing.latest is sent, "what was sent stays until somebody asks for a simulation"
    fields(panel)["m"].value = 2
    press(panel, "simulate")
    assert panel.view("topology").origin == "simulated"
    other = faces.distribution(m=2, shard=3)
    press(other, "simulate")
    assert other.view("topology").digest() == panel.view("topology").digest()


def test_versions_are_sent_to_what_is_attached_as_soon_as_there_is_something(panel, monkeypatch):
    """A client, a fleet, or what is up in this process; else the buttons are off and say why, as the commands do."""

    def reasons(of):
        return {
            one["name"]: one["reason"] for one in of.content.facts()["buttons"] if one["name"] in ("publish", "sweep")
        }

    client, none = SimpleNamespace(status="running"), "no Dask cluster is attached: give a client or a fleet"
    monkeypatch.setattr(door, "_own", {})
    monkeypatch.setattr(door, "current_client", lambda: None)
    assert reasons(panel) == dict.fromkeys(("publish", "sweep"), f"{none}, distribution(client)")
    assert press(panel, "publish").endswith("distribution(client)")
    monkeypatch.setattr(door, "current_client", lambda: client)
    assert reasons(panel) == {"publish": "", "sweep": ""}
    own = faces.distribution(client, m=2)
    assert own is faces.distribution(client, m=2) is not faces.distribution(m=2)
    assert own.code().endswith("distribution(client, m=2)")
    client.status = "closed"
    assert reasons(own)["publish"] == reasons(panel)["publish"] == "the client of the cluster is closed"
    assert reasons(faces.distribution("tcp://x:1"))["sweep"] == (
        "the client of the cluster is no Dask client, but 'tcp://x:1'"
    )


def test_what_takes_long_waits_for_a_click(panel):
    """Beyond some thousand messages nothing is simulated unasked: the panel says that its pictures are older."""
    press(panel, "simulate")
    panel.set(n_hosts=298, m=298)
    panel.content.tick(0.0)
    assert "the simulation is of former settings: press again" in panel.content.facts()["notes"]
    assert panel.view().sentence.endswith("the learner sends 1.00 models")
    assert panel.view("shards").sentence.startswith("relay m=8")


def test_scaling_is_the_same_for_all_numbers_of_hosts(panel):
    """Its lines do not move with the hosts, the plan's own does with m; a plan that cannot be made has no picture."""
    before = panel.view("scaling").columns["points"]
    panel.set(n_hosts=64)
    assert all((panel.view("scaling").columns["points"][name] == before[name]).all() for name in ("x", "line"))
    assert panel.view("scaling").columns["points"]["y"].tolist() == before["y"].tolist()
    panel.set(m=4)
    moved = panel.view("scaling").columns["points"]["y"] != before["y"]
    assert 0 < moved.sum() <= (before["line"] == before["line"].max()).sum()
    panel.set(plan="multitree", m=1)
    assert panel.view("scaling").sentence.endswith("with one tree, use chain")


def test_best_m_moves_the_slider(panel):
    """To where the closed form is least: 88 relays for 298 hosts."""
    panel.set(n_hosts=298)
    assert press(panel, "best") == "best by the closed form: relay m=88"
    panel.refresh()
    assert fields(panel)["m"].value == 88
    panel.set(plan="star")
    assert [one["reason"] for one in panel.content.facts()["buttons"] if one["name"] == "best"] == [
        "this plan has no m"
    ]


def test_a_relay_that_is_not_there_is_refused(panel):
    """The answer has the limit and the value."""
    panel.set(m=2)
    assert press(panel, "kill") == "relay must be from 0 to 1 in relay m=2, got 3"


def test_closing_leaves_no_model():
    """Fields, tabs and pictures are gone, and the numbers still answer."""
    before = set(ipywidgets_widget._instances)
    panel = faces.distribution(m=2)
    assert faces.distribution(m=2) is panel
    panel.close()
    assert set(ipywidgets_widget._instances) == before
    assert panel.to_dict()["view"]["origin"] == "computed"
    html = panel._repr_mimebundle_()[0]["text/html"]
    assert html.count("<img") == 3


# ---------------------------------------------------------------------- of a run
def version(number, planner="star"):
    """Return the rows of one version to two hosts."""
    plan = DistributionPlanned(
        version=number,
        planner=planner,
        hosts=("n0", "n1"),
        n_bytes=3_000_000,
        n_messages=2,
        digest="d",
        predicted_s=0.5,
    )
    routes, sends = (((-1, 0),), ((-1, 1),)), ((0, 3_000_000, 0), (0, 3_000_000, 1))
    command = SendParameters(
        version=number, source="", hosts=("n0", "n1"), routes=routes, sends=sends, n_in_flight=4, deadline_s=9.0
    )
    times = {"n0": 0.25, "n1": 0.75}
    rows = [HostCompleted(t=1.0, host=h, version=number, n_bytes=3_000_000, publish_s=s) for h, s in times.items()]
    return [plan, command, *rows, VersionPublished(version=number, publish_s=0.75, n_hosts=2)]


def told(link, task, *records):
    """Let the cluster tell records of a task."""
    link.say(*({"s": f"task-{task}-a1", **record.to_row()} for record in records))


def test_a_run_shows_its_versions_beside_what_was_predicted(run, link):
    """The controls begin with its model and hosts; versions and hosts are measured, the rest is computed."""
    panel = run.panel("distribution")
    link.say(header("a"), opened("a"))
    told(link, "a", *version(1))
    until(lambda: panel.view("versions").value("versions"))
    panel.refresh()
    assert panel.view("versions").sentence == (
        "a: 1 version; under star measured 750 ms, predicted 500 ms (medians), to 2 hosts"
    )
    assert panel.view("versions").origin == "measured"
    assert panel.content.facts()["origin"] == "computed and measured"
    assert [r[0] for r in panel.view("hosts").rows()] == ["n0", "n1"]
    assert (panel.settings["model_mb"], panel.settings["n_hosts"]) == (3.0, 2)
    assert panel.content.facts()["notes"][0] == panel.view("versions").sentence
    topology = panel.view("topology")
    assert topology.sentence == "version 1 by star, the whole version: all 2 hosts complete after 750 ms (measured)"
    assert topology.origin == "measured"
    assert [row[:2] for row in topology.rows()] == [["learner", "n0"], ["learner", "n1"]]
    press(panel, "simulate")
    assert panel.view("topology").origin == "simulated"
    panel.fields["task"].field.value = "b"
    assert panel.view("versions").sentence == "no version has been sent yet"


def test_apply_sets_the_plan_and_the_code_says_so(run, link):
    """Moving a control asks for nothing; Apply asks once, for one task or all, and its line is copied."""
    panel = run.panel("distribution", m=4)
    fields(panel)["m"].value = 6
    assert link.asked == []
    assert press(panel, "apply") == "plan: relay:m=6 for all tasks, from the next round on"
    panel.fields["task"].field.value = "b"
    fields(panel)["plan"].value = "auto"
    press(panel, "apply")
    assert link.asked == [("set", "distribution.plan", "relay:m=6", None), ("set", "distribution.plan", "auto", "b")]
    assert panel.code().splitlines()[1:] == [
        'run.set("distribution.plan", \'relay:m=6\')', 'run.set("distribution.plan", \'auto\', task=\'b\')',
    ]  # fmt: skip


def test_a_recording_has_the_panel_but_no_apply(recorded):  # noqa: F811
    """Everything but what would change it."""
    panel = drlnb.play(recorded, speed=None).panel("distribution")
    assert {one["name"]: one["reason"] for one in panel.content.facts()["buttons"]}["apply"] == "this is a recording"
    said = press(panel, "apply")
    assert said == "change the plan: this is a recording: nothing can be changed"
    press(panel, "simulate")
    assert "complete after" in panel.view().sentence


# ------------------------------------------------------------------ one version, for real
def test_a_recording_has_no_cluster_to_publish_to(recorded):  # noqa: F811
    """The button says so, and so does the command."""
    panel = drlnb.play(recorded, speed=None).panel("distribution")
    panel.refresh()
    (off,) = [one["reason"] for one in panel.content.facts()["buttons"] if one["name"] == "publish"]
    assert off == "this run is on no cluster that can be reached from here"
    assert press(panel, "publish").endswith(off)


@pytest.mark.cluster
def test_a_version_is_published_at_a_click(tmp_path):
    """To both workers of the run's own cluster, by the plan of the fields; the run goes on; too large is refused."""
    with drlnb.Fleet(n_workers=2) as fleet:
        run = fleet.train([drlnb.Task("CartPole-v1", total_timesteps=10**6, eval_episodes=0)], out=tmp_path / "r")
        panel = run.panel("distribution", plan="relay", m=2, n_hosts=2, model_mb=2.0)
        assert press(panel, "publish") == ""
        said = panel.content.publishing.said
        assert said.startswith("published once: version 1 by relay:m=2 to 2 hosts, measured ")
        assert said.endswith("the learner sent 1.00 models")
        assert press(panel, "sweep") == ""
        assert re.fullmatch(
            r"swept m \(relay, 2 MB, 2 workers\): 1 \d\S* m?s, 2 \d\S* m?s", panel.content.publishing.said
        )
        panel.refresh()
        said = panel.content.publishing.said
        assert panel.view().origin == panel.content.facts()["origin"] == "computed and measured"
        assert (
            panel.content.publishing.measured[0] == "measured: relay, 2 MB, 2 workers"
        )  # also when the controls move on
        assert panel.content.publishing.measured[1].tolist() == [1.0, 2.0]
        panel.refresh()
        assert panel.content.facts()["notes"][0] == said
        panel.set(model_mb=1001.0)
        assert "model, MB must be at most 1000 here, got 1001" in press(panel, "publish")
        panel.set(model_mb=1e-6, plan="star")
        assert press(panel, "publish") == ""
        assert "by star to 2 hosts" in panel.content.publishing.said
        assert press(panel, "sweep") == "star has no m"
        assert run.status == "running"
        run.stop()
        run.wait()
        panel.close()


@pytest.mark.cluster
def test_without_a_run_versions_go_to_the_cluster_that_is_attached():
    """A fleet's own, given, by its client or found; how the version spread is measured, host by host."""
    with drlnb.Fleet(n_workers=2) as fleet:
        for attached in (fleet, fleet.pool.link.client, None):
            panel = faces.distribution(attached, plan="relay", m=2, n_hosts=2, model_mb=2.0)
            panel.refresh()
            assert press(panel, "publish") == ""
            assert "by relay:m=2 to 2 hosts, measured " in panel.content.facts()["notes"][0]
            assert panel.content.facts()["origin"] == "computed and measured"
            view = panel.view("topology")
            assert view.origin == "measured"
            assert view.sentence.startswith("version 1 by relay:m=2, shard 0 of 2: all 2 hosts complete after ")
            assert [row[0] for row in view.rows()].count("learner") == 1
            assert len(view.rows()) == 2
        assert press(panel, "sweep") == ""
        assert panel.view().origin == "computed and measured"
        for each in (fleet, fleet.pool.link.client, None):
            faces.distribution(each, plan="relay", m=2, n_hosts=2, model_mb=2.0).close()

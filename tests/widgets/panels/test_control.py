"""The one rule of every field: it shows the value in force, and what is refused goes back with its reason."""

import threading

import pytest

from drlnb.widgets import faces


def written(field):
    """Return how often the value of a field was written here, not by its page."""
    return sum("value" in traits for _, traits in field.comm.updates)


def typed(field, value):
    """Say that a page's field has a value: the model's state, as a message brings it."""
    field.set_state({"value": value})


def test_letters_that_come_while_others_are_written_are_kept():
    """A page sends the first letter and then the rest; nothing that it has sent comes back to it."""
    panel = faces.swapping()
    field = panel.fields["planner"].field
    for text in ("all", "greedy"):
        typed(field, text)
        panel.write()
    assert panel.settings["planner"] == field.value == "greedy"
    assert written(field) == 0


def test_what_is_refused_goes_back_and_its_reason_goes_with_the_next_choice():
    """The reason names the limit; nothing else is a message."""
    panel = faces.distribution()
    field = panel.fields["latency_us"].field
    typed(field, -1.0)
    assert list(panel.fields.refusals.values()) == ["latency_us must be a number from 0 to 1e6, got -1.0"]
    assert panel.settings == {}
    panel.write()
    assert field.value == 300.0
    assert panel.fields.refusals, "it stands until something else is chosen"
    typed(panel.fields["model_mb"].field, 5.0)
    assert not panel.fields.refusals
    assert len(panel.messages) == 0


def test_a_choice_while_the_pump_writes_is_heard():
    """Another thread's choice is one, whatever this thread writes meanwhile."""
    panel = faces.distribution()
    panel.fields.writer = threading.get_ident()
    other = threading.Thread(target=typed, args=(panel.fields["model_mb"].field, 7.0))
    other.start()
    other.join(5)
    assert panel.settings == {"model_mb": 7.0}
    panel.fields["latency_us"].field.value = 9.0
    assert "latency_us" not in panel.settings, "what the pump itself writes is nobody's choice"
    panel.fields.writer = None


def test_a_choice_that_failed_is_told_after_the_field_came_back():
    """The value in force that the pump writes is no choice that works; the user's next one is."""
    panel = faces.distribution()
    field = panel.fields["model_mb"].field
    choose = panel.set
    vars(panel)["set"] = lambda **_: {}["planted"]
    typed(field, 7.0)
    panel.write()
    assert field.value != 7.0
    assert [message.text for message in panel.messages] == ["read model_mb: KeyError: 'planted'"]
    vars(panel)["set"] = choose
    typed(field, 8.0)
    assert len(panel.messages) == 0


@pytest.mark.parametrize("m", [40, 1.5])
def test_a_box_beside_a_slider_refuses_what_the_slider_cannot_have(m):
    """Both show the same; beyond the hosts nothing is clamped."""
    panel = faces.distribution(n_hosts=32)
    track = panel.fields["m"].field
    box = panel.content.case._m.children[1]
    typed(box, 20.0)
    panel.write()
    assert (track.value, box.value, panel.settings["m"]) == (20, 20.0, 20)
    typed(box, float(m))
    panel.write()
    assert (track.value, box.value, panel.settings["m"]) == (20, 20.0, 20)
    (said,) = panel.fields.refusals.values()
    assert said in {"m must be at most 32 here, got 40", "m must be a whole number in 1..300, got 1.5"}


def test_fewer_hosts_than_m_are_said_and_m_comes_back():
    """What is in force is shown, what was chosen is kept, and the line goes with its cause."""
    panel = faces.distribution(n_hosts=32, m=20)
    track = panel.fields["m"].field
    panel.set(n_hosts=4)
    panel.write()
    assert (track.max, track.value) == (4, 4)
    assert panel.content.facts()["notes"][0] == "m 20 was chosen, 4 is the last one here"
    panel.set(n_hosts=32)
    panel.write()
    assert (track.max, track.value) == (32, 20)
    assert "chosen" not in " ".join(panel.content.facts()["notes"])


def test_a_shard_is_chosen_before_there_is_a_version():
    """Nothing says yet how many there will be."""
    panel = faces.distribution()
    typed(panel.fields["shard"].field, 5.0)
    assert not panel.fields.refusals
    assert panel.settings == {"shard": 5}


def test_a_message_goes_when_its_cause_goes():
    """What failed is told; once it works, it is told no more."""
    panel = faces.distribution()
    working = []

    def draw(name=""):
        if not working:
            raise RuntimeError("planted")
        return type(panel.content).draw(panel.content, name)

    panel.content.draw = draw
    panel.refresh()
    assert [message.text for message in panel.messages] == ["draw panel: RuntimeError: planted"]
    working.append(True)
    panel.touch()
    panel.refresh()
    assert len(panel.messages) == 0

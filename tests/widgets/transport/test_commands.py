import logging
import threading
import time

import pytest

from drlnb.records.errors import ConfigError
from drlnb.widgets.transport.commands import Command, Commands
from drlnb.widgets.transport.messages import MessageArea
from tests.widgets.conftest import until


@pytest.fixture
def area():
    return MessageArea()


@pytest.fixture
def commands(area):
    made = Commands(area)
    yield made
    made.join()


def click(commands, name="go", ident="1", **args):
    replies = []
    commands.receive({"kind": "command", "id": ident, "name": name, "args": args}, replies.append)
    return replies


def kinds(replies):
    return [(one["kind"], one["id"]) for one in replies]


def test_a_click_is_acknowledged_before_it_is_carried_out(commands):
    """The callback returns at once although the command blocks, and the outcome follows."""
    gate = threading.Event()
    commands.add("go", Command(label="go", run=lambda args: gate.wait(5) and f"went {args['far']}"))
    began = time.perf_counter()
    replies = click(commands, far="home")
    assert time.perf_counter() - began < 0.05
    assert kinds(replies) == [("ack", "1")]
    gate.set()
    until(lambda: len(replies) == 2)
    assert replies[1] == {"kind": "done", "id": "1", "text": "went home"}


def test_the_same_click_twice_is_carried_out_once(commands):
    """A second view's copy of a click hears how it stands."""
    went = []
    commands.add("go", Command(label="go", run=lambda args: went.append(1)))
    replies = click(commands)
    until(lambda: len(replies) == 2)
    assert kinds(click(commands)) == [("done", "1")]
    assert went == [1]


def test_clicks_are_carried_out_in_order(commands):
    """Pause and then resume ends with a task that runs."""
    went = []
    for name in "abc":
        commands.add(name, Command(label=name, run=lambda args, name=name: went.append(name)))
    last = [click(commands, name, ident=str(i)) for i, name in enumerate("abcabc")][-1]
    until(lambda: len(last) == 2)
    assert "".join(went) == "abcabc"


def test_what_is_refused_is_told_with_the_reason(commands, area):
    """The check speaks within the callback; nothing is carried out."""

    def check(args):
        raise ConfigError("there is no task 'x'")

    commands.add("go", Command(label="pause task", run=pytest.fail, check=check))
    assert click(commands) == [{"kind": "failed", "id": "1", "text": "pause task: there is no task 'x'"}]
    assert [(m.level, m.details) for m in area] == [("error", "")]


def test_an_unknown_command_fails(commands):
    """A page of another version is not left waiting."""
    assert click(commands, "fly") == [{"kind": "failed", "id": "1", "text": "this panel has no command 'fly'"}]


def test_a_command_that_raises_gives_one_message_with_its_traceback(commands, area, caplog):
    """The page hears the sentence, the area keeps the details, the log too."""

    def run(args):
        raise ZeroDivisionError("by zero")

    commands.add("go", Command(label="go", run=run))
    with caplog.at_level(logging.ERROR, "drlnb"):
        replies = click(commands)
        until(lambda: len(replies) == 2)
    assert replies[1] == {"kind": "failed", "id": "1", "text": "ZeroDivisionError: by zero"}
    (message,) = area
    assert message.text == "go: ZeroDivisionError: by zero"
    assert "in run" in message.details
    assert len(caplog.records) == 1


def test_the_thread_ends_when_nothing_is_left_to_do(commands):
    """No thread waits for clicks."""
    commands.add("go", Command(label="go", run=lambda args: None))
    replies = click(commands)
    until(lambda: len(replies) == 2)
    until(lambda: "drlnb-commands" not in [t.name for t in threading.enumerate()])


def test_closing_forgets_the_clicks_that_wait(commands):
    """What has begun ends, what has not is not begun."""
    gate, went = threading.Event(), []
    commands.add("wait", Command(label="wait", run=lambda args: gate.wait(5) and None))
    commands.add("go", Command(label="go", run=lambda args: went.append(1)))
    click(commands, "wait", "1")
    click(commands, "go", "2")
    threading.Timer(0.02, gate.set).start()
    commands.join()
    assert went == []


def test_old_ids_are_forgotten(commands):
    """A panel that lives for weeks does not grow with each click."""
    for i in range(400):
        click(commands, "fly", ident=str(i))
    assert len(commands._states) == 256


def test_messages_are_newest_first_counted_and_at_most_twenty(area):
    """Equal ones are one with a number."""
    for i in range(30):
        area.say("info", f"m{i}")
    area.say("info", "m20")
    assert len(area) == 20
    first = next(iter(area))
    assert (first.text, first.n) == ("m20", 2)
    assert [m.text for m in area][1:3] == ["m29", "m28"]


def test_a_guarded_callback_raises_nothing(area):
    """The caller goes on, and the panel has the message."""
    with area.guard("read the form"):
        raise KeyError("x")
    assert [m.text for m in area] == ["read the form: KeyError: 'x'"]

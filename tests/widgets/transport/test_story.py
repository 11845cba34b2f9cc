"""One run is folded once, whoever shows it."""

from drlnb.widgets.faces import desk, panel
from drlnb.widgets.transport.story import Story
from tests.fleet.conftest import header, opened
from tests.widgets.conftest import until


def test_panels_of_one_run_share_its_columns(run, link):
    """Two panels hold the same fold, and rows that one took are drawn by the other."""
    tasks, leases = desk(run).panels
    link.say(header("a"), opened("a"))
    until(lambda: tasks.reader.story.n_waiting)
    tasks.view()
    leases.view()
    assert tasks.reader.fold is leases.reader.fold
    assert tasks.reader.fold.n_rows == 2
    assert tasks._version == leases._version


def test_the_last_to_leave_ends_the_listening(run):
    """While one panel is left the story stays; after the last a new one begins."""
    first, second = panel(run, "fleet"), panel(run, "leasing")
    story = first.reader.story
    assert second.reader.story is story
    first.close()
    assert Story.of(run) is story
    story.leave()
    second.close()
    assert not Story._open


def test_a_story_without_a_run_is_empty():
    """There is nothing to take, and nothing waits."""
    story = Story()
    story.take()
    story.leave()
    assert (story.n_waiting, story.version, story.fold.n_rows) == (0, 0, 0)

"""How one picture reaches the page: messages while it lives, now and then the whole of it in the traits."""

import numpy as np
import pytest

from drlnb.widgets.panels.picture import Picture
from drlnb.widgets.transport.modules import MODULES


@pytest.fixture
def picture_of():
    """Make pictures that change with every look."""
    made = []

    def make(n_rows):
        looks, rows = iter(range(1_000)), np.zeros(n_rows)
        draw = lambda: ({"sentence": str(next(looks))}, {"bars": {"value": rows}})  # noqa: E731
        made.append(Picture(MODULES["timeline"](), draw))
        return made[-1]

    yield make
    for picture in made:
        picture.widget.layout.close()
        picture.widget.close()


def snapshots(picture, seconds):
    """Return the seconds at which a snapshot was noted for the traits, of a look each second."""
    found = []
    for second in range(seconds):
        picture.push(float(second))
        if picture._traits is not None:
            found.append(second)
            picture.write()
    return found


def test_a_small_picture_is_in_the_traits_every_five_seconds(picture_of):
    """Whoever opens the notebook then sees what is not older than that."""
    assert snapshots(picture_of(10), 16) == [0, 5, 10, 15]


def test_a_large_one_comes_less_often(picture_of):
    """40,000 bytes and the header's 150 at 2,500 bytes per second: a little more than 16 seconds."""
    assert snapshots(picture_of(10_000), 52) == [0, 17, 34, 51]


def test_a_large_one_at_rest_is_there_soon(picture_of):
    """Once nothing moves any more, the traits have it after five seconds."""
    picture = picture_of(100_000)
    assert snapshots(picture, 8) == [0]
    still = picture.draw()
    picture.draw = lambda: still
    picture.push(8.0)  # the last news
    assert picture._traits is None
    picture.push(9.0)
    assert picture._traits is not None


def test_the_last_one_is_kept_at_once(picture_of):
    """At a run's end the traits hold what the page shows, however large."""
    picture = picture_of(100_000)
    assert snapshots(picture, 8) == [0]
    picture.push(8.0, keep=True)
    assert picture._traits is not None


def test_a_page_that_asks_again_and_again_does_not_keep_the_rate_high(picture_of, monkeypatch):
    """A server that drops what is too much makes the page ask at each turn: 400 KB come every 8 s, not 4 a second."""
    picture, sent = picture_of(100_000), []
    monkeypatch.setattr(picture, "send", lambda content, buffers=None: sent.append((content["kind"], buffers)))
    asked_s = 40.0
    for turn in range(int(asked_s * 4)):
        picture.greeted = True
        picture.push(turn / 4)
    whole = [sum(map(len, buffers)) for kind, buffers in sent if kind == "snapshot"]
    assert sum(whole) / asked_s <= 1.25 * 50_000
    assert len(whole) == 5, "the first one at once"
    assert picture.greeted, "who asked last is not forgotten"
    small = picture_of(10)
    sent.clear()
    monkeypatch.setattr(small, "send", lambda content, buffers=None: sent.append((content["kind"], buffers)))
    for turn in range(8):
        small.greeted = True
        small.push(turn / 4)
    assert [kind for kind, _ in sent] == ["snapshot"] * 8

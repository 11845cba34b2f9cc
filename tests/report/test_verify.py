"""A gate never seen red: what is planted is found, what is only shown is not."""

import pytest

from drlnb.report import build
from tests.report.verify import verify
from tests.views.journals import two_tasks

PLANTS = [
    '<script src="https://cdn.plot.ly/plotly-3.min.js"></script>',
    '<script>import("https://esm.sh/d3")</script>',
    '<script type="module">fetch(`https://example.org/x`)</script>',
    '<link rel="stylesheet" href="//fonts.example.org/a.css">',
    "<style>@import url(https://fonts.example.org/a.css);</style>",
    '<img src="http://example.org/a.png">',
    '<img srcset="https://example.org/a.png 2x">',
    '<p style="background:url(https://example.org/a.png)">',
    '<img src="local.png">',
    "<script>new WebSocket('wss://example.org')</script>",
]


@pytest.fixture
def page(tmp_path):
    """Return a report's text."""
    build(two_tasks().journal(), tmp_path / "out.html", notes="see https://example.org for more")
    return (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_clean_page_is_green(page):
    """An address that is only text on the page is no request."""
    assert verify(page).offline


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_is_found(page, plant):
    """Each of them would leave the page, or break without its neighbours."""
    found = verify(page.replace("</main>", f"{plant}</main>"))
    assert found.n_external_urls == 1
    assert not found.offline


def test_a_page_without_the_policy_is_red(page):
    """The policy must be there, word for word, before the first script."""
    assert not verify(page.replace("default-src 'none'", "default-src *")).has_csp
    assert not verify(page.replace("<head>", "<head><script>1</script>", 1)).has_csp


CLEAN = [
    '<a href="#tasks">down</a>',
    '<img src="data:image/png;base64,AAAA">',
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"></svg>',
    '<script type="application/json">{"home": "https://example.org"}</script>',
    "<p>https://example.org is only said</p>",
]


@pytest.mark.parametrize("clean", CLEAN)
def test_what_asks_for_nothing_is_no_address(page, clean):
    """A place in the page, data, names of XML languages, data of the pictures, and text."""
    assert verify(page.replace("</main>", f"{clean}</main>")).offline


def test_addresses_are_listed_in_their_order_as_they_are_written():
    """Attributes and what scripts and styles do, one after the other; the end of a script ends its doing."""
    found = verify(
        '<img src="HTTP://a.org/x.png"><script>fetch("wss://b.org"); fetch("//c.org")</script>https://no.org'
        '<form action="//d.org/post"></form><style>a{background:url(ftp://e.org/f)}</style>'
    )
    assert found.urls == ("HTTP://a.org/x.png", "wss://b.org", "//d.org/post", "ftp://e.org/f")
    assert (found.n_external_urls, found.has_csp, found.offline) == (4, False, False)

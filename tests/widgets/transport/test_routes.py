"""A click goes where the page sends it, whatever the kernel has published last."""

from types import SimpleNamespace

from drlnb.widgets.transport.modules import free_route


def test_what_was_published_last_does_not_decide_where_a_click_goes():
    """The note of the subshell of the last message is taken back, after which its own default is asked."""
    comm = SimpleNamespace(_reply_subshell_id="gone", _reply_subshell_ids={"asked": "there"})
    free_route(SimpleNamespace(comm=comm))
    free_route(SimpleNamespace(comm=comm))
    assert not hasattr(comm, "_reply_subshell_id")
    assert comm._reply_subshell_ids == {"asked": "there"}


def test_a_closed_widget_has_no_route():
    """It has no comm, which is nothing to complain about."""
    free_route(SimpleNamespace(comm=None))

"""What of a module's text reaches the page."""

import pytest

from drlnb.views.drawing import assets
from drlnb.widgets.transport.modules import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_widget_carries_its_module_without_comments_and_indentation(name):
    """The statements are the file's, in order; no text of several lines has anything that could be lost."""
    whole = assets.module(name)
    inside = False
    for line in whole.splitlines():
        assert not inside or (line == line.strip() and line and not line.startswith("//")), line
        inside ^= line.replace("\\`", "").count("`") % 2 == 1
    widget = MODULES[name]()
    try:
        carried = widget._esm.splitlines()
    finally:
        widget.layout.close()
        widget.close()
    assert carried == [line.strip() for line in whole.splitlines() if line.strip() and line.strip()[:2] != "//"]
    assert carried[-1] == "export default { render };"

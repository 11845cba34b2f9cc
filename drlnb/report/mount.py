"""Draw with the panels' modules in a page without a kernel, on a stub model that sends nothing."""

import base64
import json
from collections.abc import Sequence

from drlnb.views.drawing import assets, payload
from drlnb.views.drawing.view import View

__all__ = ["data_block", "script", "script_json"]

#: Files that come once, in front of all modules.
_SHARED = ("common", "picture", "stage", "commands")


def script_json(value: object) -> str:
    """Return JSON that may stand inside a script element, whatever text is in it."""
    text = json.dumps(payload.plain(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def data_block(place: str, view: View) -> str:
    """Return the script element that holds a view's data; `place` is the id of the element that it is drawn in."""
    header, buffers = view.payload()
    data = {"header": header, "snapshot": base64.b64encode(buffers[0]).decode()}
    return f'<script type="application/json" data-drlnb="{place}">{script_json(data)}</script>'


def script(views: Sequence[View]) -> str:
    """Return the one script that draws all views: every module once, on a stub model, and the button of the theme.

    Each module stands in a block of its own, so their names do not meet; what they share stands before them.
    """
    names = sorted({view.module for view in views})
    shared = [name for name in _SHARED if any(name in assets.MODULES[module] for module in names)]
    text = "const drlnb = {};\n" + "\n".join(assets.part(name) for name in shared)
    for name in names:
        text += "\n{\n" + assets.part(name).replace("export default ", f"drlnb.{name} = ") + "\n}"
    text += f"\n{assets.part(assets.PAGE)}\nthemeButton();\ndrawPage(drlnb);\n"
    return f'<script type="module">{text}</script>'

"""Draw with the panels' modules in a page without a kernel, on a stub model that sends nothing."""

import base64
import json
from collections.abc import Sequence

from drlnb.views.drawing import assets, payload
from drlnb.views.drawing.view import View

__all__ = ["data_block", "script", "script_json"]

#: Files that come once, in front of all modules.
_SHARED = ("common", "picture", "commands")

_MOUNT = """
function drlnbStub(data) {
  const text = atob(data.snapshot), raw = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
  const values = { _header: data.header, _snapshot: raw, _messages: "[]", _code: "", _selection: "" };
  const nothing = () => {};
  return { get: (key) => values[key], set: nothing, on: nothing, off: nothing, send: nothing, save_changes: nothing };
}
// What is on the first screen is drawn first; the rest follows as soon as that was seen.
const drlnbBlocks = [...document.querySelectorAll("script[data-drlnb]")];
function drlnbNext() {
  const block = drlnbBlocks.shift();
  if (!block) { document.documentElement.dataset.drawn = "yes"; return false; }
  const data = JSON.parse(block.textContent);
  drlnb[data.header.module].render({ model: drlnbStub(data), el: drlnbPlace(block) });
  return true;
}
const drlnbPlace = (block) => document.getElementById(block.dataset.drlnb);
while (drlnbBlocks.length && drlnbPlace(drlnbBlocks[0]).getBoundingClientRect().top < innerHeight) drlnbNext();
function drlnbRest() { if (drlnbNext()) setTimeout(drlnbRest); }
requestAnimationFrame(() => setTimeout(drlnbRest));
// On paper every canvas is a picture, in light colours; what was there before comes back after.
let drlnbPaper = [], drlnbTheme;
addEventListener("beforeprint", () => {
  while (drlnbNext());
  drlnbTheme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  drlnbPaper = [...document.querySelectorAll(".drlnb canvas")].map((canvas) => {
    canvas.draw();
    const picture = new Image(canvas.clientWidth);
    picture.className = "drlnb-print";
    picture.alt = canvas.getAttribute("aria-label") || "";
    picture.src = canvas.toDataURL("image/png");
    canvas.after(picture);
    canvas.style.display = "none";
    return [canvas, picture];
  });
});
addEventListener("afterprint", () => {
  if (drlnbTheme) document.documentElement.dataset.theme = drlnbTheme;
  else delete document.documentElement.dataset.theme;
  for (const [canvas, picture] of drlnbPaper) { picture.remove(); canvas.style.display = ""; canvas.draw(); }
  drlnbPaper = [];
});
"""


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
    """Return the one script that draws all views: every module once, and the stub model.

    Each module stands in a block of its own, so their names do not meet; what they share stands before them.
    """
    names = sorted({view.module for view in views})
    shared = [name for name in _SHARED if any(name in assets.MODULES[module] for module in names)]
    text = "const drlnb = {};\n" + "\n".join(assets.part(name) for name in shared)
    for name in names:
        body = assets.part(name)
        if body.count("export default ") != 1:
            raise ValueError(f"module {name} must have one default export, has {body.count('export default ')}")
        text += "\n{\n" + body.replace("export default ", f"drlnb.{name} = ") + "\n}"
    text += _MOUNT
    if "</script" in text.lower():
        raise ValueError("a module holds the text </script, which would end the script of the page")
    return f'<script type="module">{text}</script>'

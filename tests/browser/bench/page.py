"""Hold what the bench of JupyterLab runs in kernel and page: cells, and pieces of JavaScript, as text."""

from pathlib import Path

__all__ = ["BLOCK", "BLOCK_S", "CELLS", "CLICK", "CLOSE", "DESK", "DRAWN", "FIGURE", "FOUND", "PANEL", "PLAIN"]
__all__ += ["RENDER", "ROUND_TRIP", "STREAM"]

#: How long the cell that blocks the kernel does so, in seconds.
BLOCK_S = 3.0

#: Where ``tests`` lies: the kernel works in a folder of its own.
_ROOT = str(Path(__file__).parents[3])
_SETUP = f"""
import sys
import time
sys.path.insert(0, {_ROOT!r})
import ipywidgets
import plotly.graph_objects as go
import drlnb
from tests.browser.bench.kernel import close_figures, hub_cpu, left, stream_figure
from drlnb.fleet.rows.tables import table_rows

fleet = drlnb.Fleet(slots=1)
run = fleet.train([drlnb.Task("CartPole-v1", name=n, total_timesteps=1_000_000) for n in "xyz"])
"""
_OURS = """
if "panel" in globals(): panel.close()
panel = run.panel("leasing", window_s=600.0)
panel
"""
_WIDGET = "go.FigureWidget(run.panel('leasing', window_s=600.0).view().figure())"
_BUTTON = """
label, button = ipywidgets.Label("0 clicks"), ipywidgets.Button(description="Count")
button.on_click(lambda _: setattr(label, "value", f"{int(label.value.split()[0]) + 1} clicks"))
ipywidgets.VBox([button, label])
"""
_STREAM = "streamed = await stream_figure(panel, 6.0, 4.0)"
_END = """
run.panel().close(); panel.close(); fleet.close()
print(left())
"""
#: The cells by number.
DESK, PANEL, FIGURE, PLAIN, BLOCK, CLOSE, STREAM = 1, 2, 3, 4, 5, 6, 7
#: The cells, in order.
CELLS = (_SETUP, "run", _OURS, _WIDGET, _BUTTON, f"time.sleep({BLOCK_S})", _END, _STREAM)

#: Defines `painted(canvas)`: whether a canvas shows anything.
FOUND = """
const painted = canvas => {
  if (!canvas || !canvas.width) return false;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(data.buffer)).size > 5;
};
"""
#: Runs cell INDEX; returns the milliseconds until its new picture, a SELECTOR, is there.
RENDER = (
    FOUND
    + """
const node = panel.content.widgets[INDEX].node, shown = 'SELECTOR';
panel.content.activeCellIndex = INDEX;
await panel.content.scrollToItem(INDEX, 'start');
node.querySelectorAll(shown).forEach(old => old.setAttribute('data-old', ''));
const began = performance.now();
window.jupyterapp.commands.execute('notebook:run-cell');
await new Promise((resolve, reject) => {
  const look = () => {
    const picture = [...node.querySelectorAll(shown)].find(one => !one.hasAttribute('data-old'));
    if (picture && (shown !== 'canvas' || painted(picture))) return resolve();
    if (performance.now() - began > PATIENCE) return reject(new Error('no picture came'));
    requestAnimationFrame(look);
  };
  look();
});
return performance.now() - began;
"""
)
_CLICK = """button => new Promise((resolve, reject) => {
  const began = performance.now(), place = button.parentElement;
  const text = () => place.querySelector('.widget-label')?.innerText, before = text();
  new MutationObserver((_, me) => {
    if (SEEN) { me.disconnect(); resolve(performance.now() - began); }
  }).observe(place, {attributes: true, childList: true, characterData: true, subtree: true});
  setTimeout(() => reject(new Error('the click showed nothing')), 10000);
  button.click();
})"""
#: Presses a button of ours; returns the milliseconds until it was pending.
CLICK = _CLICK.replace("SEEN", "place.querySelector('[data-state=pending]')")
#: Presses a button of ipywidgets; returns the milliseconds until its callback's text was there.
ROUND_TRIP = _CLICK.replace("SEEN", "text() !== before")
#: True once a page has drawn: our canvas, or plotly's paths; JavaScript, for a page of its own.
DRAWN = (
    "() => {"
    + FOUND
    + """
  const plotly = document.querySelector('.main-svg .barlayer path');
  return plotly || [...document.querySelectorAll('canvas')].some(painted) ? performance.now() : 0;
}"""
)

"""What do the scenes have in common?  A run of three tasks on one slot, and where its panels show what."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from tests.browser.driver import WatchedSheet
from tests.browser.lab import until

#: A measured run of three tasks on one slot, see ``recorded/README.md``.
RECORDED = Path(__file__).parent / "recorded" / "three-tasks-one-slot"

FLEET = "import drlnb\nfleet = drlnb.Fleet(slots=1)"
TRAIN = """
run = fleet.train(
    [drlnb.Task("CartPole-v1", name=name, seed=n, group="g", total_timesteps={steps}) for n, name in enumerate("xyz")])
run
"""
#: What every widget of a desk's panels holds in the page: the widget manager hangs on whatever shows a widget.
_HELD = """
const found = [];
const walk = one => { if (one._manager) found.push(one._manager.promise); (one.widgets || []).forEach(walk); };
panel.content.widgets.filter(cell => cell.outputArea).forEach(cell => walk(cell.outputArea));
const manager = await found[0], held = {};
for (const id of IDS) {
  const model = await manager.get_model(id), data = model.get('_snapshot');
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  held[id] = [model.get('_header'), btoa(String.fromCharCode(...bytes))];
}
return held;
"""
_MODELS = "{p.content.NAME: p.picture.widget.model_id for p in run.panel().panels}"
_DIGESTS = "{p.content.NAME: p.view().digest() for p in run.panel().panels}"
LEASES = "__import__('drlnb.fleet.rows.tables').fleet.rows.tables.table_rows(run.journal(), 'leases')"
#: Longest wait for what a click or a message does, in milliseconds: ten times what it takes on a busy machine.
SOON_MS = 20_000
#: Presses a button; returns the milliseconds until it was pending, which the page does by itself.
PRESS = """button => new Promise((resolve, reject) => {
  const began = performance.now(), place = button.parentElement;
  const seen = () => place.querySelector('[data-state=pending]');
  new MutationObserver((_, me) => { if (seen()) { me.disconnect(); resolve(performance.now() - began); } })
    .observe(place, {attributes: true, childList: true, subtree: true});
  setTimeout(() => reject(new Error('the click showed nothing')), 10000);
  button.click();
})"""
#: Until a click shows, in milliseconds.
FEEDBACK_MS = 100.0


def asked(sheet: WatchedSheet, event: str) -> int:
    """Return how often the tasks of the run were asked for something, as the journal says: ``PauseAsked`` ..."""
    kind = f"__import__('drlnb.records.round').records.round.{event}"
    return int(sheet.kernel_eval(f"sum(len(s.of({kind})) for s in run.journal().streams.values())"))


def wait_asked(sheet: WatchedSheet, event: str, n: int) -> None:
    """Wait until the journal has so many of them; it reaches the disk a second later."""
    seen = until(lambda: asked(sheet, event) >= n, 20.0)
    assert seen, f"{event}: {asked(sheet, event)} of {n}"
    assert asked(sheet, event) == n


def cells(steps: int = 200_000) -> list[str]:
    """Return the cells that start three tasks on one slot and show their desk."""
    return [FLEET, TRAIN.format(steps=steps)]


def held_digests(sheet: WatchedSheet) -> dict[str, str]:
    """Return the digest of what the page holds for each panel of the run's desk, computed from its bytes alone."""
    models = sheet.kernel_eval(_MODELS)
    held = sheet.script(_HELD.replace("IDS", json.dumps(list(models.values()))))
    digests = {}
    for name, model in models.items():
        text, data = held[model]
        header = {key: value for key, value in json.loads(text).items() if key != "seq"}
        plain = json.dumps(header, separators=(",", ":"), sort_keys=True, ensure_ascii=True)
        digests[name] = hashlib.sha256(plain.encode() + base64.b64decode(data)).hexdigest()
    return digests


def kernel_digests(sheet: WatchedSheet) -> dict[str, str]:
    """Return ``panel.view().digest()`` of each panel of the run's desk."""
    return dict(sheet.kernel_eval(_DIGESTS))


def wait_same(sheet: WatchedSheet, timeout_s: float = 20.0) -> dict[str, str]:
    """Wait until the page holds what the kernel would draw, the run at rest; return the digests.

    The widgets' traits follow the picture within 5 s; a page that asks gets them at once.
    """
    seen: Any = until(lambda: (a := held_digests(sheet)) == (b := kernel_digests(sheet)) and (a, b), timeout_s)
    assert seen, (held_digests(sheet), kernel_digests(sheet))
    return dict(seen[0])


class Desk:
    """The panels of the first run that a page shows."""

    def __init__(self, sheet: WatchedSheet, cell: int | None = None) -> None:
        root = sheet.page if cell is None else sheet.output(cell)
        self.sheet = sheet
        self.tasks = root.locator(".drlnb-t-fleet").first
        self.leases = root.locator(".drlnb-t-leasing").first
        self.canvas = self.leases.get_by_test_id("canvas")

    def sentence(self) -> str:
        """Return what stands above the leases."""
        return self.leases.get_by_test_id("sentence").inner_text()

    def number(self, key: str) -> str:
        """Return one of the numbers above the picture, as it is written."""
        return self.leases.get_by_test_id(f"number-{key}").inner_text()

    def button(self, name: str):
        """Return a button above the table of tasks."""
        return self.tasks.get_by_test_id("buttons").get_by_test_id(f"{name}-button")

    def row(self, task: str):
        """Return the row of a task."""
        return self.tasks.locator(f"[data-testid=row][data-task={task}]")

    def wait_on(self, name: str, *, on: bool = True) -> None:
        """Wait until a button above the table works, or does not."""
        self.wait_button(self.button(name), on=on)

    def wait_button(self, button: Any, *, on: bool = True) -> None:
        """Wait until a button works, or does not: one that is hidden does not."""
        works = button.and_(self.sheet.page.locator(":visible:not([aria-disabled=true])"))
        works.first.wait_for(state="attached" if on else "detached", timeout=SOON_MS)

    def message(self, text: str):
        """Wait for a message in the area of the tasks' panel; return it."""
        found = self.tasks.get_by_test_id("messages").get_by_test_id("message").filter(has_text=text).first
        found.wait_for(timeout=SOON_MS)
        return found

    def states(self) -> list[str]:
        """Return what the table says that each task does."""
        return self.tasks.get_by_test_id("cell-state").all_inner_texts()

    def wait_states(self, word: str, timeout_ms: float = SOON_MS) -> None:
        """Wait until every one of three tasks is in a state."""
        script = """word => {
          const cells = [...document.querySelectorAll('.drlnb-t-fleet [data-testid=cell-state]')];
          return cells.length >= 3 && cells.slice(0, 3).every(cell => cell.innerText.includes(word));
        }"""
        self.sheet.page.wait_for_function(script, arg=word, timeout=timeout_ms)

    def wait_bars(self, n: int, timeout_ms: float = SOON_MS) -> None:
        """Wait until the table twin of the leases has at least `n` rows."""
        self.twin(open_it=True)
        script = """n => document.querySelectorAll('.drlnb-t-leasing [data-testid=twin] tbody tr').length >= n"""
        self.sheet.page.wait_for_function(script, arg=n, timeout=timeout_ms)

    def twin(self, *, open_it: bool) -> None:
        """Open or close the table twin of the leases."""
        button = self.leases.get_by_test_id("twin-button")
        if (button.get_attribute("aria-pressed") == "true") != open_it:
            button.click()

    def rows(self) -> list[list[str]]:
        """Return the rows of the table twin, newest first."""
        self.twin(open_it=True)
        self.leases.get_by_test_id("twin").wait_for(timeout=SOON_MS)
        return self.leases.evaluate("""root => [...root.querySelectorAll('[data-testid=twin] tbody tr')]
            .map(row => [...row.cells].map(cell => cell.innerText))""")

    def enabled(self) -> list[str]:
        """Return the buttons that can be pressed: names as a screen reader says them, in order."""
        return self.sheet.page.locator(
            ".drlnb-t-fleet button[data-main]:visible:not([aria-disabled=true])"
        ).evaluate_all("all => all.map(one => one.getAttribute('aria-label').trim())")

    def painted(self) -> int:
        """Return how many different colours the picture has: one alone is an empty picture."""
        return int(
            self.canvas.evaluate("""canvas => {
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        }""")
        )

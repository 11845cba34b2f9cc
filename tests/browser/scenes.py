"""What do the scenes have in common?  A run of three tasks on one slot, and where its panels show what."""

from drlnb.bench.sheet import Sheet

FLEET = "import drlnb\nfleet = drlnb.Fleet(slots=1)"
TRAIN = """
run = fleet.train(
    [drlnb.Task("CartPole-v1", name=name, seed=n, group="g", total_timesteps={steps}) for n, name in enumerate("xyz")])
run
"""
LEASES = "__import__('drlnb.fleet.frames').fleet.frames.table_rows(run.journal(), 'leases')"
#: Longest wait for what a click or a message does, in milliseconds: five times what it takes on a busy machine.
SOON_MS = 10_000


def cells(steps: int = 200_000) -> list[str]:
    """Return the cells that start three tasks on one slot and show their desk."""
    return [FLEET, TRAIN.format(steps=steps)]


class Desk:
    """The panels of the first run that a page shows."""

    def __init__(self, sheet: Sheet, cell: int | None = None) -> None:
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

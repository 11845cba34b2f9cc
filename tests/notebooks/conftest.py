"""Find the notebooks."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: All notebooks of this checkout; a wheel's tests run without one.
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def root() -> Path:
    """Return the folder of the checkout; the test is skipped where there is none."""
    if not NOTEBOOKS:
        pytest.skip("no notebooks beside these tests")
    return ROOT

"""The tested set of packages can be installed by the oldest Python that the project asks for."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


def refusing(pins, python):
    """Return the pinned packages, of those that are installed here, that do not accept a version of Python."""
    names = re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)
    assert len(names) > 100
    refused = []
    for name in names:
        try:
            wanted = metadata(name).get("Requires-Python")
        except PackageNotFoundError:  # of another platform, or of an extra that is not installed
            continue
        if wanted and python not in SpecifierSet(wanted):
            refused.append(f"{name} {wanted}")
    return refused


def test_every_pin_accepts_the_oldest_python():
    """The installer leaves out what refuses a Python and then reports a conflict that names other packages."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    oldest = asked.removeprefix(">=")
    assert re.fullmatch(r"3\.\d+", oldest)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert refusing(pins, f"{oldest}.0") == []
    assert len(refusing(pins, "3.0.0")) > 50, "the check sees what it looks for"

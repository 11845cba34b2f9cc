"""The page about GPF names what exists, with the default that it has."""

from pathlib import Path

import pytest

from drlnb.rl.settings.gpf import GpfSettings

PAGE = (Path(__file__).parents[3] / "docs" / "gpf.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "default"), GpfSettings().to_plain().items())
def test_the_page_names_every_setting_and_its_default(name, default):
    """Each setting has a row of its table that begins with name and default."""
    assert f"| `{name}` | `{default}` |" in PAGE


def test_the_page_names_what_may_change_while_training():
    """The sentence about live settings names all of them."""
    sentence = PAGE[PAGE.index("may change while a task trains") - 90 :]
    assert all(f"`{name}`" in sentence[:90] for name in GpfSettings.live())

"""The reference page names what exists."""

from dataclasses import fields

import pytest

from drlnb.rl.settings.ppo import PpoSettings
from tests.rl import PAGE


@pytest.mark.parametrize("name", [field.name for field in fields(PpoSettings)])
def test_the_page_names_every_setting(name):
    """Each setting appears on docs/reference/rl.md as code."""
    assert f"`{name}`" in PAGE

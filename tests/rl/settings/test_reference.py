"""The reference page names what exists."""

from dataclasses import fields
from pathlib import Path

import pytest

from drlnb.rl.settings.ppo import PpoSettings
from drlnb.rl.tracking.metrics import GLOSSARY

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "rl.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*GLOSSARY, *(field.name for field in fields(PpoSettings)), *PpoSettings.ALIASES])
def test_the_page_names_every_metric_and_setting(name):
    """Each metric, setting and alias appears on docs/reference/rl.md as code."""
    assert f"`{name}`" in PAGE

"""The line that a person wants to read first, out of tracebacks as Python writes them."""

import traceback

import pytest

from drlnb.views.folds.failure import first_cause

OWN = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/drlnb/runtime/children/collector.py", line 90, in step
    self.envs.step(actions)
  File "/opt/venv/lib/python3.11/site-packages/gymnasium/core.py", line 327, in step
    return self.env.step(action)
  File "/home/ann/lab/fragile.py", line 13, in step
    raise ValueError("the pole is made of glass")
ValueError: the pole is made of glass
"""
WITHIN = OWN.replace(
    "    raise ValueError",
    """    self.rng.choice(0)
  File "/opt/venv/lib/python3.11/site-packages/numpy/random/_generator.pyx", line 728, in choice
    raise ValueError""",
)
FOREIGN = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/gymnasium/core.py", line 327, in step
    return self.env.step(action)
RuntimeError: no display
"""
CHAIN = f"{OWN}\nThe above exception was the direct cause of the following exception:\n\n{FOREIGN}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN, "fragile.py:13, step: ValueError: the pole is made of glass"),
        (WITHIN, "fragile.py:13, step: ValueError: the pole is made of glass"),
        (FOREIGN, "core.py:327, step: RuntimeError: no display"),
        (CHAIN, "fragile.py:13, step: ValueError: the pole is made of glass"),
        (OWN.replace("/home/ann/lab/", "C:\\\\lab\\\\"), "fragile.py:13, step: ValueError: the pole is made of glass"),
        ("env broke", ""),
        ("", ""),
        ("Traceback (most recent call last):", ""),
    ],
    ids=["own", "called", "foreign", "chain", "windows", "text", "nothing", "cut"],
)
def test_the_persons_own_line_comes_first(text, said):
    """The innermost line of one's own code, in the error that the others followed; else the innermost at all."""
    assert first_cause(text) == said


def test_as_python_writes_it():
    """A real traceback with several lines of message is read: place, type, and the first line."""
    try:
        raise KeyError("a\nb")
    except KeyError:
        text = traceback.format_exc()
    assert first_cause(text).startswith("test_failure.py:")
    assert first_cause(text).endswith("test_as_python_writes_it: KeyError: 'a\\nb'")

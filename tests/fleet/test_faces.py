import sys
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import pytest

from drlnb.fleet import faces


def entry(value):
    return EntryPoint(name="desk", value=value, group=faces.GROUP)


@pytest.fixture
def installed(monkeypatch):
    found = []
    monkeypatch.setattr(
        faces, "entry_points", lambda group, name: [e for e in found if (e.group, e.name) == (group, name)]
    )
    return found


def test_a_face_is_found_by_its_entry_point(installed):
    """What the entry point names is loaded."""
    installed.append(entry("math:floor"))
    assert faces.face("desk")(1.5) == 1


def test_a_missing_face_names_the_group(installed):
    """The sentence says where it was looked for."""
    with pytest.raises(faces.MissingFace, match=r"no face 'desk' is installed \(entry points of group drlnb.faces\)"):
        faces.face("desk")


@pytest.mark.parametrize("value", ["drlnb_nowhere:desk", "math:desk"])
def test_a_face_that_cannot_be_loaded_is_told(installed, value):
    """With what it is, and why."""
    installed.append(entry(value))
    with pytest.raises(faces.MissingFace, match=rf"face 'desk' \({value}, group drlnb.faces\) cannot be loaded: "):
        faces.face("desk")


def test_the_faces_of_this_package_are_installed():
    """The names in pyproject.toml can be loaded."""
    named = {name: faces.face(name).__name__ for name in ("desk", "launcher", "panel", "report")}
    assert named == {"desk": "desk", "launcher": "launcher", "panel": "panel", "report": "build"}


def test_without_ipython_there_is_no_kernel(monkeypatch):
    """A script is no notebook."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert faces.kernel() is None
    assert not faces.notebook()


def test_a_terminal_of_ipython_is_no_kernel(monkeypatch):
    """Only a shell with a kernel shows widgets."""
    shell = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert faces.kernel() is None
    shell.kernel = "k"
    assert faces.kernel() == "k"


class Thing:
    def __repr__(self):
        return "<Thing>"

    def _repr_mimebundle_(self):
        return {"text/html": "<b>thing</b>"}


def test_a_bundle_is_text_in_a_terminal_and_a_face_in_a_notebook(installed, monkeypatch):
    """The face's own bundle is handed on."""
    assert faces.shown_as("desk")(Thing()) == {"text/plain": "<Thing>"}
    monkeypatch.setattr(faces, "kernel", lambda: "k")
    monkeypatch.setattr(faces, "face", lambda name: lambda thing: thing)
    assert faces.shown_as("desk")(Thing()) == {"text/html": "<b>thing</b>"}


def test_a_bundle_never_raises(installed, monkeypatch):
    """The cell shows text and the reason."""
    monkeypatch.setattr(faces, "kernel", lambda: "k")
    text = faces.shown_as("desk")(Thing())["text/plain"]
    assert text.startswith("<Thing>\nno panel: MissingFace: no face 'desk' is installed")


def test_a_library_that_is_being_imported_is_no_kernel(monkeypatch):
    """A panel of a script imports IPython while the run's thread asks whether this is a notebook."""
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    assert faces.kernel() is None
    assert not faces.notebook()

"""The JavaScript: small, whole, without network or markup from text; its own tests run where node is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from drlnb.views.drawing import assets

FOLDER = Path(assets.__file__).parent / "js"
FILES = sorted(FOLDER.glob("*.js"))
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not on the PATH")


def test_all_of_it_is_small():
    """As sent: 80 KB in all, 12 KB for what every module carries; 660 lines each, laid out at 100 columns."""
    assert sum(len(assets.part(path.stem).encode()) for path in FILES) <= 86 * 1024
    assert len(assets.part("common").encode()) <= 12 * 1024
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 660 for path in FILES)


def test_what_is_sent_has_the_code_and_no_comment():
    """Types are for the check alone, casts within a line, too; their statements stay, and so do texts with strokes."""
    for path in FILES:
        text = assets.part(path.stem)
        assert not re.search(r"^(//|\*)|/\*\*| // ", text, re.MULTILINE), path.stem
    assert "(e.target).tagName" in assets.part("table")
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in assets.part("picture")


def test_every_file_is_part_of_a_module():
    """No text lies there unused, and none is missing; one draws in a page without a kernel."""
    used = {part for parts in assets.MODULES.values() for part in parts}
    assert {path.stem for path in FILES} == {*used, assets.PAGE}


@pytest.mark.parametrize("name", assets.MODULES)
def test_a_module_stands_alone(name):
    """One default export, no import: a blob cannot import its neighbours."""
    text = assets.module(name)
    assert text.count("export default ") == 1
    assert not re.search(r"^\s*import\b|\bimport\(", text, re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_text_never_becomes_markup(path):
    """What users wrote enters the page as text; nothing is fetched; no dialog is opened."""
    text = path.read_text(encoding="utf-8")
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest",
                 "WebSocket", "window.confirm", "alert(", "@import", "https://")  # fmt: skip
    assert [word for word in forbidden if word in text] == []
    assert "</script" not in text.lower(), "it would end the script of a report's page"


def test_unknown_names_are_refused():
    """The message has the known ones."""
    with pytest.raises(ValueError, match="timeline, chart, topology, table, shell, got 'x'"):
        assets.module("x")


@pytest.mark.thorough
@needs_node
def test_every_module_is_javascript(tmp_path):
    """Node reads each as a module; one process for all."""
    for name in assets.MODULES:
        (tmp_path / f"{name}.mjs").write_text(assets.module(name), encoding="utf-8")
    read = "new vm.SourceTextModule(fs.readFileSync(file, 'utf8'), {identifier: file})"
    script = f"const vm = require('vm'), fs = require('fs'); for (const file of process.argv.slice(1)) {read}"
    files = sorted(map(str, tmp_path.iterdir()))
    command = [str(NODE), "--experimental-vm-modules", "-e", script, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@needs_node
@pytest.mark.parametrize("name", ["words", "page"])
def test_the_tests_in_javascript(name):
    """Words, payload, hello and gaps; buttons and marks: as JavaScript does them."""
    path = Path(__file__).parent / "js" / f"{name}.test.mjs"
    done = subprocess.run([str(NODE), str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "fail 0" in done.stdout, done.stdout

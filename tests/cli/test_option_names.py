"""Each door speaks its own words: no error that Python users meet names an option of the command line."""

import ast
import re
from pathlib import Path

import drlnb

#: Those of options are the command line's, and of the reports that it alone asks for.
OF_OPTIONS = {"cli", "sim"}
OPTION = re.compile(r"(^|\W)--[a-z]")


def raised(text):
    """Yield the words of each error that a module raises."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from (part.value for part in ast.walk(node.exc) if isinstance(part, ast.Constant))


def test_errors_below_the_command_line_name_no_option():
    """What is raised elsewhere speaks of arguments, and `drlnb.cli.option_names` turns these into options."""
    root = Path(drlnb.__file__).parent
    files = [path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in OF_OPTIONS]
    assert len(files) > 300
    texts = [text for path in files if OPTION.search(text := path.read_text(encoding="utf-8"))]
    assert not {each for text in texts for each in raised(text) if OPTION.search(str(each))}

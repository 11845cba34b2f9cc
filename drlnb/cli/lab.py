"""``drlnb lab``: open JupyterLab with the notebooks of this version, in this environment."""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import drlnb
from drlnb.cli.parser import Command, UsageError, option
from drlnb.records.errors import ConfigError, MissingExtra, nearest

__all__ = ["COMMAND", "lab_words", "notebook_for", "run"]

#: Where the notebooks go, in the folder in which the command is given: what is done in them changes no checkout.
_COPIES = "drlnb-notebooks"
#: Pages that the notebooks link to: where they lie beside the sources, and beside the copies.
_PAGES, _COPIED_PAGES = "](../docs/", "](docs/"
#: How kernels name "the interpreter that runs Jupyter".
_SAME = {"python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"}


def run(arguments: argparse.Namespace) -> int:
    """Prepare the notebook and become JupyterLab, so that Ctrl-C and signals reach it as they are.

    Parameters
    ----------
    arguments
        ``dir``, ``notebook``, ``port``, ``no_browser``, ``fresh`` and ``words``: what follows ``--``, for JupyterLab.

    Returns
    -------
    int
        Only if JupyterLab could not be started.

    Raises
    ------
    UsageError
        If there is no such notebook, the port is none, or JupyterLab would refuse to run as root.
    ConfigError
        If the folder cannot be written.
    MissingExtra
        If JupyterLab is not installed.
    """
    words = [word for word in arguments.words or () if word != "--"]
    _refuse(arguments.port, words)
    notebook, notice = notebook_for(arguments.notebook, arguments.dir, fresh=arguments.fresh)
    # Kernels of this interpreter come before a user's or the system's of the same name, here and in JupyterLab.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    for line in filter(None, (notice, _other_interpreter())):
        print(f"drlnb: {line}", file=sys.stderr)
    print(f"opening {notebook} in JupyterLab; Ctrl-C twice ends it", flush=True)
    words = lab_words(notebook, port=arguments.port, browser=not arguments.no_browser, words=words)
    sys.stderr.flush()
    os.execv(words[0], words)


def lab_words(notebook: Path, *, port: int | None, browser: bool, words: Sequence[str] = ()) -> list[str]:
    """Return the command line of JupyterLab: this interpreter, the loopback address, its token kept."""
    # What the notebook links to must lie below the server's folder.
    root = next((folder for folder in notebook.parents if (folder / "docs").is_dir()), notebook.parent)
    line = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={root}"]
    line.append(f"--LabApp.default_url=/lab/tree/{notebook.relative_to(root).as_posix()}")
    if port is not None:
        line += [f"--port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        line.append("--no-browser")
    return [*line, *words]


def _refuse(port: int | None, words: Sequence[str]) -> None:
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"--port must be in 1..65535, got {port}")
    if find_spec("jupyterlab") is None:
        raise MissingExtra("drlnb lab needs JupyterLab; install it with: pip install jupyterlab")
    if os.geteuid() == 0 and "--allow-root" not in words:
        raise UsageError("JupyterLab does not run as root unless asked to; add: -- --allow-root")


# ---------------------------------------------------------------------- the notebook
def notebook_for(name: str, folder: str | Path | None = None, *, fresh: bool = False) -> tuple[Path, str]:
    """Return where the notebook lies that shall be opened, and a notice.

    The notebooks are copied to `folder`, with the pages that they link to; a file that its user has changed stays as it
    is.  Only a checkout's own ``notebooks/``, given by name, is opened in place.

    Parameters
    ----------
    name
        Such as ``00_tour``.
    folder
        None: ``./drlnb-notebooks``.
    fresh
        Copy it under the next free name, such as ``00_tour-2.ipynb``.

    Raises
    ------
    UsageError
        If there is no such notebook.
    ConfigError
        If the folder cannot be written.
    """
    checkout = Path(drlnb.__file__).resolve().parents[1]
    name = name.removesuffix(".ipynb")
    with contextlib.ExitStack() as stack:
        here = (checkout / "notebooks").is_dir()
        source, pages = (
            checkout / kind if here else stack.enter_context(as_file(files("drlnb.cli") / kind))
            for kind in ("notebooks", "docs")
        )
        known = sorted(path.stem for path in source.glob("*.ipynb")) if source.is_dir() else []
        if name not in known:
            hint = nearest(name, known, listed=True) if known else "; this installation has none"
            raise UsageError(f"no notebook {name!r}{hint}")
        target = Path(folder if folder is not None else _COPIES)
        try:
            if target.resolve() == source.resolve():
                return source / f"{name}.ipynb", ""
            return _placed(source, pages, target.resolve(), name, fresh=fresh)
        except OSError as error:
            raise ConfigError(f"{target} cannot be written: {error.strerror}") from None


def _placed(source: Path, pages: Path, target: Path, name: str, *, fresh: bool) -> tuple[Path, str]:
    """Copy what is missing; return the notebook's path and a notice."""
    target.mkdir(parents=True, exist_ok=True)
    texts = {path.stem: _copied(path) for path in source.glob("*.ipynb")}
    for stem, text in texts.items():
        if not (target / f"{stem}.ipynb").exists():
            (target / f"{stem}.ipynb").write_text(text, encoding="utf-8")
    for page in pages.rglob("*.md"):
        copy = target / "docs" / page.relative_to(pages)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copy)
    notebook = target / f"{name}.ipynb"
    if fresh:
        copy = next(free for n in count(2) if not (free := target / f"{name}-{n}.ipynb").exists())
        copy.write_text(texts[name], encoding="utf-8")
        return copy, ""
    if notebook.read_text(encoding="utf-8") != texts[name]:
        notice = f"{notebook.name} was changed since it was copied and is opened as it is; --fresh opens a new copy"
        return notebook, notice
    return notebook, ""


def _copied(notebook: Path) -> str:
    """Return a notebook's text with links that hold where the copy lies."""
    return notebook.read_text(encoding="utf-8").replace(_PAGES, _COPIED_PAGES)


# ---------------------------------------------------------------------- the process
def _other_interpreter() -> str:
    """Return a notice if the kernel ``python3`` is another interpreter, where drlnb may not be installed."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        words = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        return "there is no kernel python3; make one with: python -m ipykernel install --sys-prefix"
    if words[0] in _SAME or Path(words[0]).resolve() == Path(sys.executable).resolve():
        return ""
    return f"the kernel python3 runs {words[0]}, not {sys.executable}: drlnb may be missing there"


#: How ``drlnb lab`` is called.
COMMAND = Command(
    "open JupyterLab with this version's notebooks",
    run,
    (
        option("--dir", metavar="DIR", type=Path, help="folder of the copies (default: ./drlnb-notebooks)"),
        option("--notebook", metavar="NAME", default="00_tour", help="which one to open (default: 00_tour)"),
        option("--port", metavar="N", type=int, help="JupyterLab's port (default: the next free one)"),
        option("--no-browser", action="store_true", help="print the address, open nothing"),
        option("--fresh", action="store_true", help="write a new copy beside one that was changed"),
        option("words", metavar="-- LAB ARGS", nargs="*", help="what follows -- is for JupyterLab"),
    ),
)

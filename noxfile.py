"""Environments that a person or a nightly job runs; ``.ci/run`` is what every change passes.

``pipx run nox -l`` lists them, ``pipx run nox -s slow`` runs one.
"""

import os
import shutil
import tempfile
from pathlib import Path

import nox

nox.options.sessions = ["slow", "laws", "older_torch", "oldest_distributed", "base_only", "wheel", "clusters"]
nox.options.error_on_missing_interpreters = True

PINNED = ("-c", "constraints.txt")


def constraints_but(session: nox.Session, *pins: str) -> tuple[str, str]:
    """Write the tested set with other versions of some packages; returns pip's arguments."""
    names = tuple(pin.partition("==")[0].lower() for pin in pins)
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition("==")[0].strip().lower() not in names]
    path = Path(session.create_tmp()) / "constraints.txt"
    path.write_text("\n".join([*kept, *pins, ""]), encoding="utf-8")
    return "-c", str(path)


@nox.session
def slow(session: nox.Session) -> None:
    """Run long learning, whole matrices, soaks; and what is compared with, or needs, packages that are optional."""
    session.install(*PINNED, "-e", ".[test,atari,bench,box2d,mujoco,track,video]", "sb3-contrib")
    session.run("python", "-m", "pytest", "-m", "slow", "--timeout=3600", *session.posargs)


@nox.session
def laws(session: nox.Session) -> None:
    """Run the default tier with many more examples of each law, and 100,000 malformed inputs."""
    session.install(*PINNED, "-e", ".[test]")
    nightly = {"HYPOTHESIS_PROFILE": "nightly"}
    session.run("python", "-m", "pytest", "--timeout=3600", *session.posargs, env=nightly)
    inputs = ("-m", "thorough", "tests/chaos/test_malformed_inputs.py")
    session.run("python", "-m", "pytest", "--timeout=3600", *inputs, env=nightly)


@nox.session
def older_torch(session: nox.Session) -> None:
    """Run both tiers with the oldest torch that is supported."""
    # It asks for an older setuptools than the tested set has.
    session.install(*constraints_but(session, "torch==2.11.0", "setuptools==81.0.0"), "-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)
    session.run("python", "-m", "pytest", "-m", "cluster", *session.posargs)


@nox.session
def oldest_distributed(session: nox.Session) -> None:
    """Run both tiers with the oldest Dask that is supported."""
    session.install(*constraints_but(session, "distributed==2025.5.1", "dask==2025.5.1"), "-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)
    session.run("python", "-m", "pytest", "-m", "cluster", *session.posargs)


@nox.session
def binder(session: nox.Session) -> None:
    """Make Binder's environment from its files, and run the tour in it, in a browser; prints its peak memory."""
    session.install(*PINNED, "-e", ".[test]")
    home = Path(session.create_tmp()).resolve() / "binder"
    session.run("python", "-m", "venv", "--clear", str(home))
    path = {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    session.run(str(home / "bin/pip"), "install", "-r", "binder/requirements.txt", external=True)
    session.run("binder/postBuild", external=True, env=path)
    tour = ("-m", "browser", "-s", "tests/browser/test_first_minute.py", *session.posargs)
    session.run("python", "-m", "pytest", *tour, env={"DRLNB_LAB_PYTHON": str(home / "bin/python")})


@nox.session
def base_only(session: nox.Session) -> None:
    """Install without extras, and no more than the default tier itself needs."""
    session.install(*PINNED, "-e", ".")
    session.run("drlnb", "doctor")
    session.install(*PINNED, "pytest>=9", "pytest-timeout", "pytest-randomly", "hypothesis")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it, and run the default tier where no source tree can stand in for it."""
    session.install("build")
    out = Path(session.create_tmp()).resolve()
    session.run("rm", "-rf", "build", external=True)  # modules of former builds would be in the wheel
    session.run("python", "-m", "build", "--wheel", "--outdir", str(out))
    (built,) = sorted(out.glob("drlnb-*.whl"))[-1:]
    session.install(*PINNED, f"{built}[test]")
    with tempfile.TemporaryDirectory() as folder:
        elsewhere = Path(folder) / "tree"
        # What tests read beside the package: documentation, notebooks, the gates' own files.
        shutil.copytree(".", elsewhere, ignore=shutil.ignore_patterns("drlnb", ".git", ".venv", ".nox", "__pycache__"))
        session.chdir(str(elsewhere))
        # These look at the checkout itself.
        lab, own = "tests/notebooks/test_lab_command.py", "opens_its_own_notebook_on_the_loopback_address"
        checkout = [f"--deselect={lab}::test_a_checkout_{each}" for each in (own, "stays_clean")]
        others = ("--ignore=tests/docs", *checkout)
        session.run("python", "-m", "pytest", *others, *session.posargs)


@nox.session
def clusters(session: nox.Session) -> None:
    """Check what docs/clusters.md gives to Dask's classes for Kubernetes and SLURM, and the image's steps."""
    session.install(*PINNED, "-e", ".[test]", "dask-kubernetes", "dask-jobqueue")
    session.run("python", "-m", "pytest", "-m", "slow", "tests/docs/test_clusters.py", *session.posargs)

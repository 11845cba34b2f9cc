"""What the page on clusters tells others to start is what they would start."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/clusters.md").read_text(encoding="utf-8")
STEPS = (ROOT / "docs/Dockerfile").read_text(encoding="utf-8").splitlines()
BLOCKS = re.findall(r"^```python no-test\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def steps(word):
    return [line.removeprefix(word).strip() for line in STEPS if line.startswith(word)]


def block(word):
    (code,) = (code for code in BLOCKS if word in code)
    return code


def runs(*arguments):
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    return (done.returncode, done.stderr)


def test_the_image_is_made_of_what_the_package_is_built_from():
    """Each file that is copied is there, and nothing that pyproject.toml reads is missing."""
    copied = [name for line in steps("COPY") for name in shlex.split(line)[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "drlnb"} <= set(copied)
    assert steps("RUN")[0] == "pip install --no-cache-dir -c constraints.txt ."


@pytest.mark.slow
def test_the_images_steps_make_an_environment(tmp_path):
    """The files that are copied are enough for its pip line; then both commands are there."""
    for line in steps("COPY"):
        for name in shlex.split(line)[:-1]:
            subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = shlex.split(steps("RUN")[0])
    subprocess.run([tmp_path / "venv/bin" / pip[0], *pip[1:]], cwd=tmp_path, check=True)
    for command in (["dask", "worker", "--help"], ["dask", "scheduler", "--help"], ["drlnb", "doctor"]):
        subprocess.run([tmp_path / "venv/bin" / command[0], *command[1:]], cwd="/", check=True)


@pytest.mark.slow
def test_kubernetes_starts_commands_that_there_are():
    """The specification's commands are Dask's own, with options that it has; the scheduler asks for no device."""
    pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed: nox -s clusters")
    code = block("KubeCluster").partition("cluster = KubeCluster")[0].replace("import KubeCluster, ", "import ")
    made = {}
    exec(compile(code, "clusters.md", "exec"), made)
    parts = {part: made["spec"]["spec"][part]["spec"] for part in ("scheduler", "worker")}
    for part, pod in parts.items():
        (container,) = pod["containers"]
        assert container["args"][:2] == ["dask", part]
        assert runs(*container["args"], "--help")[0] == 0
        assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    assert parts["worker"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert parts["scheduler"]["containers"][0]["resources"] is None
    assert yaml.safe_load(yaml.safe_dump(made["spec"])) == made["spec"]


@pytest.mark.slow
def test_slurm_gets_a_job_that_starts_a_worker():
    """The class takes these arguments; its script asks for a device and starts one worker."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed: nox -s clusters")
    code = block("SLURMCluster").partition("cluster.scale")[0]
    local = 'SLURMCluster(scheduler_options={"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}, '
    made = {}
    exec(compile(code.replace("SLURMCluster(", local), "clusters.md", "exec"), made)
    with made["cluster"] as cluster:
        script = cluster.job_script()
    assert "#SBATCH --gres=gpu:1" in script
    assert "#SBATCH --cpus-per-task=8" in script
    (command,) = re.findall(r"-m (distributed\.cli\.dask_worker tcp://\S+ .*)$", script, re.MULTILINE)
    assert "--nworkers" not in command
    assert runs("distributed.cli.dask_worker", "--help")[0] == 0

"""Values that a command line cannot have: one line through the real parser, exit code 2, nothing started."""

import pytest

from drlnb.cli.main import build_parser, main
from drlnb.cli.parser import parse

SEE = "(see: drlnb {} --help)"

#: Words -> what is said; of an option's value it is said which option, its limits, what was typed, and where to look.
WRONG = {
    "train A --seeds 4-0": "argument --seeds: seeds must go up, to at most 4294967295, got '4-0'",
    "train A --seeds 0-1,x": "argument --seeds: seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got 'x'",
    "train A --seeds ,": "argument --seeds: seeds are missing: write 0, or 0-4 for five tasks",
    "train A --seeds 0-1000": "argument --seeds: at most 1000 seeds at once, got '0-1000'",
    "train A --seed -1": "argument --seed: must be a whole number in 0..4294967295, got '-1'",
    "train A --seed 1 --seeds 0-1": "argument --seeds: not allowed with argument --seed",
    "train A --collectors 0": "argument --collectors: must be a whole number in 1..1000, got '0'",
    "train A --learners 0": "argument --learners: must be a whole number in 1..64, got '0'",
    "train A --learners 65": "argument --learners: must be a whole number in 1..64, got '65'",
    "train A --n-envs 1.5": "argument --n-envs: must be a whole number in 1..100000, got '1.5'",
    "train A --total-timesteps inf":
        "argument --total-timesteps: must be a whole number in 1..1000000000000000, got 'inf'",
    "train A --total-timesteps 1e30":
        "argument --total-timesteps: must be a whole number in 1..1000000000000000, got '1e30'",
    "train A --env-timeout 1e-7":
        "argument --env-timeout: must be a number of seconds from 0.001 to 1e7, or none, got '1e-7'",
    "train A --workers 1e18": "argument --workers: must be a whole number in 1..256, got '1e18'",
    "train A --eval-episodes -1": "argument --eval-episodes: must be a whole number in 0..100000, got '-1'",
    "train A --swap-budget 0": "argument --swap-budget: must be a size from 1B to 8388607TiB, got '0'",
    "train A --swap-budget -1MiB":
        "argument --swap-budget: must be a size from 1B to 8388607TiB, got '-1MiB'",
    "train A --seeds -1-4": "argument --seeds: seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got '-1-4'",
    "train A --gpus -.5":
        "argument --gpus: must be a whole number in 1..1000 or devices such as cuda:0,cuda:2, got '-.5'",
    "simulate distribution --hosts -1e308": "argument --hosts: must be a whole number in 1..10000, got '-1e308'",
    "train A --swap-budget apples":
        "argument --swap-budget: must be a size from 1B to 8388607TiB, got 'apples'",
    "train A --seats 9": "argument --seats: must be a whole number in 1..4, got '9'",
    "train A --gpus cuda:0,cpu:1":
        "argument --gpus: mixes CUDA devices (cuda:0) with virtual ones (cpu:1): name one kind",
    "train A --gpus 1.5":
        "argument --gpus: must be a whole number in 1..1000 or devices such as cuda:0,cuda:2, got '1.5'",
    "train A --workers 0": "argument --workers: must be a whole number in 1..256, got '0'",
    "train A --json=1": "argument --json: ignored explicit argument '1'",
    "resume A --workers 0": "argument --workers: must be a whole number in 1..256, got '0'",
    "play A --speed nan": "argument --speed: must be a number from 1e-9 to 1e9, or all, got 'nan'",
    "play A --speed": "argument --speed: expected one argument",
    "report": "the following arguments are required: DIR",
    "simulate train --swap-budget lots":
        "argument --swap-budget: must be a size from 1B to 8388607TiB, got 'lots'",
    "simulate train --learners 0": "argument --learners: must be a whole number >= 1, got '0'",
    "simulate train --tasks 0": "argument --tasks: must be a whole number >= 1, got '0'",
    "simulate leasing --load 1 --tasks 2": "argument --tasks: not allowed with argument --load",
    "simulate leasing --rounds 3": "argument --rounds: must be a whole number >= 20, got '3'",
    "simulate leasing --cv x": "argument --cv: invalid float value: 'x'",
    "simulate distribution --hosts 0": "argument --hosts: must be a whole number in 1..10000, got '0'",
    "simulate warmup --seeds b": "argument --seeds: seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got 'b'",
}  # fmt: skip

#: Words that are read and then refused, and what is said.
REFUSED = {
    "train A --isolation proces": "unknown --isolation 'proces'; did you mean 'process'?",
    "train A --set x": "--set takes KEY=VALUE, got 'x' (name environments before --set)",
    "train A --set leasing.ttl_s=3": "leasing.ttl_s belongs to the pool: drlnb runs set RUN leasing.ttl_s 3",
    "train A --set warmup.rhoo=3": "unknown setting 'warmup.rhoo'; did you mean 'warmup.rho'?",
    "train A --set warmup.rho=-1": "warmup.rho: rho must be a number from 1e-9 to 1e9, got -1",
    "train A --set task.priority=1": "task.priority is a task's own: --hyper priority=1",
    "train A --set warmup.planner=cold": "warmup.planner is a planner: --planners warmup=cold",
    "train A --planners sead": "--planners must be 'auto', 'patent' or decision -> name, got 'sead'",
    "train A --planners hold=last hold=round": "--planners names hold twice",
    "train A --planners hold=last,warmup=cold":
        "blanks separate what --planners takes: --planners hold=last warmup=cold",
    "train A --set warmup.rho=1,warmup.kappa=2":
        "blanks separate what --set takes: --set warmup.rho=1 warmup.kappa=2",
    "train A --hyper net_arch=8":
        'unknown hyper-parameter \'net_arch\'; it is a part of policy_kwargs: policy_kwargs={"net_arch": ...}',
    "simulate leasing --unequal 100 --rounds 20":
        "--load 1 means 498 tasks here, and more than 100 take long to simulate: name a lower --load, or how many with "
        "--tasks",
    "train A --planners hodl=last": "unknown kind of planner 'hodl'; did you mean 'hold'?",
    "train A --track tensorbord": "track takes tensorboard, wandb, mlflow or an object, got 'tensorbord'",
    "train A --eval-episodes 9 --hyper eval_episodes=3":
        "eval_episodes is not a hyper-parameter; give it as --eval-episodes",
    "train A --hyper n_envs=3": "n_envs is not a hyper-parameter; give it as --n-envs",
    "train A --hyper n_learners=2": "n_learners is not a hyper-parameter; give it as --learners",
    "train A --learners 2":
        "--learners must be <= --collectors = 1, got 2: a learner computes what whole collectors made, so it needs "
        "--collectors 2 and --n-envs 2",
    "train A --learners 2 --n-envs 2":
        "--learners must be 1 for ppo here, got 2: its minibatches are drawn from the whole round; gradients are "
        "computed at arrival with n_epochs=1 and batch_size=4096; or --hyper deterministic=false: minibatches are "
        "shared, with other bits than one learner's",
    "train A --algo dqn --learners 2 --n-envs 2":
        "--learners must be 1 for dqn here, got 2: each of its gradient steps needs the one before; several seeds use "
        "several slots",
    "train A --hyper deterministic=maybe": "deterministic must be true or false, got 'maybe'",
    "train A --n-envs 2 --collectors 3": "--collectors must be <= --n-envs = 2, got 3",
    "train A --n-envs 2 --hyper n_steps=4 batch_size=100":
        "batch_size must be <= n_steps * n_envs = 4 * 2 = 8, got 100",
    "train A --planners batching=ewma":
        "--planners batching=ewma: no task has --learners above 1: ewma shares a gradient among learners, and one "
        "computes it all; for steps of collectors: batching.collect, --planners collect=ewma",
    "train A --hyper tensorboard_log=x":
        "hyper-parameter 'tensorboard_log' is not supported: it belongs to a model; tasks are tracked by "
        "--track tensorboard",
    "train A --hyper memory_budget=1GiB": "memory_budget is not a hyper-parameter; give it as --swap-budget",
    "train A --set swapping.planner=all": "swapping.planner is a planner: --planners swapping=all",
    "train A --set swapping.pin=x":
        "swapping.pin must be rows such as net.features.0#0, each with one of keep, squeeze, derive, swap, block, "
        "got 'x'",
    "train b:c:d": "env must be an id or module:id, without blanks and with one ':' at most, got 'b:c:d'",
    "resume A --client h:1 --workers 1": "--workers is for the local cluster, not for the one at --client",
    "simulate distribution --plan relais":
        "--plan: distribution planner must be one of auto, star, tree, binomial, chain, relay, multitree, got "
        "'relais'; did you mean 'relay'?",
    "simulate distribution --hosts 4 --fail 9@1": "--fail must be HOST@SECONDS with a host from 0 to 3, got '9@1'",
    "simulate distribution --fail x": "--fail must be HOST@SECONDS with a host from 0 to 297, got 'x'",
    "simulate distribution --model-mb 0": "--model-mb must be from one byte to a terabyte, got 0",
    "simulate distribution --link-gbit 0":
        "--link-gbit: learner_bytes_per_s must be a number of bytes per second from 1 to 1e+15, got 0.0",
    "simulate placement --weibull 0": "--weibull must be a number from 0.2 to 10, got 0.0",
    "simulate placement --checkpoint yung":
        "--checkpoint must be a number from 1 to 1e9, none or young, got 'yung'",
    "simulate batching --family x":
        "--family must be one of static, memoryless, periodic, correlated, got 'x'",
    "simulate train --hold x": "unknown --hold 'x'; known are round, yield, last",
    "runs list x": "list takes no run and no task, got 'x'",
    "runs list --task a": "list takes no run and no task, got 'a'",
    "runs set r":
        "runs set needs RUN KEY VALUE, such as: drlnb runs set runs/first rl.learning_rate 1e-4",
    "runs pause r k": "runs pause takes RUN alone, got also 'k'",
    "runs stp": "unknown ACTION 'stp'; did you mean 'stop'?",
    "report nowhere": "nowhere: no such directory",
    "replay nowhere": "nowhere: no journal here (looked for nowhere/*.jsonl)",
    "doctor x": "unexpected 'x'",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_value_is_said_with_its_option_and_where_to_look(words, capsys):
    """What, limit, value, and the command's help."""
    assert main(words.split()) == 2
    at = words.split()
    command = " ".join(at[: 2 if at[0] == "simulate" else 1])
    assert capsys.readouterr() == ("", f"drlnb: {WRONG[words]} {SEE.format(command)}\n")


@pytest.mark.parametrize("words", REFUSED)
def test_what_can_be_read_and_not_be_done_is_one_line(words, capsys):
    """Nothing is printed but that line, and no file is made."""
    assert main(words.split()) == 2
    assert capsys.readouterr() == ("", f"drlnb: {REFUSED[words]}\n")


def test_a_list_of_seeds_says_what_it_does(capsys):
    """How many tasks and processes it means, before anything is started."""
    assert main(["train", "CartPole-v1", "--seeds", "0-4,7", "--collectors", "3", "--client", "nowhere"]) == 2
    said, refused = capsys.readouterr()
    assert said.splitlines()[0] == "6 tasks: each environment under 6 seeds, 18 collector processes in all"
    assert refused.startswith("drlnb: 'nowhere' is no scheduler's address")


def test_values_of_the_task_itself_are_read_as_hyper_parameters_are(capsys):
    """As --learners names them; nothing else on a command line gives a task another value than text."""
    learners = ["--learners", "2", "--hyper", "deterministic=False"]
    for words in (learners, ["--hyper", "priority=3", 'env_kwargs={"sutton_barto_reward": true}']):
        assert main(["train", "CartPole-v1", "--client", "nowhere", *words]) == 2
        assert capsys.readouterr().err.startswith("drlnb: 'nowhere' is no scheduler's address")


def test_seeds_that_are_named_twice_train_one_task():
    """Ranges and lists are merged, in the order in which they were named."""
    for words, seeds in (("3,0-2,1", [3, 0, 1, 2]), ("7,7,7", [7]), ("0-2,1-4", [0, 1, 2, 3, 4])):
        assert parse(build_parser(), ["train", "A-v0", "--seeds", words]).seeds == seeds


def test_devices_are_counted_or_named():
    """By number or by the names that torch has for them; blanks beside the comma do no harm."""
    for words, gpus in (("3", 3), ("1e0", 1), ("cpu:0, cpu:3", ["cpu:0", "cpu:3"]), ("n1/gpu0", ["n1/gpu0"])):
        for command in ("train", "resume"):
            assert parse(build_parser(), [command, "A-v0", "--gpus", words]).gpus == gpus


def test_how_fast_a_run_is_watched_again():
    """Four times as fast where nothing is said; all at once has no number."""
    for words, speed in ((["--speed", "0.5"], 0.5), (["--speed", "all"], None), (["--speed=1e3"], 1000.0), ([], 4.0)):
        assert parse(build_parser(), ["play", "runs/a", *words]).speed == speed

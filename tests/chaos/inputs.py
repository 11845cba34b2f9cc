"""Draw malformed input from a seed: command lines, arguments of Python, journals and files of a run."""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from drlnb.cli.main import build_parser

__all__ = ["ARGUMENTS", "commands", "damaged", "keywords"]

#: What people, scripts and broken files put where a value belongs.
TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2.5",
        "1e18",
        "1e400",
        "1e-320",
        "nan",
        "inf",
        "-inf",
        "9" * 400,
        "0x10",
        "1_0",
        "true",
    ),
    *("None", "null", "cpu", "cuda:99999", "cuda:0,cpu:1", "GPU-", "auto", "all", "seed", "last", "hold=last", "hold="),
    *(
        "a=b=c",
        "=",
        "=1",
        "k=",
        "lin_",
        "lin_0.1",
        "{",
        "[1,2",
        "{'a': 1}",
        "__import__('os').abort()",
        "${HOME}",
        "%s%n",
    ),
    *(
        "CartPole-v1",
        "CartPole",
        "a:b:c",
        "no.such.module:Env",
        "..",
        "/",
        "/dev/null",
        "~nobody/x",
        "a/../b",
        "ä" * 90,
    ),
    *("x\ty", "x\ny", "\x1b[31m", "\u202e", "0-4", "4-0", "0,,1", "0-", "-", "--", "-x", "@file", "rl.n_epochs=4"),
    *("warmup.rho=-1", "warmup.rho=1e999", "leasing.ttl_s=1e-320", "net_arch=8", "policy_kwargs={}", "n_steps=7.5"),
)
#: The same for Python.
VALUES = (
    *(
        None,
        True,
        0,
        -1,
        2**63,
        10**30,
        1.5,
        1e-320,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\x00",
        "ppo",
        "9" * 400,
        b"x",
    ),
    *(
        (),
        [],
        [None],
        {},
        {1: 2},
        {"a": object()},
        {"net_arch": -1},
        object(),
        len,
        int,
        range(3),
        {1, 2},
        1j,
        "lin_0.1",
    ),
)
#: Arguments that the doors of Python take, beside hyper-parameters.
ARGUMENTS = (
    *("algo", "total_timesteps", "seed", "n_envs", "n_collectors", "priority", "group", "env_kwargs", "env_wrappers"),
    *("deterministic", "eval_episodes", "eval_max_steps", "name", "learning_rate", "n_steps", "batch_size", "n_epochs"),
    *(
        "gamma",
        "gae_lambda",
        "clip_range",
        "ent_coef",
        "vf_coef",
        "max_grad_norm",
        "policy",
        "policy_kwargs",
        "normalize",
    ),
    *("target_kl", "use_sde", "buffer_size", "learning_starts", "train_freq", "no_such_argument", "n_env"),
)


def commands(seed: int, n: int, names: Sequence[str], folder: Path) -> Iterator[list[str]]:
    """Yield command lines of some commands, each with a few words put in, left out, doubled, swapped or garbled."""
    draw = random.Random(f"commands {seed}")
    parsers = {action.dest: action for action in build_parser()._actions}["command"].choices
    options = {name: [word for action in parsers[name]._actions for word in action.option_strings] for name in names}
    for _ in range(n):
        name = draw.choice(list(names))
        at_once = ["--speed", "all"] if name == "play" else []
        words = [name, *at_once, str(folder) if draw.random() < 0.5 else draw.choice(TEXTS)]
        for _ in range(draw.randrange(4)):
            words.append(draw.choice([*options[name], "--nosuch", draw.choice(TEXTS)]))
            words += [draw.choice(TEXTS) for _ in range(draw.randrange(3))]
        for _ in range(draw.randrange(3)):
            words = draw.choice((_left_out, _doubled, _swapped, _garbled))(draw, words)
        # What opens a terminal, another machine or a debugger is no malformed input.
        yield [word for word in words if word not in {"--help", "-h", "--debug", "--client", "--version"}]


def _left_out(draw: random.Random, words: list[str]) -> list[str]:
    at = draw.randrange(len(words) + 1)
    return words[:at] + words[at + 1 :]


def _doubled(draw: random.Random, words: list[str]) -> list[str]:
    at = draw.randrange(len(words) + 1)
    return words[:at] + words[max(0, at - 1) :]


def _swapped(draw: random.Random, words: list[str]) -> list[str]:
    return draw.sample(words, len(words))


def _garbled(draw: random.Random, words: list[str]) -> list[str]:
    if not words:
        return words
    at = draw.randrange(len(words))
    cut = draw.randrange(len(words[at]) + 1)
    return [*words[:at], words[at][:cut] + draw.choice("\x7f=,-{'\"\\é0") + words[at][cut:], *words[at + 1 :]]


def keywords(seed: int, n: int) -> Iterator[Mapping[str, object]]:
    """Yield keyword arguments, one to three of which are as nobody means them."""
    draw = random.Random(f"keywords {seed}")
    for _ in range(n):
        yield {draw.choice(ARGUMENTS): draw.choice(VALUES) for _ in range(draw.randrange(1, 4))}


def damaged(seed: int, n: int, whole: bytes) -> Iterator[bytes]:
    """Yield a file as it may come back from a full disk, a cut link or an editor."""
    draw = random.Random(f"damaged {seed}")
    lines = whole.splitlines(keepends=True)
    for _ in range(n):
        damage = draw.choice((_truncated, _flipped, _without_a_line, _shuffled, partial(_filled, lines=lines)))
        yield damage(draw, whole)


def _truncated(draw: random.Random, whole: bytes) -> bytes:
    return whole[: draw.randrange(len(whole))]


def _flipped(draw: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(draw.randrange(1, 5)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def _without_a_line(draw: random.Random, whole: bytes) -> bytes:
    lines = whole.splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    return b"".join(lines)


def _shuffled(draw: random.Random, whole: bytes) -> bytes:
    lines = whole.splitlines(keepends=True)
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def _filled(draw: random.Random, whole: bytes, lines: Sequence[bytes]) -> bytes:
    at = draw.randrange(len(lines))
    junk = draw.choice((b"\x00" * 100, b"{}\n", b"null\n", b"[]\n", b'{"type": 3}\n', b"\xff\xfe", b"<<<<<<< HEAD\n"))
    return b"".join((*lines[:at], junk, *lines[at:]))

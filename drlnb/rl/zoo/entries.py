"""Read an entry of an rl-baselines3-zoo file as a task's settings, unchanged and without running any of it.

A zoo file (``ppo.yml``) maps environment ids to settings.  It is read by ``yaml.safe_load``: merge keys and ``!!float``
work, tags that build objects do not.  Texts that the zoo hands to ``eval`` are parsed by
:mod:`drlnb.rl.zoo.literals`.  What is wrong with an entry is reported at once, with the lines where it stands.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drlnb.records.base import Facts, Row
from drlnb.records.errors import ConfigError
from drlnb.records.settings import parse_text
from drlnb.records.spec import ALGORITHMS
from drlnb.rl.algorithms.resolve import Resolved, resolve
from drlnb.rl.envs.suites import is_atari
from drlnb.rl.envs.wrappers import read_wrappers
from drlnb.rl.settings.checks import WHOLE
from drlnb.rl.zoo.literals import parse_data

if TYPE_CHECKING:
    import yaml

__all__ = ["ZooEntry", "read_entry", "resolve_entry"]

#: Key of the entry that the zoo uses for every game of the Arcade Learning Environment.
_ATARI_KEY = "atari"
#: Key of the entry that it uses for what has none.
_DEFAULT_KEY = "default"
#: Keys whose text is Python's notation of plain data.
_DATA_KEYS = ("policy_kwargs", "normalize", "replay_buffer_kwargs", "rollout_buffer_kwargs", "optimizer_kwargs")
#: Keys of the zoo that stand for code of its own -> why they mean nothing here.
_UNSUPPORTED = {
    "callback": "callbacks are Python objects; give them to learn or train",
    "vec_env_wrapper": "environments are stepped one by one; use env_wrapper",
    "monitor_kwargs": "episodes are counted beneath all wrappers",
}
#: Names of the zoo's files: an algorithm in one is not ignored.
_ZOO_ALGORITHMS = frozenset(
    "a2c ars cem crossq ddpg dqn her iqn ppo ppo_lstm qrdqn reinforce sac sac_sbx td3 tqc trpo".split()  # noqa: SIM905
)
#: A file of settings is no larger (the zoo's largest has 30 kB), and no entry holds more values.
_MOST_BYTES, _MOST_VALUES = 1_000_000, 10_000
#: A setting, and what is wrong with it.
_Wrong = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooEntry:
    """One entry, as plain data under Stable-Baselines3's names."""

    #: The environment that was asked for.
    env: str
    algo: str
    #: Name of the file.
    file: str
    #: Key of the entry: the environment's id, ``atari`` or ``default``.
    key: str
    #: Environment steps; None: not in the entry.
    n_timesteps: int | None
    #: Environments; 1 where the entry has no number.
    n_envs: int
    #: Settings of the algorithm, not yet checked against it.
    hyperparameters: Facts
    #: ``{"name", "kwargs"}`` each, innermost first.
    wrappers: tuple[Facts, ...]
    #: Setting -> line in the file, from 1.
    lines: Mapping[str, int]
    #: Where it came from, in words for a user.
    origin: str


def read_entry(path: str | Path, env: str, algo: str | None = None) -> ZooEntry:
    """Read the settings of one environment from a zoo file.

    Parameters
    ----------
    path
        A YAML file: environment id -> settings.
    env
        Gymnasium id, or ``module:Id-v0``; games of the Arcade Learning Environment fall back on the entry ``atari``,
        others on ``default``.
    algo
        Algorithm; None: the file's name (``dqn.yml``), else ``ppo``.

    Returns
    -------
    ZooEntry
        Plain data.

    Raises
    ------
    ConfigError
        If the file cannot be read, has no entry for the environment (the nearest are named), or the entry holds what
        cannot be read; the message lists all of it, with lines.
    """
    file = Path(path)
    chosen = algo or _algo_of(file)
    keys, document = _load(file)
    key = _find(file, keys, env)
    lines = _lines(document, key)
    wrong: list[_Wrong] = []
    values = _values(file, key, keys[key], wrong)
    refused = [name for name in _UNSUPPORTED if values.pop(name, None) is not None]
    wrong += [(name, f"{name} is not supported: {_UNSUPPORTED[name]}") for name in refused]
    wrappers = _wrappers(values, wrong)
    n_envs, n_timesteps = values.pop("n_envs", 1), values.pop("n_timesteps", None)
    for name, count in (("n_envs", n_envs), ("n_timesteps", n_timesteps)):
        if count is not None and (problem := WHOLE.problem(name, count)):
            wrong.append((name, problem))
    if wrong:
        raise ConfigError([f"{_at(file.name, lines, name)}: {problem}" for name, problem in wrong])
    return ZooEntry(
        env=env,
        algo=chosen,
        file=file.name,
        key=key,
        n_timesteps=n_timesteps,
        n_envs=n_envs,
        hyperparameters=values,
        wrappers=tuple(wrappers),
        lines=lines,
        origin=f"entry {key} of {file.name}",
    )


def resolve_entry(entry: ZooEntry, *, overrides: Facts | None = None, **counts: int | None) -> Resolved:
    """Return the complete settings that an entry means; what it does not hold is Stable-Baselines3's default.

    A `batch_size` beyond the samples of a round means the whole round, as in Stable-Baselines3.

    Parameters
    ----------
    entry
        As of :func:`read_entry`.
    overrides
        Settings that win over the entry's.
    **counts
        ``n_envs`` and ``total_timesteps`` of :func:`drlnb.rl.algorithms.resolve.resolve`.

    Returns
    -------
    Resolved
        Plain data.

    Raises
    ------
    ConfigError
        If settings are unknown, unsupported or wrong; the message lists all of them, with the lines of the file.
    """
    given = {**entry.hyperparameters, "n_envs": entry.n_envs}
    if entry.n_timesteps is not None:
        given["n_timesteps"] = entry.n_timesteps
    origin, n_steps, batch = entry.origin, given.get("n_steps"), given.get("batch_size")
    if isinstance(n_steps, int) and isinstance(batch, int):
        n_samples = n_steps * (counts.get("n_envs") or entry.n_envs)
        if batch > n_samples:
            origin += f" (batch_size {batch} is the whole round: {n_samples})"
            given["batch_size"] = n_samples
    try:
        resolved = resolve(entry.env, entry.algo, overrides=overrides, entry=given, **counts)
    except ConfigError as error:
        raise ConfigError([_with_line(entry, problem) for problem in error.problems]) from None
    if overrides:
        origin += ", with " + ", ".join(sorted(overrides))
    return resolved._replace(origin=origin)


def _with_line(entry: ZooEntry, problem: str) -> str:
    """Put the line of the first setting that a problem names before it."""
    named = [word for word in re.findall(r"\w+", problem) if word in entry.lines]
    return f"{_at(entry.file, entry.lines, named[0] if named else '')}: {problem}"


def _load(file: Path) -> "tuple[Facts, yaml.Node]":
    """Return the file's mapping and its tree of nodes, which knows the lines."""
    import yaml  # here, so that importing this module stays light

    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{file}: a zoo file has at most {_MOST_BYTES} bytes, got {file.stat().st_size}")
        text = file.read_text(encoding="utf-8")
        loader = yaml.SafeLoader(text)
        tree = loader.get_single_node()
        content = None if tree is None else loader.construct_document(tree)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"zoo file {file} cannot be read: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{file}:{mark.line + 1 if mark else 1}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: {str(error).splitlines()[0]}") from None
    if tree is None or not isinstance(content, dict):
        raise ConfigError(f"{file}: must map environment ids to settings, got {type(content).__name__}")
    return content, tree


def _values(file: Path, key: str, entry: object, wrong: list[_Wrong]) -> Row:
    """Return an entry's settings as plain data; what cannot be read becomes a problem."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{file}: the entry {key} must map settings to values, got {type(entry).__name__}")
    values = {}
    for name, value in entry.items():
        try:
            values[str(name)] = _read(str(name), value)
        except ValueError as error:
            wrong.append((str(name), f"{name} {error}"))
    return values


def _algo_of(file: Path) -> str:
    """Return the algorithm in a file's name."""
    if file.stem in _ZOO_ALGORITHMS and file.stem not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise ConfigError(f"{file} holds settings of {file.stem}, which is not among the algorithms here: {known}")
    return file.stem if file.stem in ALGORITHMS else "ppo"


def _find(file: Path, entries: Facts, env: str) -> str:
    own = env.rpartition(":")[2]
    for key in (env, own):
        if key in entries:
            return key
    if is_atari(env) and _ATARI_KEY in entries:
        return _ATARI_KEY
    if _DEFAULT_KEY in entries:
        return _DEFAULT_KEY
    names = [str(key) for key in entries]
    near = difflib.get_close_matches(own, names, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; it has {len(names)} entries"
    raise ConfigError(f"{file} has no entry for {env}{hint}")


def _lines(document: "yaml.Node", key: str) -> dict[str, int]:
    """Return the line of each setting of an entry; what a merge key (``<<``) brings in stands where it was written."""
    node = next((node for name, node in document.value if name.value == key), None)
    pairs = node.value if node is not None and node.id == "mapping" else []
    return {name.value: name.start_mark.line + 1 for name, _ in pairs if name.id == "scalar"}


def _at(file: str, lines: Mapping[str, int], name: str) -> str:
    return f"{file}:{lines[name]}" if name in lines else file


def _read(name: str, value: object) -> object:
    """Return a value as plain data: numbers that YAML reads as text become numbers, whole floats of counts whole."""
    if isinstance(value, str):
        if name in _DATA_KEYS:
            return parse_data(value)
        return value if name in {"policy", "env_wrapper"} else _whole(name, parse_text(value))
    return _whole(name, _plain(value, [0]))


def _whole(name: str, value: object) -> object:
    counts = name in {"n_timesteps", "n_envs", "frame_stack"}
    return int(value) if counts and isinstance(value, float) and value.is_integer() else value


def _plain(value: object, seen: list[int]) -> object:
    """Copy lists and mappings; an alias that multiplies itself ends here."""
    seen[0] += 1
    if seen[0] > _MOST_VALUES:
        raise ValueError(f"holds more than {_MOST_VALUES} values")
    if isinstance(value, Mapping):
        return {str(key): _plain(item, seen) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, seen) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"must be plain data, got {type(value).__name__} {value!r:.100}")


def _wrappers(values: Row, wrong: list[_Wrong]) -> list[Facts]:
    """Pop ``env_wrapper`` and ``frame_stack`` out of the settings."""
    wrappers: list[Facts] = []
    try:
        wrappers += read_wrappers(values.pop("env_wrapper", None))
    except ConfigError as error:
        wrong += [("env_wrapper", problem) for problem in error.problems]
    n_stack = values.pop("frame_stack", None)
    if n_stack is None:
        return wrappers
    if problem := WHOLE.problem("frame_stack", n_stack):
        wrong.append(("frame_stack", problem))
    elif n_stack > 1:
        wrappers.append({"name": "FrameStack", "kwargs": {"n_stack": n_stack}})
    return wrappers

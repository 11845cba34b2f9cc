"""Record one episode of a policy, as a picture that moves in a notebook's cell, or as a file.

One environment is recorded, never a vector of them: where an ended episode resets in the same step, its last frame is
gone.  The moving picture needs nothing but numpy; drawing classic control needs pygame, GIF needs Pillow, MP4 imageio
(extra ``video``).
"""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np

from drlnb.records.errors import ConfigError, EnvError, MissingExtra
from drlnb.rl.collecting.apng import animated_png
from drlnb.rl.envs.make import Source, describe, make_env, read_source
from drlnb.rl.envs.masks import MaskSource, uses_masks
from drlnb.rl.envs.wrappers import tally_of
from drlnb.rl.heads import Head
from drlnb.rl.rows import scalar
from drlnb.rl.seeding import EVAL, reset_seed

__all__ = ["Episode", "Policy", "record_episode"]

#: Frames that are kept; of a longer episode every 2nd, 4th, ... (a minute and a half at 30 frames per second would
#: take a gigabyte of memory for 600 x 400 pixels).
_MOST_FRAMES = 600
#: Longest side, in pixels, of what a cell shows; a file has all pixels.
_CELL_PIXELS = 400
#: Of environments without a frame rate.
_DEFAULT_FPS = 30.0


class Policy(Protocol):
    """Acts: a trained model, an actor, or anything with Stable-Baselines3's ``predict``."""

    def predict(self, obs: Any, deterministic: bool = ..., **masks: object) -> tuple[object, object]:
        """Return the action for one observation, and a state that is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode, seen.  As the last value of a cell it shows itself, moving."""

    env: str
    #: Raw return: rewards beneath all wrappers.
    total_reward: float
    #: Steps that the policy took.
    length: int
    #: Whether the environment ended it, and whether a time limit did; neither: it was cut at `max_steps`.
    terminated: bool
    truncated: bool
    seed: int
    deterministic: bool
    #: uint8, shape ``(n, H, W, 3)``: the start, then what each step led to, the last included.
    frames: np.ndarray = field(repr=False)
    #: Frames per second at which it looks as the environment meant.
    fps: float

    def save(self, path: str | Path) -> Path:
        """Write the moving picture.

        Parameters
        ----------
        path
            ``.png`` or ``.apng`` (animated), ``.gif`` (Pillow), ``.mp4`` (imageio with ffmpeg).

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ConfigError
            If the name ends otherwise.
        MissingExtra
            If the package that writes it is not installed.
        """
        file = Path(path)
        writers = {".png": _save_png, ".apng": _save_png, ".gif": _save_gif, ".mp4": _save_mp4}
        if file.suffix.lower() not in writers:
            raise ConfigError(f"an episode is saved as {', '.join(writers)}, got {file.name!r}")
        writers[file.suffix.lower()](self, file)
        return file

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        step = -(-max(self.frames.shape[1:3]) // _CELL_PIXELS)
        small = np.ascontiguousarray(self.frames[:, ::step, ::step])
        picture = animated_png(small, frame_s=1.0 / self.fps)
        return {"image/png": base64.b64encode(picture).decode("ascii"), "text/plain": repr(self)}


def _save_png(episode: Episode, file: Path) -> None:
    file.write_bytes(animated_png(episode.frames, frame_s=1.0 / episode.fps))


def _save_gif(episode: Episode, file: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra('a GIF needs Pillow; install it with: pip install "drlnb[video]"') from None
    first, *others = [Image.fromarray(frame) for frame in episode.frames]
    delay_ms = max(20, round(1000.0 / episode.fps))  # browsers show shorter delays as 100 ms
    first.save(file, format="GIF", save_all=True, append_images=others, duration=delay_ms, loop=0)


def _save_mp4(episode: Episode, file: Path) -> None:
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401 - imageio finds it by itself, but fails late without
    except ImportError:
        raise MissingExtra('an MP4 needs imageio and ffmpeg; install them with: pip install "drlnb[video]"') from None
    height, width = (side - side % 2 for side in episode.frames.shape[1:3])  # the codec wants even sides
    with imageio.v2.get_writer(file, fps=episode.fps, macro_block_size=1) as writer:
        for frame in episode.frames:
            writer.append_data(frame[:height, :width])


def record_episode(
    policy: Policy,
    env: Source | None = None,
    *,
    seed: int = 0,
    deterministic: bool = True,
    max_steps: int = 10_000,
) -> Episode:
    """Play one episode and keep what is seen.

    Parameters
    ----------
    policy
        A trained model, or anything with Stable-Baselines3's ``predict``.
    env
        An id, a task or a mapping as of :func:`drlnb.rl.envs.make.make_env`; None: what the model was trained on.
    seed
        Of the environment, at least 0; the episode is the one that an evaluation with this seed begins with.
    deterministic
        The most likely action instead of a sample.
    max_steps
        The episode is cut there, at least 1.

    Returns
    -------
    Episode
        With at most 600 frames: of a longer episode every 2nd, 4th, ..., and always the last.

    Raises
    ------
    ConfigError
        If there is no environment, or a number is too small.
    EnvError
        If the environment cannot be made or drawn here.
    MissingExtra
        If drawing it takes a package that is not installed.
    """
    source = getattr(policy, "spec", None) if env is None else env
    if source is None:
        raise ConfigError(f"record_episode needs env: {type(policy).__name__} does not say what it was trained on")
    if max_steps < 1 or seed < 0:
        raise ConfigError(f"max_steps must be >= 1 and seed >= 0, got {max_steps} and {seed}")
    made = make_env(source, render_mode="rgb_array")
    try:
        return _play(policy, made, read_source(source).env, seed, deterministic, max_steps)
    finally:
        made.close()


def _play(policy: Policy, env: gymnasium.Env, name: str, seed: int, deterministic: bool, max_steps: int) -> Episode:
    film = _Film(env, name)
    obs, info = env.reset(seed=reset_seed(seed, EVAL, 0))
    masks = _masks(policy, env)
    film.shoot()
    tally, total, length, terminated, truncated = tally_of(env), 0.0, 0, False, False
    while length < max_steps and not (terminated or truncated):
        allowed = {} if masks is None else {"action_masks": masks(info)}
        action, _ = policy.predict(obs, deterministic=deterministic, **allowed)
        obs, reward, terminated, truncated, info = env.step(action)
        total += scalar(reward)
        length += 1
        film.shoot(last=bool(terminated or truncated or length == max_steps))
    return Episode(
        env=name,
        total_reward=total if tally is None else tally.total(),
        length=length,
        terminated=bool(terminated),
        truncated=bool(truncated) and not terminated,
        seed=seed,
        deterministic=deterministic,
        frames=np.stack(film.frames),
        fps=film.fps,
    )


def _masks(policy: Policy, env: gymnasium.Env) -> MaskSource | None:
    """Return where a policy's action masks come from; None: it takes none."""
    spec = getattr(policy, "spec", None)
    return MaskSource(env, Head.of(describe(env.action_space))) if spec is not None and uses_masks(spec) else None


class _Film:
    """Frames of one environment, thinned where there are too many."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        self._env, self._name = env, name
        self._fps = float(env.metadata.get("render_fps") or _DEFAULT_FPS)
        self._every, self._n_seen = 1, 0
        self.frames: list[np.ndarray] = []

    @property
    def fps(self) -> float:
        """Frames per second of what was kept."""
        return self._fps / self._every

    def shoot(self, *, last: bool = False) -> None:
        """Shoot a frame if it is one's turn, or it is the last."""
        if last or self._n_seen % self._every == 0:
            self.frames.append(self._frame())
        self._n_seen += 1
        if len(self.frames) > _MOST_FRAMES and not last:
            self.frames = self.frames[::2]
            self._every *= 2

    def _frame(self) -> np.ndarray:
        try:
            frame = self._env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            needed = f"drawing {self._name} needs a package that is not installed ({error})"
            raise MissingExtra(f'{needed}; pip install "drlnb[video]"') from error
        except Exception as error:  # drawing is foreign code: a missing screen raises whatever the library likes
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            hint = "; without a screen, MuJoCo needs MUJOCO_GL=egl or osmesa" if "GL" in text else ""
            raise EnvError(f"{self._name} cannot be drawn here ({text}){hint}") from error
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3):
            got = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise EnvError(f"{self._name} must draw uint8 frames of shape (H, W, 3) with rgb_array, got {got}")
        return np.array(frame)

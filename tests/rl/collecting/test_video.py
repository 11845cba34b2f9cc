"""An episode can be seen: in a cell and as a file, its last frame included."""

import base64
import io
import struct
import zlib
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from drlnb.records.errors import ConfigError, EnvError, MissingExtra
from drlnb.rl.collecting import video
from drlnb.rl.collecting.apng import animated_png
from drlnb.rl.collecting.video import record_episode
from drlnb.rl.pickled import pack

PIL = find_spec("PIL") is not None


class Drawn(gymnasium.Env):
    """Draws the number of its step as the value of every pixel; ends after `length` steps."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None, length=3, frame=None, fps=10):
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode, self.length, self.t, self.frame = render_mode, length, 0, frame
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), float(action), self.t == self.length, False, {}

    def render(self):
        if callable(self.frame):
            return self.frame()
        return np.full((4, 6, 3), self.t % 256, np.uint8)


class Ones:
    """Always takes action 1."""

    def predict(self, obs, deterministic=True):
        return 1, None


def source(**kwargs):
    return {"env": "Drawn", "env_factory": pack(Drawn), "env_kwargs": kwargs}


def test_the_last_frame_is_there():
    """Three steps are four frames: the start, and what each step led to, the end included (T29)."""
    seen = record_episode(Ones(), source(length=3))
    assert seen.frames[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert (seen.total_reward, seen.length, seen.terminated, seen.truncated, seen.fps) == (3.0, 3, True, False, 10)


def test_an_episode_is_cut_at_max_steps():
    """A cut episode neither terminated nor was truncated; its last frame is kept."""
    seen = record_episode(Ones(), source(length=100), max_steps=5)
    assert (seen.length, seen.terminated, seen.truncated, len(seen.frames)) == (5, False, False, 6)


def test_long_episodes_are_thinned_and_play_as_fast(monkeypatch):
    """Of 41 frames with room for 10, every 4th stays, and the last; frames per second fall with them."""
    monkeypatch.setattr(video, "_MOST_FRAMES", 11)
    seen = record_episode(Ones(), source(length=41, fps=20))
    assert seen.frames[:, 0, 0, 0].tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 41]
    assert seen.fps == 5.0


def test_catch_needs_no_other_package():
    """The environment of our own is recorded with the base install; its 20 steps are 21 frames."""
    seen = record_episode(Ones(), "drlnb/Catch-v0", seed=3)
    assert seen.frames.shape == (21, 84, 84, 3)
    assert seen.total_reward in {-1.0, 1.0}
    again = record_episode(Ones(), "drlnb/Catch-v0", seed=3)
    assert np.array_equal(seen.frames, again.frames)


def test_an_episode_shows_itself_in_a_cell():
    """The bundle holds base64 text of an animated PNG, and words; no frames are in the words."""
    bundle = record_episode(Ones(), source(length=3))._repr_mimebundle_()
    picture = base64.b64decode(bundle["image/png"], validate=True)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"acTL" in picture
    assert bundle["text/plain"].startswith("Episode(env='Drawn', total_reward=3.0, length=3, terminated=True")
    assert len(bundle["text/plain"]) < 200


def chunks(data):
    """Read a PNG: yield kind and body, and check each sum."""
    at = 8
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size) == (zlib.crc32(kind + body),)
        yield kind, body
        at += 12 + size


def decoded(data):
    """Return frames and delays of an animated PNG, by a reader that shares nothing with the writer but the format."""
    canvas, frames, delays, box, sequence = None, [], [], None, []
    for kind, body in chunks(data):
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", body)
            assert (depth, colour) == (8, 2)
            canvas = np.zeros((height, width, 3), np.uint8)
        elif kind == b"fcTL":
            number, w, h, x, y, num, den, dispose, blend = struct.unpack(">IIIIIHHBB", body)
            sequence.append(number)
            delays.append(num / den)
            assert (dispose, blend) == (0, 0)
            box = (slice(y, y + h), slice(x, x + w), h, w)
        elif kind in {b"IDAT", b"fdAT"}:
            if kind == b"fdAT":
                sequence.append(struct.unpack_from(">I", body)[0])
                body = body[4:]
            rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(box[2], 1 + 3 * box[3])
            assert not rows[:, 0].any(), "filter 0 only"
            canvas[box[0], box[1]] = rows[:, 1:].reshape(box[2], box[3], 3)
            frames.append(canvas.copy())
    assert sequence == list(range(len(sequence)))
    return np.stack(frames), delays


def test_an_animated_png_holds_exactly_its_frames():
    """Frames with small, large, no and corner changes come back pixel by pixel, each for 1/8 s."""
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)]
    for change in ((slice(2, 4), slice(3, 5)), (slice(0, 0), slice(0, 0)), (slice(8, 9), slice(6, 7)), np.s_[:, :]):
        following = frames[-1].copy()
        following[change] = 255 - following[change]
        frames.append(following)
    found, delays = decoded(animated_png(frames, frame_s=0.125))
    assert np.array_equal(found, np.stack(frames))
    assert delays == [0.125] * 5


def test_small_changes_make_small_files():
    """A dot that moves over a noisy picture costs bytes for its rectangle, not for the picture."""
    still = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    frames = []
    for step in range(20):
        frame = still.copy()
        frame[50, 3 * step] = 0
        frames.append(frame)
    assert len(animated_png(frames, frame_s=0.1)) < 1.2 * len(animated_png(frames[:1], frame_s=0.1))


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ([], "at least one picture, got none"),
        ([np.zeros((2, 2, 3))], r"frames\[0\] must be uint8 .* got float64 \(2, 2, 3\)"),
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)], r"frames\[1\] .* got uint8 \(2, 3, 3\)"),
        ([np.zeros((2, 2, 4), np.uint8)], r"got uint8 \(2, 2, 4\)"),
    ],
)
def test_frames_of_another_form_are_refused(frames, told):
    """The message names the frame and what it is."""
    with pytest.raises(ValueError, match=told):
        animated_png(frames, frame_s=0.1)


def test_big_pictures_are_made_smaller_for_a_cell():
    """A cell gets at most 400 pixels per side; the file has them all."""
    big = np.zeros((900, 450, 3), np.uint8)
    seen = record_episode(Ones(), {**source(length=1, frame=lambda: big)})
    shown = base64.b64decode(seen._repr_mimebundle_()["image/png"])
    assert struct.unpack_from(">II", shown, 16) == (150, 300)
    assert seen.frames.shape[1:3] == (900, 450)


def test_saving_an_animated_png(tmp_path):
    """``.png`` is written with the base install, all pixels and the environment's speed."""
    seen = record_episode(Ones(), source(length=3))
    file = seen.save(tmp_path / "e.png")
    found, delays = decoded(file.read_bytes())
    assert np.array_equal(found, seen.frames)
    assert delays == [0.1] * 4
    with pytest.raises(ConfigError, match=r"saved as \.png, \.apng, \.gif, \.mp4, got 'e\.avi'"):
        seen.save(tmp_path / "e.avi")


@pytest.mark.skipif(not PIL, reason="Pillow is not installed (extra video)")
def test_pillow_reads_what_was_written(tmp_path):
    """Pillow, which knows nothing of our writer, sees the same frames in the PNG, and as many in the GIF."""
    from PIL import Image, ImageSequence

    seen = record_episode(Ones(), "drlnb/Catch-v0", seed=1)
    picture = Image.open(io.BytesIO(seen.save(tmp_path / "e.png").read_bytes()))
    found = [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]
    assert np.array_equal(np.stack(found), seen.frames)
    gif = Image.open(seen.save(tmp_path / "e.gif"))
    assert gif.n_frames == 21
    gif.close()


@pytest.mark.skipif(find_spec("imageio_ffmpeg") is None, reason="imageio-ffmpeg is not installed (extra video)")
@pytest.mark.slow
def test_an_mp4_is_written(tmp_path):
    """An MP4 that ffmpeg wrote is read back by imageio with as many frames."""
    import imageio.v2

    seen = record_episode(Ones(), "drlnb/Catch-v0", seed=1)
    file = seen.save(tmp_path / "e.mp4")
    with imageio.v2.get_reader(file) as reader:
        assert reader.count_frames() == 21


@pytest.mark.skipif(find_spec("pygame") is None, reason="pygame is not installed (extra video)")
@pytest.mark.slow
def test_classic_control_is_drawn():
    """With pygame, CartPole's frames are 400 x 600."""
    seen = record_episode(Ones(), "CartPole-v1", seed=1)
    assert seen.frames.shape[1:] == (400, 600, 3)
    assert len(seen.frames) == seen.length + 1


@pytest.mark.parametrize(("suffix", "module"), [("gif", "PIL"), ("mp4", "imageio")])
def test_missing_packages_are_a_pip_line(monkeypatch, tmp_path, suffix, module):
    """Where Pillow or imageio is missing, the message is the pip line of the extra."""
    monkeypatch.setitem(__import__("sys").modules, module, None)
    monkeypatch.setitem(__import__("sys").modules, f"{module}.v2", None)
    seen = record_episode(Ones(), source(length=1))
    with pytest.raises(MissingExtra, match=r'install (it|them) with: pip install "drlnb\[video\]"'):
        seen.save(tmp_path / f"e.{suffix}")


def no_pygame():
    raise gymnasium.error.DependencyNotInstalled("pygame is not installed")


def no_screen():
    raise RuntimeError("an OpenGL context is missing\nsecond line")


@pytest.mark.parametrize(
    ("frame", "error", "told"),
    [
        (no_pygame, MissingExtra, r'drawing Drawn needs .*pygame is not installed.*pip install "drlnb\[video\]"'),
        (no_screen, EnvError, "cannot be drawn here .*OpenGL context is missing.*MUJOCO_GL"),
        (lambda: None, EnvError, "must draw uint8 frames .* got NoneType"),
        (lambda: np.zeros((2, 2)), EnvError, r"got float64 \(2, 2\)"),
    ],
)
def test_what_cannot_be_drawn_says_why(frame, error, told):
    """A missing library, a missing screen and a wrong frame are one clear line each."""
    with pytest.raises(error, match=told) as caught:
        record_episode(Ones(), source(frame=frame))
    assert "\n" not in str(caught.value)


def test_wrong_arguments_are_refused():
    """No environment, no steps, a negative seed: told before anything is built."""
    with pytest.raises(ConfigError, match="needs env: Ones does not say what it was trained on"):
        record_episode(Ones())
    with pytest.raises(ConfigError, match="max_steps must be >= 1 and seed >= 0, got 0 and -1"):
        record_episode(Ones(), "CartPole-v1", max_steps=0, seed=-1)

"""A pixel environment without Atari: catch a falling ball with a paddle, 84 x 84 grey frames, numpy alone.

The game is bsuite's Catch (Osband et al. 2020, "Behaviour Suite for Reinforcement Learning"): one ball falls one row
per step, the paddle moves one column, the only reward comes at the bottom.  Frames, grid and the ball's sideways drift
are ours.  Registered as ``drlnb/Catch-v0`` when this module is imported.
"""

from typing import ClassVar

import gymnasium
import numpy as np

__all__ = ["CATCH_ID", "CatchEnv", "register"]

#: Gymnasium id of the environment.
CATCH_ID = "drlnb/Catch-v0"
#: Cells per side; a cell is 4 x 4 pixels, so that a frame has the 84 x 84 of the Atari papers.
_GRID = 21
_CELL = 4
#: The paddle covers this many cells to either side of its middle.
_REACH = 1


class CatchEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Catch the ball: reward +1 if the paddle is under it when it reaches the last row, else -1; then the episode ends.

    Observations are uint8 of shape ``(84, 84, 1)``, channels last: ball and paddle 255, else 0.  Actions: 0 left,
    1 stay, 2 right.  An episode takes 20 steps.  A random policy gets about -0.7, a perfect one 1.0: one frame does not
    show the ball's drift, but walking under the ball catches it from every start.

    Parameters
    ----------
    render_mode
        ``rgb_array`` or None.
    """

    metadata: ClassVar[dict[str, object]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode not in {None, "rgb_array"}:
            raise ValueError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}")
        self.render_mode = render_mode
        side = _GRID * _CELL
        self.observation_space = gymnasium.spaces.Box(0, 255, (side, side, 1), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)
        self._row = self._column = self._drift = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        """Drop a new ball from a random column, with a random drift of -1, 0 or 1 columns per step."""
        super().reset(seed=seed, options=options)
        self._row = 0
        self._column = int(self.np_random.integers(_GRID))
        self._drift = int(self.np_random.integers(-1, 2))
        self._paddle = _GRID // 2
        return self._frame(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        """Move the paddle, let the ball fall one row; it bounces off the side walls.

        Raises
        ------
        ValueError
            If the action is not 0, 1 or 2.
        """
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0, 1 or 2, got {action!r}")
        self._paddle = int(np.clip(self._paddle + int(action) - 1, 0, _GRID - 1))
        self._row += 1
        self._column += self._drift
        if not 0 <= self._column < _GRID:
            self._drift = -self._drift
            self._column += 2 * self._drift
        ended = self._row == _GRID - 1
        caught = abs(self._column - self._paddle) <= _REACH
        reward = (1.0 if caught else -1.0) if ended else 0.0
        return self._frame(), reward, ended, False, {}

    def render(self) -> np.ndarray | None:
        """Return the frame as RGB of shape ``(84, 84, 3)``, uint8, or None without a render mode."""
        return np.repeat(self._frame(), 3, axis=2) if self.render_mode else None

    def _frame(self) -> np.ndarray:
        grid = np.zeros((_GRID, _GRID), np.uint8)
        grid[-1, max(0, self._paddle - _REACH) : self._paddle + _REACH + 1] = 255
        grid[self._row, self._column] = 255
        return np.kron(grid, np.ones((_CELL, _CELL), np.uint8))[:, :, None]


def register() -> None:
    """Make the id known to gymnasium; again: harmless."""
    if CATCH_ID not in gymnasium.registry:
        gymnasium.register(CATCH_ID, entry_point=CatchEnv)


register()

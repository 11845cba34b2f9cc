"""Say what was said to users of Python in the words of the command line."""

import argparse
import re
from collections.abc import Mapping

__all__ = ["by_options"]

#: Arguments whose option has another name.
_OPTIONS: Mapping[str, str] = {
    "n_learners": "--learners",
    "n_collectors": "--collectors",
    "n_envs": "--n-envs",
    "n_workers": "--workers",
    "memory_budget": "--swap-budget",
    "slots": "--gpus",
    "env_timeout_s": "--env-timeout",
}
#: What a user of Python would write, and what to give to a command instead.
_WAYS: Mapping[str, str] = {
    r"planners=\{'(\w+)': '([^']*)'\}": r"--planners \1=\2",
    r"Task\(\.\.\., (\w+)=([^)]*)\)": r"--hyper \1=\2",
    r"fleet\.set\('([^']*)', ([^)]*)\)": r"drlnb runs set RUN \1 \2",
    r"fleet\.train with track='(\w+)'": r"--track \1",
    r"drlnb\.resume\('([^']*)'\)": r"drlnb resume \1",
    r"deterministic=False": "--hyper deterministic=false",
    # A name alone is told from the same word in a sentence by what follows it.
    **{rf"\b{name}=(?=\w)": f"{way} " for name, way in _OPTIONS.items()},
    # A factor of a product is no option.
    **{rf"(?<!\* )\b{name}(?= = | must | above | asks for | names )": way for name, way in _OPTIONS.items()},
}


def by_options(text: str, parser: argparse.ArgumentParser | None = None) -> str:
    """Return a message with options in place of arguments: those that a command's parser knows, and those of runs.

    Examples
    --------
    >>> by_options("n_learners must be <= n_collectors = 2, got 4: it needs n_collectors=4")
    '--learners must be <= --collectors = 2, got 4: it needs --collectors 4'
    >>> by_options("deterministic=False, or fewer slots")
    '--hyper deterministic=false, or fewer slots'
    """
    for argument, option in _WAYS.items():
        text = re.sub(argument, option, text)
    for action in parser._actions if parser else ():
        if action.option_strings:
            text = re.sub(rf"(^|; ){action.dest}(?= must | needs )", rf"\1{action.option_strings[-1]}", text)
    return text

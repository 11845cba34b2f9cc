"""Read texts such as ``dict(net_arch=[64, 64], activation_fn=nn.ReLU)`` as data, never evaluated.

rl-baselines3-zoo hands such texts to Python's ``eval``.  Here they are parsed to a syntax tree, and only what can be
nothing but data is taken from it: literals, ``dict(...)`` with named arguments, and the names of activations.
Anything else (another name, a call, an operator, an attribute, a comprehension) is refused, with the fragment.
"""

import ast
import warnings
from collections.abc import Iterable

__all__ = ["ACTIVATIONS", "parse_data"]

#: Classes of ``torch.nn`` that a network's ``activation_fn`` may name; whether one is supported is the settings' word.
ACTIVATIONS = ("Tanh", "ReLU", "ReLU6", "LeakyReLU", "ELU", "GELU", "SELU", "SiLU", "Mish", "Sigmoid", "Softplus")
#: What zoo files write before the class.
_MODULES = ("nn", "th.nn", "torch.nn")
#: Longer texts are no settings; the longest of the zoo has 184 characters.
_MOST_CHARACTERS = 10_000
#: Deeper ones neither: the zoo's deepest is a list in a dict in a dict.
_MOST_LEVELS = 20
_LITERALS = (str, int, float, bool, type(None))


def parse_data(text: str) -> object:
    """Return the plain data that a text means.

    Parameters
    ----------
    text
        A Python expression of literals, lists, tuples, mappings, ``dict(name=value, ...)`` and activations
        (``nn.ReLU``, ``torch.nn.Tanh``).

    Returns
    -------
    object
        Mappings with text keys, lists (tuples become lists), numbers, texts, truth values, None; an activation is its
        class's name in lower case.

    Raises
    ------
    ValueError
        If the text is no such expression; the message holds the fragment that is not data.

    Examples
    --------
    >>> parse_data("dict(log_std_init=-2, activation_fn=nn.ReLU, net_arch=dict(pi=[256, 256], vf=[256, 256]))")
    {'log_std_init': -2, 'activation_fn': 'relu', 'net_arch': {'pi': [256, 256], 'vf': [256, 256]}}
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"text must have at most {_MOST_CHARACTERS} characters, got {len(text)}")
    try:
        return _value(_tree(text), 0)
    except RecursionError:  # of the parser, or of quoting the text
        raise ValueError(f"is nested too deeply: {_short(text)}") from None


def _tree(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a text is the file's business
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
        raise ValueError(f"cannot be read as data ({why}): {_short(text)}") from None


def _value(node: ast.expr, level: int) -> object:
    if level > _MOST_LEVELS:
        raise ValueError(f"is nested deeper than {_MOST_LEVELS} levels")
    match node:
        case ast.Constant(value=value) if isinstance(value, _LITERALS):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as number)):
            return -number if isinstance(sign, ast.USub) else number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_value(element, level + 1) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return _mapping(zip((_key(key) for key in keys), values, strict=True), level)
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return _mapping(((_named(keyword), keyword.value) for keyword in keywords), level)
        case ast.Attribute() | ast.Name():
            return _activation(node)
        case _:
            raise _refused(node)


def _mapping(pairs: Iterable[tuple[str, ast.expr]], level: int) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"names {key!r} twice")
        mapping[key] = _value(value, level + 1)
    return mapping


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError(f"takes texts as keys, not {'**' if node is None else _short(ast.unparse(node))}")


def _named(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise ValueError(f"takes no ** in dict(...): {_short(ast.unparse(keyword.value))}")
    return keyword.arg


def _activation(node: ast.expr) -> str:
    module, _, name = ast.unparse(node).rpartition(".")
    if module in _MODULES and name in ACTIVATIONS:
        return name.lower()
    raise _refused(node)


def _refused(node: ast.expr) -> ValueError:
    kinds = "literals, dict(...) and activations such as nn.ReLU are taken, nothing is ever executed"
    return ValueError(f"is not data: {_short(ast.unparse(node))} ({kinds})")


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."

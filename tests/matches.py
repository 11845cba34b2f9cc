"""Compare records by some of their fields."""

from dataclasses import dataclass, fields

__all__ = ["like"]


@dataclass(frozen=True, slots=True)
class _Like:
    """Equal to any record of one class whose named fields are equal."""

    of: type
    wanted: tuple

    def __eq__(self, other):
        return type(other) is self.of and all(getattr(other, name) == value for name, value in self.wanted)

    def __hash__(self):
        return hash(self.of)


def like(of, **wanted):
    """Return something equal to each record of this class that has these field values."""
    unknown = wanted.keys() - {field.name for field in fields(of)}
    if unknown:  # else a misspelt field would make a test that cannot fail
        raise TypeError(f"{of.__name__} has no field {sorted(unknown)[0]!r}")
    return _Like(of, tuple(wanted.items()))

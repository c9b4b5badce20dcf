"""The words of a signature: what an argument may be, beyond its type and its shape.

A number says its range in the vocabulary of `annotated_types`. A tensor says it in its kind, a
dtype of jaxtyping of our own: `Importance[Tensor, "*heads tokens"]` is a `Float` whose values are
finite and at least 0. Type checkers see `int`, `float` and `Tensor`.
"""

from collections.abc import Callable, Iterable
from math import inf
from operator import ge, gt, le, lt
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import torch
from annotated_types import Ge, Gt, Interval, Lt, Predicate
from jaxtyping import AbstractDtype, Float, Int64


class OneOf(NamedTuple):
    """What `Literal` cannot hold: one of these values."""

    choices: tuple[object, ...]


def odd(value: int) -> bool:
    """Whether a number is odd."""
    return value % 2 == 1


Whole = Annotated[int, Ge(0)]
"""0, 1, 2, …"""

Positive = Annotated[int, Ge(1)]
"""1, 2, 3, …"""

Odd = Annotated[int, Ge(1), Predicate(odd)]
"""1, 3, 5, …"""

Bits = Annotated[int, Interval(ge=1, le=8)]
"""Width of a code."""

Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
"""Seed of a generator."""

Ratio = Annotated[float, Interval(ge=0, le=1)]
"""Read as the decimal number it prints as."""

OpenFraction = Annotated[float, Interval(gt=0, lt=1)]
"""A factor that leaves something, and not all."""

Share = Annotated[float, Interval(gt=0, le=1)]
"""More than nothing; read as the decimal number it prints as."""

NonNegative = Annotated[float, Ge(0)]
"""Infinity included."""

FiniteNonNegative = Annotated[float, Interval(ge=0, lt=inf)]
"""Infinity left out."""

Above0 = Annotated[float, Gt(0)]
"""Infinity included."""

FiniteAbove0 = Annotated[float, Interval(gt=0, lt=inf)]
"""Infinity left out."""

Scope = Literal["head", "layer", "model"]
"""Which entries compete for a budget."""

Scales = Annotated[torch.dtype | None, OneOf((None, torch.float16, torch.float32))]
"""Precision of minima and steps; None takes float16 or float64 as the cache, else float32."""

Mode = Literal["append", "full", "oracle"]
"""Whether blocks stay as they are, or what is held, or the originals, is compressed again."""

ValueGroup = Literal["token", "head"]
"""Whether a value group is a token, or a token of one head."""

if TYPE_CHECKING:
    from typing import Annotated as Finite
    from typing import Annotated as Importance
    from typing import Annotated as Orderable
    from typing import Annotated as Shares
    from typing import Annotated as Wholes
else:

    class Finite(AbstractDtype):
        """Neither NaN nor an infinity."""

        dtypes = Float.dtypes
        values = Interval(gt=-inf, lt=inf)

    class Importance(AbstractDtype):
        """What adds up, as attention does."""

        dtypes = Float.dtypes
        values = Interval(ge=0, lt=inf)

    class Orderable(AbstractDtype):
        """Minus infinity marks an evicted token."""

        dtypes = Float.dtypes
        values = Lt(inf)

    class Shares(AbstractDtype):
        """Parts of a whole."""

        dtypes = Float.dtypes
        values = Interval(ge=0, le=1)

    class Wholes(AbstractDtype):
        """Positions, or counts."""

        dtypes = Int64.dtypes
        values = Ge(0)


class BoundsTest(NamedTuple):
    """Which numbers are admissible, and how to say so; NaN never is."""

    hold: Callable[[Any], Any]
    said: str

    @classmethod
    def of(cls, marks: Iterable[Any]) -> "BoundsTest | None":
        """Read marks of `annotated_types`; None where they bound nothing."""
        found = [(e, getattr(m, e, None)) for m in marks for e in ("gt", "ge", "lt", "le")]
        ends = {e: end for e, end in found if end is not None}
        if not ends:
            return None
        low, high = ends.get("gt", ends.get("ge", -inf)), ends.get("lt", ends.get("le", inf))
        above, opening, sign = (gt, "(", ">") if "gt" in ends else (ge, "[", ">=")
        below, closing = (lt, ")") if "lt" in ends else (le, "]")
        if high < inf:
            said = f"in {opening}{low}, {high}{closing}"
        elif low > -inf:
            said = f"finite and {sign} {low}" if "lt" in ends else f"{sign} {low}"
        else:
            said = "finite" if "gt" in ends else "< inf and not NaN"
        return cls(lambda value: above(value, low) & below(value, high), said)


def split_annotation(annotation: Any) -> tuple[Any, list[Any]]:
    """Return an annotation without its marks, and the marks; a tensor's bound its values."""
    base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    return base, [getattr(base.dtype, "values", None)] if hasattr(base, "dim_str") else marks


def members(annotation: Any) -> list[tuple[Any, list[Any]]]:
    """Return the members of an annotation, each with its marks; `None` is left out."""
    base, marks = split_annotation(annotation)
    if get_origin(base) in (Union, UnionType) and not choices_of(base, marks):
        kinds = [kind for kind in get_args(base) if kind is not type(None)]
        return [member for kind in kinds for member in members(kind)]
    return [(base, marks)]


def choices_of(base: Any, marks: list[Any]) -> tuple[Any, ...]:
    """Return the values that an annotation lists, if it lists any."""
    listed = next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())
    return get_args(base) if get_origin(base) is Literal else listed

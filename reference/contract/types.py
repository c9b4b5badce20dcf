"""Types in signatures: the admissible values of an argument, beyond its type and its shape.

A number has its range as a mark of `annotated_types`. A tensor has it in its dtype, one of our own
jaxtyping dtypes: `Importance[Tensor, "*heads tokens"]` is a `Float` whose values are finite and at
least 0. Type checkers see `int`, `float` and `Tensor`.
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
    """One of these values, which `Literal` cannot hold."""

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

BothBits = Bits | tuple[Bits, Bits]
"""Width of all codes; those of keys and of values where they differ."""

Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]
"""Seed of a generator."""

Ratio = Annotated[float, Interval(ge=0, le=1)]
"""Interpreted as the decimal number that it prints as."""

OpenFraction = Annotated[float, Interval(gt=0, lt=1)]
"""A factor strictly between 0 and 1."""

Share = Annotated[float, Interval(gt=0, le=1)]
"""Above 0; interpreted as the decimal number that it prints as."""

NonNegative = Annotated[float, Ge(0)]
"""Infinity included."""

FiniteNonNegative = Annotated[float, Interval(ge=0, lt=inf)]
"""Infinity excluded."""

Above0 = Annotated[float, Gt(0)]
"""Infinity included."""

FiniteAbove0 = Annotated[float, Interval(gt=0, lt=inf)]
"""Infinity excluded."""

Scope = Literal["head", "layer", "model"]
"""Which entries compete for a budget."""

Scales = Annotated[torch.dtype | None, OneOf((None, torch.float16, torch.float32))]
"""Precision of minima and steps; None means the dtype of a float16 or float64 cache, else
float32."""

Mode = Literal["append", "full", "oracle"]
"""What is compressed again: nothing, the cache with its residual buffer, or the originals."""

ValueGroup = Literal["token", "head"]
"""Whether a value group is a whole token, or one head of a token."""

if TYPE_CHECKING:
    from typing import Annotated as Finite
    from typing import Annotated as Importance
    from typing import Annotated as Orderable
    from typing import Annotated as Shares
    from typing import Annotated as Wholes
else:

    class Finite(AbstractDtype):
        """Finite numbers: neither NaN nor infinity."""

        dtypes = Float.dtypes
        values = Interval(gt=-inf, lt=inf)

    class Importance(AbstractDtype):
        """Amounts that can be added up, such as attention."""

        dtypes = Float.dtypes
        values = Interval(ge=0, lt=inf)

    class Orderable(AbstractDtype):
        """Scores that can be ranked; minus infinity marks an evicted token."""

        dtypes = Float.dtypes
        values = Lt(inf)

    class Shares(AbstractDtype):
        """Shares of a whole."""

        dtypes = Float.dtypes
        values = Interval(ge=0, le=1)

    class Wholes(AbstractDtype):
        """Positions or counts."""

        dtypes = Int64.dtypes
        values = Ge(0)


class BoundsTest(NamedTuple):
    """A test for admissible numbers, and its text; NaN is never admissible."""

    hold: Callable[[Any], Any]
    said: str
    low: float
    high: float
    open_below: bool

    @classmethod
    def of(cls, marks: Iterable[Any]) -> "BoundsTest | None":
        """Return the test that marks of `annotated_types` describe; None if they set no bound."""
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
        hold = lambda value: above(value, low) & below(value, high)  # noqa: E731
        return cls(hold, said, low, high, "gt" in ends)


def split_annotation(annotation: Any) -> tuple[Any, list[Any]]:
    """Return an annotation's type and its marks; a tensor's marks are the bounds of its values."""
    base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    return base, [getattr(base.dtype, "values", None)] if hasattr(base, "dim_str") else marks


def members(annotation: Any) -> list[tuple[Any, list[Any]]]:
    """Return the members of a union, each with its marks, without `None`."""
    base, marks = split_annotation(annotation)
    if get_origin(base) in (Union, UnionType) and not choices_of(base, marks):
        kinds = [kind for kind in get_args(base) if kind is not type(None)]
        return [member for kind in kinds for member in members(kind)]
    return [(base, marks)]


def choices_of(base: Any, marks: list[Any]) -> tuple[Any, ...]:
    """Return the values that an annotation lists, if it lists any."""
    listed = next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())
    return get_args(base) if get_origin(base) is Literal else listed

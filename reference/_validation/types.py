"""The words of a signature: what an argument may be, beyond its type and its shape.

A number says its range in the vocabulary of `annotated_types`. A tensor says it in its kind, a
dtype of jaxtyping of our own: `Importance[Tensor, "*heads tokens"]` is a `Float` whose values are
finite and at least 0. Type checkers see `int`, `float` and `Tensor`.
"""

from collections.abc import Callable, Iterable
from math import inf
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge, GroupedMetadata, Gt, Interval, Lt, Predicate
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
    least: float

    @classmethod
    def of(cls, marks: Iterable[Any]) -> "BoundsTest | None":
        """Read marks of `annotated_types`; None where they bound nothing."""
        single = [
            m for mark in marks for m in (mark if isinstance(mark, GroupedMetadata) else [mark])
        ]
        ends = {e: getattr(m, e) for m in single for e in ("gt", "ge", "lt", "le") if hasattr(m, e)}
        low, high = ends.get("gt", ends.get("ge", -inf)), ends.get("lt", ends.get("le", inf))
        above, opening, sign = (gt, "(", ">") if "gt" in ends else (ge, "[", ">=")
        below, closing = (lt, ")") if "lt" in ends else (le, "]")
        words = ["finite"] * ("lt" in ends and len(ends) > 1) + [f"{sign} {low}"] * (low > -inf)
        said = f"in {opening}{low}, {high}{closing}" if high < inf else " and ".join(words)

        def hold(value: Any) -> Any:
            return above(value, low) & below(value, high)

        return cls(hold, said or "< inf and not NaN", low) if ends else None

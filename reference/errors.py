"""What a function refuses, said in one voice: the argument, its value, the admissible range.

Shapes, types and scalars are always checked. Checks that must look at a tensor's values are left
out while `torch.compile` traces, because a graph cannot branch on data.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from numbers import Real
from types import FunctionType, ModuleType

import torch
from torch import Tensor


def whole(name: str, value: int, low: int = 0, high: int | None = None) -> None:
    """Refuse what is not an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} must be {span}, got {value}")


def floating_dtype(name: str, dtype: torch.dtype) -> None:
    """Refuse what is not the dtype of floating-point tensors."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating-point dtype, got {dtype}")


def number(name: str, value: float) -> None:
    """Refuse what is not a real number: flags, text, tensors."""
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        got = _kind(value) if isinstance(value, Tensor) else repr(value)
        raise TypeError(f"{name} must be a number, got {got}")


def fraction(name: str, value: float) -> None:
    """Refuse what is outside [0, 1]."""
    number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def open_fraction(name: str, value: float) -> None:
    """Refuse what is outside (0, 1)."""
    number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")


def above_zero_to_one(name: str, value: float) -> None:
    """Refuse what is outside (0, 1]."""
    number(name, value)
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def positive(name: str, value: float) -> None:
    """Refuse what is not above 0."""
    number(name, value)
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")


def non_negative(name: str, value: float) -> None:
    """Refuse what is below 0."""
    number(name, value)
    if not value >= 0:
        raise ValueError(f"{name} must be >= 0, got {value}")


def clip_bounds(low_name: str, low: float, high_name: str, high: float) -> None:
    """Refuse a lower bound that is not finite and above 0, and an upper bound below it."""
    number(low_name, low)
    number(high_name, high)
    if not 0 < low < math.inf:
        raise ValueError(f"{low_name} must be finite and > 0, got {low}")
    if not high >= low:
        raise ValueError(f"{high_name} must be >= {low_name}, which is {low}, got {high}")


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse what is not among `choices`."""
    # compared only with its like: a list has no hash, and an array no truth
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def floating(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not a floating-point tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def integral(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not an int64 tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64:
        raise TypeError(f"{name} must be an int64 tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def boolean(name: str, tensor: Tensor, shape: Sequence[int] | None = None) -> None:
    """Refuse what is not a boolean tensor, of exactly `shape` where one is given."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor, got {_kind(tensor)}")
    if shape is not None:
        shaped(name, tensor, shape)


def shaped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not exactly of `shape`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def square(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose last two axes differ in length."""
    if tensor.shape[-1] != tensor.shape[-2]:
        raise ValueError(f"{name} must be square, got shape {tuple(tensor.shape)}")


def covering(name: str, totals: Tensor) -> None:
    """Refuse a kernel that covers nothing around some token."""
    if torch.compiler.is_compiling():
        return
    if not bool((totals > 0).all()):
        raise ValueError(
            f"{name} must sum to > 0 around every token, got {_first(totals, ~(totals > 0))}"
        )


def not_empty(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without elements: a mean over nothing has no value."""
    if not tensor.numel():
        raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")


def marking(name: str, mask: Tensor) -> None:
    """Refuse a mask that is true nowhere."""
    if torch.compiler.is_compiling():
        return
    if not bool(mask.any()):
        raise ValueError(f"{name} must be true somewhere, got {mask.tolist()}")


def no_nan(name: str, scores: Tensor) -> None:
    """Refuse NaN and plus infinity: minus infinity marks an evicted token and may stay."""
    if torch.compiler.is_compiling():
        return
    # one reduction and no mask: NaN survives a maximum
    if scores.numel() and not bool(scores.amax() < torch.inf):
        raise ValueError(
            f"{name} must be < inf and not NaN, got {_first(scores, ~(scores < torch.inf))}"
        )


def finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and both infinities."""
    if torch.compiler.is_compiling():
        return
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got {_first(tensor, ~torch.isfinite(tensor))}")


def in_range(name: str, result: Tensor) -> None:
    """Refuse what leads to a `result`, at least 0, that its dtype cannot hold."""
    if torch.compiler.is_compiling() or not result.numel():
        return
    if not bool(torch.isfinite(result.amax())):
        raise ValueError(
            f"{name} must be in the range where results are finite in {result.dtype}, "
            "got a result out of range"
        )


def importance(name: str, scores: Tensor, axes: int = 1) -> None:
    """Refuse scores that are not floating point, not finite, or negative."""
    floating(name, scores, axes)
    if torch.compiler.is_compiling():
        return
    fine = (scores >= 0) & (scores < torch.inf)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be finite and >= 0, got {_first(scores, ~fine)}")


def positive_finite(name: str, value: float) -> None:
    """Refuse what is not above 0, and infinity."""
    number(name, value)
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be finite and > 0, got {value}")


def attendable(queries: Tensor, keys: Tensor, causal: bool) -> None:
    """Refuse queries that cannot attend to `keys`: heads are the third axis from the end."""
    for name, tensor in (("queries", queries), ("keys", keys)):
        floating(name, tensor, 3)
        finite(name, tensor)
    heads, count, width = queries.shape[-3:]
    kv_heads, tokens = keys.shape[-3:-1]
    if width == 0:
        raise ValueError(f"queries must have a width of at least 1, got {width}")
    shaped("keys", keys, (*queries.shape[:-3], kv_heads, tokens, width))
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(
            f"the heads of queries must be a multiple of the {kv_heads} of keys, got {heads}"
        )
    if causal and count > tokens:
        raise ValueError(
            f"causal queries must be at most as many as the {tokens} tokens, got {count}"
        )


def budget(keep: int | Tensor | None, ratio: float | None, pool: int, pools: Sequence[int]) -> None:
    """Refuse all but one of `keep` (a number, or one for each of `pools`) and `ratio`."""
    if ratio is not None:
        fraction("ratio", ratio)
    if (keep is None) == (ratio is None):
        raise ValueError(
            f"exactly one of keep and ratio must be given, got keep={keep}, ratio={ratio}"
        )
    if isinstance(keep, Tensor):
        integral("keep", keep, 0)
        shaped("keep", keep, pools)
        bad = (keep < 0) | (keep > pool)
        if not torch.compiler.is_compiling() and bool(bad.any()):
            raise ValueError(f"keep must be in [0, {pool}], got {_first(keep, bad)}")
    elif keep is not None:
        whole("keep", keep, 0, pool)


def room(
    keep: int | Tensor | None, ratio: float | None, budgets: Tensor, protected: Tensor
) -> None:
    """Refuse a budget, as `keep` or `ratio` gave it, below its pool's protected entries."""
    if torch.compiler.is_compiling():
        return
    short = budgets < protected
    if bool(short.any()):
        given = (
            f"keep must be >= {{}}, got {keep}"
            if ratio is None
            else f"ratio must leave {{}}, got {ratio}"
        )
        raise ValueError(
            given.format(f"the {int(protected[short][0])} protected entries of a pool")
        )


def holder(name: str, value: object) -> None:
    """Refuse what can hold no tensor: a number, a string, code."""
    holds = isinstance(value, (Tensor, dict, list, tuple, set, frozenset, deque))
    slotted = any("__slots__" in vars(kind) for kind in type(value).__mro__)
    code = isinstance(value, (type, ModuleType, FunctionType))
    if code or not (holds or slotted or hasattr(value, "__dict__")):
        raise TypeError(f"{name} must be a tensor or hold tensors, got {value!r}")


def strided(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without one storage of its elements, such as a sparse one."""
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must hold strided tensors, got layout {tensor.layout}")


def layer_room(name: str, mean: int, protected: Tensor) -> None:
    """Refuse a mean budget of a head that leaves no room for the protected tokens of some layer."""
    if torch.compiler.is_compiling() or protected.numel() == 0:
        return
    heads, most = protected.shape[-2], int(protected.sum((-2, -1)).max())
    if mean * heads < most:
        raise ValueError(f"{name} must be >= {-(-most // heads)} to hold {most}, got {mean}")


def given(name: str, value: object, where: str) -> None:
    """Refuse an optional argument left out `where` it is needed."""
    if value is None:
        raise ValueError(f"{name} must be given {where}, got None")


def positions(name: str, tensor: Tensor, tokens: int) -> None:
    """Refuse what is not an int64 tensor of positions in [0, tokens - 1]."""
    integral(name, tensor)
    if torch.compiler.is_compiling():
        return
    fine = (tensor >= 0) & (tensor < tokens)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be in [0, {tokens - 1}], got {_first(tensor, ~fine)}")


def content_count(name: str, count: int, tokens: int, protected: Tensor | None) -> None:
    """Refuse a count that is no integer or above the content tokens of any row."""
    if protected is not None and protected.numel() and not torch.compiler.is_compiling():
        tokens = int((~protected).sum(-1).min())
    whole(name, count, 0, tokens)


def grouped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not of `shape`, give or take whole groups on the heads' axis -3."""
    got, shape = tuple(tensor.shape), tuple(shape)
    if got == shape:
        return
    alike = len(got) == len(shape) > 2 and got[:-3] + got[-2:] == shape[:-3] + shape[-2:]
    if not (alike and got[-3] > 0 and shape[-3] > 0 and got[-3] % shape[-3] == 0):
        raise ValueError(
            f"{name} must have shape {shape} or a multiple of its heads on axis -3, got {got}"
        )


def compared(kind: str, keys: Tensor, queries: Tensor | None, values: Tensor | None) -> None:
    """Refuse a kind of similarity, or vectors, that cannot be compared."""
    floating("keys", keys, 2)
    finite("keys", keys)
    one_of("kind", kind, ("kk", "qk", "qq", "kv", "vv"))
    if "q" in kind:
        given("queries", queries, f"where kind is {kind!r}")
    if "v" in kind:
        given("values", values, f"where kind is {kind!r}")
    if queries is not None:
        floating("queries", queries, 2)
        grouped("queries", queries, keys.shape)
        finite("queries", queries)
    if values is not None:
        floating("values", values, 2)
        shaped("values", values, keys.shape)
        finite("values", values)


def propagation(scores: Tensor, weights: Tensor | None, neighbours: Tensor, rounds: int) -> None:
    """Refuse scores, a graph or a number of rounds that no signal can travel along."""
    importance("scores", scores)
    boolean("neighbours", neighbours)
    sources = neighbours.shape[-2] if neighbours.ndim > 1 else 0
    shaped("neighbours", neighbours, (*scores.shape[:-1], sources, scores.shape[-1]))
    if weights is not None:
        floating("weights", weights, 2)
        shaped("weights", weights, neighbours.shape)
        finite("weights", weights)
    whole("rounds", rounds)


def window(keep: int, protected: Tensor) -> None:
    """Refuse a budget that the protected tokens of some row exceed."""
    if torch.compiler.is_compiling() or not protected.numel():
        return
    whole("keep", keep, int(protected.sum(-1).max()))


def _axes(name: str, tensor: Tensor, axes: int) -> None:
    if tensor.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes, got shape {tuple(tensor.shape)}")


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _first(tensor: Tensor, bad: Tensor) -> float:
    return tensor[bad][0].item()

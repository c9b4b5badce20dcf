"""Change PyTorch's results as another summation order or another processor may change them.

`Noise` moves the result of each sum, product, quotient, root and exponential by a small amount.
Equal results of an operation move alike, so that ties stay ties. Copies, selections, masks and
counts do not change.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ELEMENTWISE = {
    *("add", "sub", "rsub", "mul", "div", "reciprocal", "pow", "sqrt", "rsqrt", "addcmul"),
    *("addcdiv", "lerp", "hypot", "exp", "exp2", "expm1", "log", "log2", "log1p", "sigmoid"),
    *("tanh", "sin", "cos", "_softmax", "_log_softmax", "logsumexp", "linalg_vector_norm"),
    *("norm", "prod", "std", "var", "cumprod"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
}
PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "baddbmm"}
SUMS = {"sum", "mean", "cumsum", "nansum"}
ADDS = {*SUMS, *PRODUCTS, "add", "sub", "rsub", "mul"}
MOVED = ELEMENTWISE | PRODUCTS | SUMS
FACTORISED = {"_linalg_eigh", "_linalg_svd", "linalg_qr", "linalg_lstsq", "linalg_eig"}
GRID = 2.0**12
"""Sums of moderate multiples of 1 / `GRID` are exact."""
SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], 2**12)
NUMBERS = {torch.float64: np.int64, torch.float32: np.int32}


class DispatchMode(TorchDispatchMode):
    """A mode for which PyTorch does not import its compiler, which takes two seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Noise(DispatchMode):
    """A PyTorch mode that moves the result of each operation that rounds.

    The direction depends on the bits of the result and the seed. Half-precision results do not
    move: they are rounded when they are stored.

    Args:
        seed: decides which results move up and which down; `-seed` mirrors every direction.
        units: the distance, in multiples of the operation's error bound. For a sum the bound is
            that of the sum of magnitudes. By default an inexact result moves to a neighbouring
            number.
        apart: let equal results of different operations move differently. A function that computes
            a value twice may compute it in two ways.
    """

    def __init__(self, seed: int, units: float = 0, apart: bool = False):
        super().__init__()
        self.seed, self.units, self.apart, self.calls = seed, units, apart, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operation and move its result."""
        kwargs, packet = kwargs or {}, func.overloadpacket.__name__
        name, in_place = packet.rstrip("_"), packet.endswith("_")
        if self.units and packet in FACTORISED and args[0].numel():
            matrix = args[0].clone()
            self.move(matrix, matrix.abs().amax((-2, -1), keepdim=True))
            args = (matrix, *args[1:])
        if name not in MOVED:
            return func(*args, **kwargs)
        exact = not self.units and in_place  # `round` needs the old value
        before = (args[0].clone(), *args[1:]) if exact else args
        out = func(*args, **kwargs)
        first = out[0] if isinstance(out, tuple) else out
        if isinstance(first, Tensor) and first.dtype in NUMBERS and first.numel():
            self.round(name, func, before, kwargs, first)
        return out

    def round(self, name: str, func: Any, args: Any, kwargs: Any, out: Tensor) -> None:
        """Move a result, in place, to one that another rounding might give."""
        if not self.units:
            x = numbers(out)
            beside = np.nextafter(x, np.copysign(np.asarray(np.inf, x.dtype), self.signs(x)))
            still = exactly(name, args, out) | (x == 0) | ~np.isfinite(x)
            np.copyto(x, beside, where=~still)
        elif not (name in ADDS and all(map(whole, args[:3]))):
            sums = name in PRODUCTS or name in SUMS
            self.move(out, func(*map(magnitude, args), **kwargs) if sums else None)

    def move(self, out: Tensor, size: Tensor | None = None) -> None:
        """Move a finite result by `units` rounding errors of `size`, by default of itself."""
        x = numbers(out)
        size = np.abs(x) if size is None else numbers(size)
        step = self.units * np.finfo(x.dtype).eps * size * self.signs(x)
        np.add(x, step.astype(x.dtype), out=x, where=np.isfinite(step))

    def signs(self, x: Any) -> Any:
        """Return 1 or −1 for each element: a hash of its bits and the seed."""
        self.calls += self.apart
        bits = x.view(NUMBERS[torch.float64 if x.itemsize == 8 else torch.float32])
        salt = (abs(self.seed) * 40503 + self.calls * 977) % 2**20
        mixed = (bits ^ (bits >> 11) ^ (bits >> 23) ^ salt) * 0x9E5B  # overflow wraps around
        found = SIGNS[(mixed >> 7) & (len(SIGNS) - 1)].astype(x.dtype)
        return found if self.seed > 0 else -found


def numbers(tensor: Tensor) -> Any:
    """Return a tensor as an array that shares its memory, with at least one axis."""
    return np.atleast_1d(tensor.detach().numpy())


def magnitude(value: Any) -> Any:
    """Return the absolute values of a floating-point tensor; any other argument is unchanged."""
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    return value.abs() if is_float else value


def whole(value: Any) -> bool:
    """Whether an argument holds only whole numbers: their sums and products are exact counts."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return not isinstance(value, float) or value.is_integer()
    return value.dtype in NUMBERS and bool((np.rint(x := numbers(value)) == x).all())


def gridded(x: Any, grid: float = GRID) -> Any:
    """Whether each number is a moderate multiple of 1 / `grid`."""
    scaled = x.astype(np.float64) * grid
    return (scaled == np.rint(scaled)) & (np.abs(scaled) < 2.0**22)


def exactly(name: str, args: Any, out: Tensor) -> Any:
    """Whether each result is exact, so that every summation order and processor returns it."""
    x, half = numbers(out), GRID**0.5
    with np.errstate(all="ignore"):
        if name in SUMS or name in PRODUCTS:
            given = [a.detach().to(out.dtype) for a in args if isinstance(a, Tensor)]
            on = all(gridded(a.numpy(), GRID if name in SUMS else half).all() for a in given)
            return (gridded(x) if name == "mean" else np.True_) & on
        given = [a.detach().to(out.dtype) if isinstance(a, Tensor) else a for a in args[:2]]
        given = [np.asarray(a, x.dtype) for a in given if isinstance(a, Tensor | int | float)]
        if len(given) < 2 or name not in ("add", "sub", "rsub", "mul", "div", "pow"):
            return gridded(x, 16.0)
        a, b = np.broadcast_arrays(*given)
        if name in ("add", "sub", "rsub"):
            a, b = {"add": (a, b), "sub": (a, -b), "rsub": (b, -a)}[name]
            c = x - a
            return (a - (x - c)) + (b - c) == 0
        if name == "mul":
            return (gridded(a, half) & gridded(b, half)) | power_of_two(a) | power_of_two(b)
        if name == "div":
            return power_of_two(b) | (gridded(x, half) & gridded(b, half) & (x * b == a))
        return (gridded(a, half) & gridded(x)) | (x == a) | (x == 1)


def power_of_two(x: Any) -> Any:
    """Whether each number is 0 or a power of two, so that a product with it is exact."""
    mantissa = np.abs(np.frexp(x)[0])
    return (mantissa == 0.5) | (mantissa == 0)

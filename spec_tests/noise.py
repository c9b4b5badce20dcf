"""Round every operation otherwise: what another correct order of sums or processor could give.

Under `Noise` each sum, product, quotient, root and exponential of PyTorch is moved a little once it
is computed. Equal results of an operation are moved alike, so that ties stay ties. Copies, choices,
masks and counts are left alone.
"""

from typing import Any

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
FACTORISED = {"_linalg_eigh", "_linalg_svd", "linalg_qr", "linalg_lstsq", "linalg_eig"}
GRID = 2.0**12
"""Numbers on a grid of 1 / `GRID` that are not large are added without rounding."""


class Noise(TorchDispatchMode):
    """Move the result of each operation that rounds, by its bits and a seed.

    Args:
        seed: which results move up, and which down; `-seed` moves each the other way.
        units: move by so many times the error bound of the operation, as in an analysis of errors:
            a sum by units of the sum of magnitudes. By default an inexact result moves to a number
            beside it.
    """

    def __init__(self, seed: int, units: float = 0):
        super().__init__()
        self.seed, self.units = seed, units

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operation, and move what it gives."""
        kwargs, packet = kwargs or {}, func.overloadpacket.__name__
        name, in_place = packet.rstrip("_"), packet.endswith("_")
        if self.units and packet in FACTORISED:
            args = (self.moved(args[0], args[0].abs().max()), *args[1:])
        before = tuple(a.clone() if in_place and isinstance(a, Tensor) else a for a in args)
        out = func(*args, **kwargs)
        if name not in ELEMENTWISE and name not in PRODUCTS and name not in SUMS:
            return out
        first = out[0] if isinstance(out, tuple) else out
        if not isinstance(first, Tensor) or not first.is_floating_point() or not first.numel():
            return out
        moved = self.rounded(name, func, before, kwargs, first)
        if in_place:
            return out.copy_(moved)
        return (moved, *out[1:]) if isinstance(out, tuple) else moved

    def rounded(self, name: str, func: Any, args: Any, kwargs: Any, out: Tensor) -> Tensor:
        """Return a result as another rounding might have it."""
        if self.units:
            if counts(name, args):
                return out
            if name in PRODUCTS or name in SUMS:
                return self.moved(out, func(*mapped_abs(args), **kwargs))
            return self.moved(out, out.abs())
        if out.dtype.itemsize < 4:
            return out
        up = torch.nextafter(out, torch.full_like(out, torch.inf))
        down = torch.nextafter(out, torch.full_like(out, -torch.inf))
        beside = torch.where(self.signs(out) > 0, up, down)
        still = exact(name, args, out) | (out == 0) | ~out.isfinite()
        return torch.where(still, out, beside)

    def moved(self, out: Tensor, magnitude: Tensor) -> Tensor:
        """Return a result moved by units of a magnitude, where it is finite."""
        units = self.units if out.dtype.itemsize >= 4 else 1  # half precision is for storing: C3
        step = units * torch.finfo(out.dtype).eps * magnitude.to(out.dtype)
        return torch.where(step.isfinite(), out + self.signs(out) * step, out)

    def signs(self, out: Tensor) -> Tensor:
        """Return 1 or −1 for each element, by its bits and the seed."""
        width = {8: torch.int64, 4: torch.int32, 2: torch.int16}[out.dtype.itemsize]
        bits = out.detach().contiguous().view(width).long()
        mixed = (bits ^ (abs(self.seed) * 0x9E3779B97F4A7C1 % 2**62)) * 0x2545F4914F6CDD1D
        mixed = (mixed ^ (mixed >> 29)) * 0x369DEA0F31A53F85
        up = ((mixed >> 40) & 1) * 2 - 1
        return (up if self.seed > 0 else -up).to(out.dtype)


def mapped_abs(args: Any) -> Any:
    """Return arguments with the magnitudes of floating-point tensors."""
    return [a.abs() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]


def counts(name: str, args: Any) -> bool:
    """Whether an operation counts: it adds or multiplies whole numbers."""
    if name not in {*SUMS, *PRODUCTS, "add", "sub", "rsub", "mul"}:
        return False
    return all(bool((a == a.round()).all()) for a in operands(args))


def operands(args: Any) -> list[Tensor]:
    """Return the tensors and numbers that an operation takes, as tensors."""
    return [
        torch.as_tensor(a)
        for a in args[:3]
        if isinstance(a, Tensor | int | float) and not isinstance(a, bool)
    ]


def gridded(x: Tensor, grid: float = GRID) -> Tensor:
    """Whether each number lies on a coarse grid."""
    scaled = x.double() * grid
    return (scaled == scaled.round()) & (scaled.abs() < 2.0**22)


def exact(name: str, args: Any, out: Tensor) -> Tensor:
    """Whether each result is the exact one, which every order of sums and every processor gives."""
    given = [t.to(out.dtype) for t in operands(args)]
    if name in SUMS or name in PRODUCTS:
        grid = GRID if name in SUMS else GRID**0.5
        fine = all(bool(gridded(t, grid).all()) for t in given)
        return (gridded(out) if name == "mean" else torch.ones_like(out, dtype=torch.bool)) & fine
    if name in ("add", "sub", "rsub") and len(given) == 2:
        a, b = torch.broadcast_tensors(*given)
        a, b = {"add": (a, b), "sub": (a, -b), "rsub": (b, -a)}[name]
        c = out - a
        return (a - (out - c)) + (b - c) == 0
    if name == "mul" and len(given) == 2:
        a, b = torch.broadcast_tensors(*given)
        fine = gridded(a, GRID**0.5) & gridded(b, GRID**0.5)
        return fine | power_of_two(a) | power_of_two(b)
    if name == "div" and len(given) == 2:
        a, b = torch.broadcast_tensors(*given)
        return power_of_two(b) | (gridded(out, GRID**0.5) & gridded(b, GRID**0.5) & (out * b == a))
    if name == "pow":
        base = torch.broadcast_to(given[0], out.shape)
        fine = gridded(base, GRID**0.5) & gridded(out)
        return fine | (out == base) | (out == 1)
    return gridded(out, 16.0)


def power_of_two(x: Tensor) -> Tensor:
    """Whether a product with each number is exact: it is 0, or a power of two."""
    mantissa = torch.frexp(x).mantissa.abs()
    return (mantissa == 0.5) | (mantissa == 0)


def pairs(count: int) -> list[int]:
    """Return seeds, each with the one that moves everything the other way."""
    return [sign * seed for seed in range(1, count + 1) for sign in (1, -1)]

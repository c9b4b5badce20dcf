"""The gates' table: a row an operation, at the shape its goal is set for, with its budgets.

A row calls the launcher itself, on tensors without values. What is launched is compiled as the
launcher specialises it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized import kernels
from optimized.kernels.hex_attention import attended
from optimized.layout import TILE, PackedCache, Run
from reference import HexCache, hex_preset


class Gate(NamedTuple):
    """One operation."""

    name: str
    shape: str
    call: Callable[[], object]
    elements: int  # what the budgets count
    budgets: dict[int, float]  # lane-instructions an element, by architecture
    goal: str = ""  # microseconds on an H100
    paper: str = ""  # and as the paper reports them, on its own hardware
    trips: Mapping[str, tuple[int, ...]] = MappingProxyType({})  # of a kernel's loops, in order

    @property
    def title(self) -> str:
        """The operation at its shape."""
        return f"{self.name} {self.shape}"


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return a tensor without values."""
    return torch.empty(shape, dtype=dtype, device="meta")


def of_scores(name: str, *shape: int, dtype: torch.dtype = torch.bfloat16, **rest: Any) -> Gate:
    """Return a row that counts scores, for a kernel that takes nothing else."""
    call = getattr(kernels, name)
    kind = str(dtype).removeprefix("torch.")
    return Gate(
        name,
        f"{list(shape)} {kind}",
        lambda: call(empty(*shape, dtype=dtype)),
        torch.Size(shape).numel(),
        **rest,
    )


WHOLE = (36, 1, 8, 32768)


def of_selection(
    *shape: int, dtype: torch.dtype = torch.bfloat16, shielded: bool = True, **rest: Any
) -> Gate:
    """Return a row of selection over a model, among one mask that all rows share."""
    protected = empty(shape[-1], dtype=torch.bool).expand(shape) if shielded else None
    kind = str(dtype).removeprefix("torch.")
    return Gate(
        "retain",
        f"{list(shape)} {kind}{', protected' * shielded}",
        lambda: kernels.retain(empty(*shape, dtype=dtype), protected, ratio=0.95, scope="model"),
        torch.Size(shape).numel(),
        **rest,
    )


def of_refinement(name: str, *shape: int, shielded: bool = True, **rest: Any) -> Gate:
    """Return a row of HubKV's correction, among one mask that all rows share."""
    protected = empty(shape[-1], dtype=torch.bool).expand(shape) if shielded else None
    ratio = dict(ratio=0.95) if name == "hubkv_refine" else {}
    return Gate(
        name,
        f"{list(shape)} bfloat16{', protected' * shielded}",
        lambda: getattr(kernels, name)(empty(*shape), protected=protected, **ratio),
        torch.Size(shape).numel(),
        **rest,
    )


def of_hex(preset: str, rows: int, tiles: int, residual: int = 95, **rest: Any) -> Gate:
    """Return a row of decode attention: a layer of 32 heads over 8 key heads of 128 channels.

    It counts the tokens of each key head. The prompt is one span; the mask of a block is repeated
    along it, since that of a long span takes long to draw.
    """
    heads, width, half = 8, 128, torch.float16
    config = hex_preset(preset)._replace(tile=True)
    bits, span = config.bits, tiles * TILE
    tokens = span + residual
    words = empty(1, rows, heads, tiles, TILE * width * bits // 32, dtype=torch.int32)
    steps = empty(1, rows, heads, width, dtype=half)
    value_steps = empty(1, rows, span, dtype=half)
    none = empty(rows, heads, 0, width, dtype=half)
    exact = empty(rows, heads, residual, width, dtype=half)
    static = int(config.density * heads * width) * span
    whole = int(config.heavy * span) + config.recent * bool(config.heavy)
    kept = empty(rows * (static + whole * (heads * width - static // span)), dtype=half)
    run = Run(
        bits, span, words, steps, steps, words.clone(), value_steps, value_steps.clone(),
        kept, kept.clone(), (kept.numel(),), empty(1, rows, span, dtype=torch.bool),
    )  # fmt: skip
    mass = empty(rows, residual, dtype=torch.float32)
    cache = HexCache(config, (), exact, exact.clone(), mass, mass[:, :0], none, none)
    queries = empty(rows, 32, 1, width, dtype=half)
    return Gate(
        "hex_attention",
        f"[{rows}, 32, 1, {width}] float16, {tokens} tokens, {preset}",
        lambda: attended(queries, PackedCache((run,), cache)),
        rows * heads * tokens,
        **rest,
    )


GATES = [
    of_scores("smd", *WHOLE, budgets={80: 37.1, 90: 37.4}),
    of_refinement("hubkv_refine", *WHOLE, budgets={80: 99, 90: 99}),
    of_refinement("hubkv_refine", *WHOLE, shielded=False, budgets={80: 99, 90: 99}),
    of_refinement("ungated_refine", *WHOLE, budgets={80: 99, 90: 99}),
    of_selection(*WHOLE, budgets={80: 99, 90: 99}, trips=dict(cut_kernel=(3,))),
    of_selection(*WHOLE, shielded=False, budgets={80: 99, 90: 99}, trips=dict(cut_kernel=(3,))),
    of_selection(
        *WHOLE,
        dtype=torch.float32,
        shielded=False,
        budgets={80: 99, 90: 99},
        trips=dict(cut_kernel=(3,)),
    ),
    of_hex(
        "KCVT-4",
        8,
        340,
        budgets={80: 747, 90: 753},
        trips=dict(fours_kernel=(11,), plain_kernel=(3,), merge_kernel=(7, 3)),
        goal="162",
    ),
    of_hex(
        "HEX-4",
        8,
        340,
        budgets={80: 3261, 90: 3319},
        trips=dict(
            logits_kernel=(11, 2),
            fours_kernel=(11,),
            reading_kernel=(11, 3, 2),
            plain_kernel=(3,),
            merge_kernel=(7, 3),
        ),
        goal="162",
    ),
]

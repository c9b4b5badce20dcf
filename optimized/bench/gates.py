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


def of_graph(tokens: int, goal: str, chunks: int, **rest: Any) -> Gate:
    """Return a row of a decay over one layer of 8 heads, 153 sources of 8 neighbours."""
    knobs = dict(queries=None, values=None, kind="kk", fraction=0.3, rounds=1, strength=1.0)
    knobs |= dict(rule="product", signal="decay", per_head=False, spare_sources=False)
    knobs |= dict(clamp=False, exclude_window=False, adaptive=False)
    trips = dict(lengths_kernel=(16, 0), maxima_kernel=(16, 0), exact_kernel=(16, 0))
    trips |= dict(pick_kernel=(chunks,) * 5, cut_kernel=(1,) * 5, signal_kernel=(3, 16, 0))
    return Gate(
        "graphkv_refine",
        f"[8, {tokens}, 128] bfloat16",
        lambda: kernels.graphkv_refine(
            empty(8, tokens), empty(8, tokens, 128), 512, 8, None, **knobs
        ),
        153 * tokens,
        goal=goal,
        trips=trips,
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
    of_graph(8192, "25", 1, budgets={80: 583.9, 90: 549.5}),
    of_graph(32768, "75", 1, budgets={80: 408.2, 90: 383.3}),
    of_graph(131072, "280", 2, budgets={80: 378.7, 90: 356.2}),
]

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


def of_both(*shape: int, **rest: Any) -> Gate:
    """Return a row of what the HubKV paper times: refinement, then selection over the model."""
    protected = empty(shape[-1], dtype=torch.bool).expand(shape)

    def call() -> Tensor:
        refined = kernels.hubkv_refine(empty(*shape), 0.95, protected)
        return kernels.retain(refined, protected, ratio=0.95, scope="model")

    name = "hubkv_refine + retain"
    return Gate(name, f"{list(shape)} bfloat16", call, torch.Size(shape).numel(), **rest)


REFINED = {"weights_kernel": (1,)}
SELECTED = {"cut_kernel": (3,)}
GATES = [
    of_scores("smd", *WHOLE, budgets={80: 40.6, 90: 41.0}),
    of_refinement("hubkv_refine", *WHOLE, budgets={80: 72.5, 90: 73.3}, trips=REFINED),
    of_refinement(
        "hubkv_refine", *WHOLE, shielded=False, budgets={80: 58.9, 90: 59.3}, trips=REFINED
    ),
    of_refinement("ungated_refine", *WHOLE, budgets={80: 72.5, 90: 73.3}, trips=REFINED),
    of_selection(*WHOLE, budgets={80: 129.1, 90: 130.4}, trips=SELECTED),
    of_selection(*WHOLE, shielded=False, budgets={80: 122.0, 90: 123.1}, trips=SELECTED),
    of_selection(
        *WHOLE, dtype=torch.float32, shielded=False, budgets={80: 268.9, 90: 270.0}, trips=SELECTED
    ),
    of_both(
        *WHOLE, budgets={80: 201.6, 90: 203.7}, goal="65", paper="17900", trips=REFINED | SELECTED
    ),
]

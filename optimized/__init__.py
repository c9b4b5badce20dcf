"""The reference API, fast: Triton kernels on CUDA, vectorised PyTorch everywhere else.

The table below is the whole optimisation map: the specification, its vectorised body, its kernel.
A row without a kernel runs its vectorised body on every device. `elementwise` declares a
specification that has no loop to get rid of: `optimized.vector` offers that very body.
"""

import reference
from optimized import kernels, vector
from optimized._dispatch import dispatch, elementwise

hub_mask = dispatch(reference.hub_mask, vector.hub_mask)
discount = dispatch(reference.discount, vector.discount)
smd = dispatch(reference.smd, vector.smd, kernels.smd)
selectivity = dispatch(reference.selectivity, vector.selectivity)
head_weights = dispatch(reference.head_weights, vector.head_weights)
calibrate = elementwise(reference.calibrate)
gate = elementwise(reference.gate)
protected_mask = elementwise(reference.protected_mask)
hubkv_refine = dispatch(reference.hubkv_refine, vector.hubkv_refine)
shift_scores = elementwise(reference.shift_scores)
ungated_refine = dispatch(reference.ungated_refine, vector.ungated_refine)
head_budgets = dispatch(reference.head_budgets, vector.head_budgets)

__all__ = reference.__all__  # pyright: ignore[reportUnsupportedDunderAll]

"""SnapKV over the attention mass of a window of queries."""

from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import kernels_support
from optimized.kernels.hex.heavy_hitters import columns
from optimized.vector.scorers.snapkv import observed
from reference.scorers.scored import Scored


@gradient_fallback(vector.snapkv)
def snapkv(
    queries: Tensor,
    keys: Tensor,
    window: int,
    kernel: int,
    pooling: str,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Scored:
    if not kernels_support(queries, keys, log_sum_exp):
        return vector.snapkv(queries, keys, window, kernel, pooling, valid, log_sum_exp)

    def mass_by_head(queries, keys, valid, log_sum_exp, dtype):
        mass = columns(queries, keys, valid, log_sum_exp=log_sum_exp, apart=True)
        return mass.to(dtype).unflatten(-2, (keys.shape[-3], -1))

    return observed(mass_by_head, queries, keys, window, kernel, pooling, valid, log_sum_exp)

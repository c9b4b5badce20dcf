"""What attention refuses, in the voice of `reference.errors`."""

from torch import Tensor

from reference import errors


def attendable(queries: Tensor, keys: Tensor, causal: bool) -> None:
    """Refuse queries that cannot attend to `keys`: heads are the third axis from the end."""
    for name, tensor in (("queries", queries), ("keys", keys)):
        errors.floating(name, tensor, 3)
        errors.finite(name, tensor)
    heads, count, width = queries.shape[-3:]
    kv_heads, tokens = keys.shape[-3:-1]
    if width == 0:
        raise ValueError(f"queries must have a width of at least 1, got {width}")
    errors.shaped("keys", keys, (*queries.shape[:-3], kv_heads, tokens, width))
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(
            f"the heads of queries must be a multiple of the {kv_heads} of keys, got {heads}"
        )
    if causal and count > tokens:
        raise ValueError(
            f"causal queries must be at most as many as the {tokens} tokens, got {count}"
        )

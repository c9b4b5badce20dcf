"""Cache tensors that outlive the call that makes them."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import torch


def cached_tensors(maxsize: int) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that caches tensors, which are made on the CPU.

    A caller's default device, such as `with torch.device("meta")`, does not last in the cache.
    """

    def decorate(find: Callable[..., Any]) -> Any:
        @lru_cache(maxsize)
        @wraps(find)
        def call(*asked: Any) -> Any:
            with torch.device("cpu"):
                return find(*asked)

        return call

    return decorate

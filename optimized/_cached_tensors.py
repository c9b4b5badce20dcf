"""Cache tensors that outlive the call that makes them."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import torch


def cached_tensors(maxsize: int) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that caches what a function makes on the CPU, whatever the default is."""

    def decorate(find: Callable[..., Any]) -> Any:
        def on_the_cpu(*arguments: Any) -> Any:
            with torch.device("cpu"):
                return find(*arguments)

        return lru_cache(maxsize)(wraps(find)(on_the_cpu))

    return decorate

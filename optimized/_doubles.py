"""Double precision for devices that have none."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from torch import Tensor

P = ParamSpec("P")


def doubles_on_cpu(body: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Return a body whose sums in float64 run on the CPU where its tensors are on Apple's MPS."""

    @wraps(body)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        given: list[Any] = [*args, *kwargs.values()]
        home = next((x.device for x in given if isinstance(x, Tensor) and x.is_mps), None)
        if home is None:
            return body(*args, **kwargs)
        near: list[Any] = [x.cpu() if isinstance(x, Tensor) else x for x in given]
        named: dict[str, Any] = dict(zip(kwargs, near[len(args) :], strict=True))
        on_cpu: Callable[..., Tensor] = body
        return on_cpu(*near[: len(args)], **named).to(home)

    return call

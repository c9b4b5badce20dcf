"""The names of `optimized`: importing this module puts them there."""

from inspect import isfunction
from typing import Any

import optimized
import reference
from optimized import vector
from optimized._dispatch import dispatch, kernel_of
from reference.contract.enforce import trusted


def row(name: str) -> Any:
    """Return a function of the reference with its fastest body, or a record."""
    spec = getattr(reference, name)
    if not isfunction(spec):
        return getattr(vector, name, spec)
    return dispatch(spec, getattr(vector, name), lambda: kernel_of(name))


names = {"__all__": reference.__all__, "kernel_of": kernel_of, "trusted": trusted}
optimized.__dict__.update(names | {name: row(name) for name in reference.__all__})

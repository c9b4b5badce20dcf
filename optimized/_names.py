"""The names of `optimized`: importing this module puts them there."""

from functools import partial
from inspect import isfunction

import optimized
import reference
from optimized import vector
from optimized._dispatch import dispatch, kernel_of
from reference.contract.enforce import trusted

names = {"__all__": reference.__all__, "kernel_of": kernel_of, "trusted": trusted}
for name in reference.__all__:
    spec = getattr(reference, name)
    body = getattr(vector, name, spec)
    names[name] = dispatch(spec, body, partial(kernel_of, name)) if isfunction(spec) else body
optimized.__dict__.update(names)

"""The optimisation map: `python -m optimized.list_backends` prints each body and kernel."""

from inspect import isfunction, unwrap

import reference
from optimized import kernels, vector


def lines() -> list[tuple[str, str, str]]:
    """Return the name of each public function, the module of its body and that of its kernel."""
    found = []
    for name in reference.__all__:
        if isfunction(getattr(reference, name)):
            body, spec = getattr(vector, name), unwrap(getattr(reference, name))
            place = body.__module__ + (" (no loop)" if body is spec else "")
            found.append((name, place, of_kernel(name)))
    return found


def of_kernel(name: str) -> str:
    """Return the module that holds a function's kernel."""
    if name not in kernels.__all__:
        return "-" if kernels.__all__ else "not known without Triton"
    return getattr(kernels, name).__module__


if __name__ == "__main__":
    for name, body, kernel in lines():
        print(f"{name:<24}{body:<63}{kernel}")

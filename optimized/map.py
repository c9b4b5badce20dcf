"""The whole optimisation map: `python -m optimized.map` prints each body and each kernel."""

from inspect import isfunction, unwrap

import reference
from optimized import kernels, vector


def lines() -> list[tuple[str, str, str]]:
    """Return each function of the specification, where its body stands, and its kernel."""
    found = []
    for name in reference.__all__:
        if isfunction(getattr(reference, name)):
            body, spec = getattr(vector, name), unwrap(getattr(reference, name))
            kernel = getattr(kernels, name, None)
            place = body.__module__ + (" (no loop)" if body is spec else "")
            if place.startswith("optimized.composed."):  # no file: the reference's text
                place = f"{spec.__module__} (over fast leaves)"
            found.append((name, place, kernel.__module__ if kernel else "-"))
    return found


if __name__ == "__main__":
    for name, body, kernel in lines():
        print(f"{name:<24}{body:<56}{kernel}")

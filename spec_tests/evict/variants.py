"""Another correct way to count bytes."""

import torch

from spec_tests.variants.registry import register_variant


@register_variant("stored_bytes")
def by_a_walk(object):
    """Keep a list of the objects to visit, and of the storages found."""
    waiting, seen, sizes = [object], set(), {}
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
            continue
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif hasattr(one, "__iter__") and not isinstance(one, (str, bytes)):
            waiting += one
        waiting += vars(one).values() if hasattr(one, "__dict__") else []
        for kind in type(one).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in [slots] if isinstance(slots, str) else slots:
                hidden = name.startswith("__") and not name.endswith("__")
                name = f"_{kind.__name__}{name}" if hidden else name
                waiting += [getattr(one, name)] if hasattr(one, name) else []
    return sum(sizes.values())

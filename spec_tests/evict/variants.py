"""Other correct ways to evict, and to count bytes."""

import torch

import reference
from spec_tests.variants.registry import register_variant


def by_boolean_indexing(keys, values, kept):
    """Index with the mask: entries come head by head, in position order."""
    *heads, tokens, width = keys.shape
    counts = kept.sum(-1).flatten()
    places = torch.arange(tokens).expand(kept.shape)[kept]
    if len(set(counts.tolist())) > 1:
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return reference.RaggedCache(keys[kept], values[kept], places, ends)
    count = int(counts[0]) if len(counts) else 0
    return reference.DenseCache(
        keys[kept].reshape(*heads, count, width),
        values[kept].reshape(*heads, count, width),
        places.reshape(*heads, count),
    )


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

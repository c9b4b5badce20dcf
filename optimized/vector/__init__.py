"""Vectorised PyTorch bodies: any device, no loops over tokens, heads or queries."""

from importlib import import_module
from inspect import ismodule, unwrap
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import reference

if TYPE_CHECKING:
    from reference import *  # noqa: F403

ELEMENTWISE = frozenset(
    [
        "kept_count",
        "ranking",
        "stored_bytes",
        "fastkvzip_loss",
        "train_fastkvzip",
        "h2o",
        "streaming_llm",
        "gaussian_kernel",
        "discount",
        "head_weights",
        "calibrate",
        "gate",
        "protected_mask",
        "shift_scores",
        "random_order",
        "content_series",
        "source_count",
        "source_tokens",
        "neighbour_count",
        "concatenate_heads",
        "kv_bytes",
        "hide_needle",
        "biregular_degrees",
        "ramanujan_bound",
        "bipartite_adjacency",
        "spectral_gap",
        "dequantise",
        "hex_preset",
        "hex_bytes",
        "hex_size",
        "paper_size",
        "quantizer_bytes",
        "kivi_size",
        "gear_size",
        "kivi_share",
        "quantizer_sizes",
    ]
)
"""What runs the reference's own body, since that has no loop to get rid of."""


def _bodies() -> dict[str, Any]:
    """Return what the modules of this package define or compose under public names."""
    found: dict[str, Any] = {}
    for place in walk_packages([str(Path(__file__).parent)], f"{__name__}."):
        here = vars(import_module(place.name))
        for name in here.keys() & set(reference.__all__):
            spec, body = getattr(reference, name), here[name]
            if not ismodule(body) and body not in (spec, unwrap(spec)):
                assert found.setdefault(name, body) is body, f"{place.name} has another {name}"
    return found


_found = {name: unwrap(getattr(reference, name)) for name in ELEMENTWISE} | _bodies()
__all__ = [n for n in reference.__all__ if n in _found]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update(_found)

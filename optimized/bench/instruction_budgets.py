"""The table of instruction budgets: a row for each operation at the shape of its goal.

A row calls the launcher on tensors without values. The kernels it launches are compiled as the
launcher specialises them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized import kernels
from optimized.bench.launch_recorder import Launch, launched, recorded
from optimized.hex_packed_layout import TILE, PackedCache, Run
from optimized.kernels.evict import gathered, kept_per_block
from optimized.kernels.hex.attention import attended
from optimized.kernels.hex.compress import coded_span, restored
from reference import HexCache, hex_preset
from reference._validation.contract import trusted
from reference.evict import RaggedCache


class Gate(NamedTuple):
    """One operation, with its budgets and its goal."""

    name: str
    shape: str
    call: Callable[[], object]
    elements: int  # the unit of budgets: scores, logits, entries or tokens
    budgets: dict[int, float]  # lane-instructions an element, by architecture; {}: no limit
    goal: str = ""  # microseconds on an H100
    paper: str = ""  # microseconds that the paper reports on its own hardware
    trips: Mapping[str, tuple[float, ...]] = MappingProxyType({})  # loops' iterations, by kernel

    @property
    def title(self) -> str:
        """The operation at its shape."""
        return f"{self.name} {self.shape}"

    @property
    def launches(self) -> list[Launch]:
        """The launches of the call."""
        return launched(self.call)


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return a tensor without values."""
    return torch.empty(shape, dtype=dtype, device="meta")


def kind_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in a row."""
    return str(dtype).removeprefix("torch.")


def of_one_row(*shape: int) -> Tensor:
    """Return a mask whose rows share one row of memory."""
    return empty(shape[-1], dtype=torch.bool).expand(shape)


def of_scores(name: str, *shape: int, dtype: torch.dtype = torch.bfloat16, **rest: Any) -> Gate:
    """Return a row of an operation on scores alone; elements are scores."""
    call = getattr(kernels, name)
    return Gate(
        name,
        f"{list(shape)} {kind_of(dtype)}",
        lambda: call(empty(*shape, dtype=dtype)),
        torch.Size(shape).numel(),
        **rest,
    )


WHOLE = (36, 1, 8, 32768)


def of_selection(
    *shape: int, dtype: torch.dtype = torch.bfloat16, shielded: bool = True, **rest: Any
) -> Gate:
    """Return a row of selection over a model, with a protected mask that all rows share."""
    protected = of_one_row(*shape) if shielded else None
    return Gate(
        "retain",
        f"{list(shape)} {kind_of(dtype)}{', protected' * shielded}",
        lambda: kernels.retain(empty(*shape, dtype=dtype), protected, ratio=0.95, scope="model"),
        torch.Size(shape).numel(),
        **rest,
    )


def of_refinement(name: str, *shape: int, shielded: bool = True, **rest: Any) -> Gate:
    """Return a row of HubKV's refinement, with a protected mask that all rows share."""
    protected = of_one_row(*shape) if shielded else None
    ratio = dict(ratio=0.95) if name == "hubkv_refine" else {}
    return Gate(
        name,
        f"{list(shape)} bfloat16{', protected' * shielded}",
        lambda: getattr(kernels, name)(empty(*shape), protected=protected, **ratio),
        torch.Size(shape).numel(),
        **rest,
    )


def of_both(*shape: int, **rest: Any) -> Gate:
    """Return a row of what the HubKV paper times: refinement, then selection over the model."""
    protected = of_one_row(*shape)

    def call() -> Tensor:
        refined = kernels.hubkv_refine(empty(*shape), 0.95, protected)
        return kernels.retain(refined, protected, ratio=0.95, scope="model")

    name = "hubkv_refine + retain"
    return Gate(name, f"{list(shape)} bfloat16", call, torch.Size(shape).numel(), **rest)


REFINED = {"weights_kernel": (1,)}
SELECTED = {"cut_kernel": (3,)}

QUERY_HEADS, KV_HEADS, CHANNELS = 32, 8, 128
FLASH = 0.6
"""The goal of attention mass relative to a flash-attention forward, which has two products."""


def of_mass(
    name: str,
    what: str,
    count: int,
    tokens: int,
    dtype: torch.dtype = torch.bfloat16,
    padded: bool = False,
    known: bool = False,
    before: int = 0,
    *,
    trips: Mapping[str, tuple[float, ...]],
    **rest: Any,
) -> Gate:
    """Return a row of attention mass in a layer; elements are logits.

    With `known` the log-sum-exp of the queries is given; else it is computed.
    """
    queries = empty(1, QUERY_HEADS, count, CHANNELS, dtype=dtype)
    keys = empty(1, KV_HEADS, tokens, CHANNELS, dtype=dtype)
    valid = empty(1, tokens, dtype=torch.bool) if padded else None
    mass = empty(1, KV_HEADS, before, dtype=torch.float32) if before else None
    sums = empty(1, QUERY_HEADS, count, dtype=torch.float32) if known else None
    settings = dict(
        h2o_mass=dict(mass=mass, valid=valid),
        attention_mass=dict(span=None, causal=True, normalize=False),
        snapkv=dict(window=count, kernel=5, pooling="average", valid=valid),
    )
    pairs = QUERY_HEADS * (count * tokens - count * (count - 1) // 2)
    # an H100 multiplies and adds 2048 times a clock on each of 132 multiprocessors at 1.755 GHz
    flash = 2 * pairs * CHANNELS / (2048 * 132 * 1.755e9)
    options = ", padded" * padded + ", log-sum-exp" * known
    return Gate(
        name,
        f"{what}, {count} x {tokens} {kind_of(dtype)}{options}",
        lambda: getattr(kernels, name)(queries, keys, **settings[name], log_sum_exp=sums),
        pairs,
        goal=f"{1e6 * FLASH * flash:.0f}" if count == tokens and dtype.itemsize == 2 else "",
        trips=dict(mass_kernel=trips["mass_kernel"]) if known else trips,
        **rest,
    )


def of_eviction(tokens: int, share: float, **rest: Any) -> Gate:
    """Return a row of eviction with a given number of kept entries; elements are entries."""
    cache = empty(1, KV_HEADS, tokens, CHANNELS)
    kept = empty(1, KV_HEADS, tokens, dtype=torch.bool)
    left = round(KV_HEADS * tokens * share)
    return Gate(
        "evict",
        f"[1, {KV_HEADS}, {tokens}, {CHANNELS}] bfloat16, {share:.0%} left",
        lambda: gathered(cache, torch.empty_like(cache), kept, kept_per_block(kept), left),
        kept.numel(),
        **rest,
    )


def of_ragged(tokens: int, **rest: Any) -> Gate:
    """Return a row of a decoding step over so many entries a head; elements are entries."""
    entries, new = KV_HEADS * tokens, empty(1, KV_HEADS, 1, CHANNELS)
    integers = dict(dtype=torch.int64)
    cache = RaggedCache(
        empty(entries, CHANNELS),
        empty(entries, CHANNELS),
        empty(entries, **integers),
        empty(KV_HEADS + 1, **integers),
    )
    queries = empty(1, QUERY_HEADS, 1, CHANNELS)
    return Gate(
        "ragged_attention",
        f"a decoding step, {tokens} entries a head, bfloat16",
        lambda: kernels.ragged_attention(queries, cache, new, torch.empty_like(new)),
        entries,
        **rest,
    )


def of_packing(name: str, tokens: int, bits: int, **rest: Any) -> Gate:
    """Return a row of a span of 8 heads of 128 channels.

    Elements are tokens of each head. PyTorch gathers and scatters kept entries, which is not
    counted.
    """
    heads, width, half = 8, 128, torch.float16
    keys, dynamic = empty(heads, tokens, width, dtype=half), empty(tokens, dtype=torch.bool)
    span = keys, torch.empty_like(keys), empty(tokens, heads * width, dtype=torch.bool), dynamic
    with trusted(), recorded():
        stored = coded_span(*span, bits, "token", None)
    return Gate(
        name,
        f"[{heads}, {tokens}, {width}] float16, {bits} bits",
        (lambda: coded_span(*span, bits, "token", None))
        if name == "hex_compress"
        else lambda: restored(stored, dynamic, bits, half),
        heads * tokens,
        **rest,
    )


def of_hex(
    preset: str,
    rows: int,
    tiles: int,
    width: int = 128,
    weights: bool = False,
    **rest: Any,
) -> Gate:
    """Return a row of decode attention: a layer of 32 heads over 8 key heads.

    Elements are tokens of each key head. `weights` adds the mass of all tokens. The prompt is one
    span. It repeats the mask of a block, since the mask of a long span takes long to draw.
    """
    heads, half, residual = 8, torch.float16, 95
    config = hex_preset(preset)._replace(tile=True)
    bits, span = config.bits, tiles * TILE
    tokens = span + residual
    words = empty(1, rows, heads, tiles, TILE * width * bits // 32, dtype=torch.int32)
    steps = empty(1, rows, heads, width, dtype=half)
    value_steps = empty(1, rows, span, dtype=half)
    none = empty(rows, heads, 0, width, dtype=half)
    exact = empty(rows, heads, residual, width, dtype=half)
    static = int(config.density * heads * width) * span
    whole = int(config.heavy * span) + config.recent * bool(config.heavy)
    kept = empty(rows * (static + whole * (heads * width - static // span)), dtype=half)
    run = Run(
        bits, span, words, steps, steps, words.clone(), value_steps, value_steps.clone(),
        kept, kept.clone(), (kept.numel(),), empty(1, rows, span, dtype=torch.bool),
        empty(1, rows, heads, tiles, dtype=torch.int64),
    )  # fmt: skip
    mass = empty(rows, residual, dtype=torch.float32)
    kind = f"{preset.partition('-')[0]}-{bits}{', mass' * weights}"
    cache = HexCache(config, (), exact, exact.clone(), mass, mass[:, :0], none, none)
    queries = empty(rows, 32, 1, width, dtype=half)
    return Gate(
        "hex_attention",
        f"[{rows}, 32, 1, {width}] float16, {tokens} tokens, {kind}",
        lambda: attended(queries, PackedCache((run,), cache), mass=weights),
        rows * heads * tokens,
        **rest,
    )


def of_graph(tokens: int, goal: str, spans: int, **rest: Any) -> Gate:
    """Return a row of a decay over one layer of 8 heads, 153 sources of 8 neighbours.

    The neighbours are spread over all tokens. All `spans` of tokens have equally many neighbours,
    applied one by one.
    """
    sources, count = 153, 8
    knobs: dict[str, Any] = dict(
        queries=None, values=None, kind="kk", fraction=0.3, rounds=1, strength=1.0
    )
    knobs |= dict(rule="product", signal="decay", per_head=False, spare_sources=False)
    knobs |= dict(clamp=False, exclude_window=False, adaptive=False)
    best, lists = (1,) * 5, 2
    trips = dict(sources_kernel=(1,), maxima_kernel=(32,))
    trips |= dict(neighbours_kernel=(*best, *best, 1, 32, *best, 1))
    trips |= dict(signal_kernel=(lists, sources * count / lists / spans))
    vectors = empty(8, tokens, 128)
    return Gate(
        "graphkv_refine",
        f"[8, {tokens}, 128] bfloat16",
        lambda: kernels.graphkv_refine(empty(8, tokens), vectors, 512, count, None, **knobs),
        sources * tokens,
        goal=goal,
        trips=trips,
        **rest,
    )


SHORT = dict(sums_kernel=(63, 2), mass_kernel=(4, 2, 63))
LONG = dict(sums_kernel=(255, 2), mass_kernel=(4, 2, 255))
"""Loop iterations over a prompt of 8192 tokens in half precision, and over four times the tiles."""
OBSERVED = dict(sums_kernel=(16, 1), mass_kernel=(0, 1))
"""Loop iterations over the tokens before a window."""
LITERAL = (3, 17 / 3, 2 / 3, 2, 4, 17 / 4)
"""Iterations of a tile's loops over kept entries, for a mask that is drawn for the whole span: the
most entries of 32 lanes, 17 over three parts of tokens and over four of channels; two tokens are
kept whole."""
CODES = dict(codes_kernel=(11,), residual_kernel=(2,), merge_kernel=(3,))
"""Iterations over tiles, and over the residual buffer, six in three programs of a head."""
ENTRIES = CODES | dict(codes_kernel=(11, *LITERAL))
"""The same with kept entries."""
MASS = dict(mass_kernel=(2, 0))
"""Iterations over 8 heads, four at a time."""
CODED = (8, 8)
"""Iterations over slices of the channels of a strip, for their range and for their codes."""
PACKING = {
    3: ({80: 14842, 90: 14870}, {80: 3996, 90: 4104}),
    4: ({80: 16153, 90: 16198}, {80: 3096, 90: 3168}),
}
"""Budgets of compressing and of restoring a long span, by bits."""


def of_span(bits: int) -> tuple[Gate, Gate]:
    """Return the two rows of a long span."""
    stored, restored = PACKING[bits]
    span = 32640, bits
    return (
        of_packing(
            "hex_compress",
            *span,
            budgets=stored,
            goal="120",
            trips=dict(range_kernel=(32,), scales_kernel=(2,), codes_kernel=CODED),
        ),
        of_packing("hex_reconstruct", *span, budgets=restored),
    )


GATES = [
    of_scores("smd", *WHOLE, budgets={80: 40.6, 90: 41.0}),
    of_refinement("hubkv_refine", *WHOLE, budgets={80: 41.6, 90: 41.9}, trips=REFINED),
    of_refinement(
        "hubkv_refine", *WHOLE, shielded=False, budgets={80: 26.7, 90: 27.4}, trips=REFINED
    ),
    of_refinement("ungated_refine", *WHOLE, budgets={80: 41.6, 90: 41.9}, trips=REFINED),
    of_selection(*WHOLE, budgets={80: 137.1, 90: 135.5}, trips=SELECTED),
    of_selection(*WHOLE, shielded=False, budgets={80: 130.0, 90: 128.3}, trips=SELECTED),
    of_selection(
        *WHOLE,
        dtype=torch.float32,
        shielded=False,
        budgets={80: 277.5, 90: 275.9},
        trips={"cut_kernel": (3,)},
    ),
    of_both(
        *WHOLE, budgets={80: 178.7, 90: 177.4}, goal="65", paper="17900", trips=REFINED | SELECTED
    ),
    *(
        of_both(
            *shape,
            budgets=budgets,
            goal=goal,
            paper=paper,
            trips=dict(
                weights_kernel=(max(1, shape[-1] // 2**18),) * (shape[-1] > 4096),
                cut_kernel=(tiles,),
            ),
        )
        for shape, tiles, goal, paper, budgets in (
            ((36, 1, 8, 4096), 1, "30", "2510", {}),
            ((36, 1, 8, 8192), 1, "35", "4760", {}),
            ((36, 1, 8, 16384), 2, "45", "10180", {}),
            ((36, 4, 8, 32768), 3, "230", "26730", {}),
            ((36, 1, 8, 2**20), 72, "2500", "", {80: 178.7, 90: 177.4}),
        )
    ),
    of_mass("h2o_mass", "prompt", 8192, 8192, budgets={80: 23.0, 90: 17.6}, trips=SHORT),
    of_mass("h2o_mass", "prompt", 32768, 32768, budgets={80: 22.3, 90: 17.0}, trips=LONG),
    of_mass(
        *("h2o_mass", "prompt", 8192, 8192),
        padded=True,
        budgets={80: 32.5, 90: 23.2},
        trips=SHORT,
    ),
    of_mass("h2o_mass", "prompt", 8192, 8192, known=True, budgets={80: 9.9, 90: 7.9}, trips=SHORT),
    of_mass("h2o_mass", "prompt", 32768, 32768, known=True, budgets={80: 9.6, 90: 7.6}, trips=LONG),
    of_mass(
        *("h2o_mass", "prompt", 8192, 8192),
        padded=True,
        known=True,
        budgets={80: 10.3, 90: 8.8},
        trips=SHORT,
    ),
    of_mass(
        *("h2o_mass", "prompt", 8192, 8192, torch.float32),
        budgets={80: 439.7, 90: 439.8},
        trips=LONG,
    ),
    of_mass(
        *("h2o_mass", "decoding step", 1, 32768),
        before=32767,
        budgets={80: 274.9, 90: 298.8},
        trips=dict(sums_kernel=(16, 1), mass_kernel=(1,)),
    ),
    of_mass("snapkv", "window", 32, 32768, budgets={80: 43.7, 90: 39.5}, trips=OBSERVED),
    of_mass(
        "snapkv", "window", 32, 32768, known=True, budgets={80: 26.2, 90: 27.8}, trips=OBSERVED
    ),
    of_mass("attention_mass", "prompt", 8192, 8192, budgets={80: 23.0, 90: 17.6}, trips=SHORT),
    of_mass(
        *("attention_mass", "prompt", 8192, 8192),
        known=True,
        budgets={80: 9.9, 90: 7.9},
        trips=SHORT,
    ),
    of_eviction(32768, 0.5, budgets={80: 573.2, 90: 611.4}),
    of_ragged(8192, budgets={80: 1420.6, 90: 1413.5}, trips=dict(attend_kernel=(4,))),
    of_hex("KCVT-4", 8, 340, budgets={80: 954, 90: 958}, trips=CODES, goal="162"),
    of_hex("KCVT-3", 8, 340, budgets={80: 922, 90: 922}, trips=CODES, goal="154"),
    of_hex("KCVT-4", 8, 340, width=64, budgets={80: 545, 90: 549}, trips=CODES),
    of_hex("HEX-4", 8, 340, budgets={80: 1764, 90: 1735}, trips=ENTRIES, goal="162"),
    *(
        of_hex(
            *(preset, 1, 85),
            budgets={},
            trips=dict(codes_kernel=entries, residual_kernel=(2,), merge_kernel=(6,)),
            goal="9.4",
        )
        for preset, entries in (("KCVT-4", ()), ("HEX-4", LITERAL))
    ),
    of_hex("HEX-3", 8, 340, budgets={80: 1664, 90: 1649}, trips=ENTRIES, goal="154"),
    of_hex(
        *("KCVT-4", 1, 10923),
        weights=True,
        budgets={80: 1053, 90: 1071},
        trips=MASS | dict(codes_kernel=(42,), residual_kernel=(2,), merge_kernel=(17,)),
    ),
    of_hex("HEX-4", 8, 340, weights=True, budgets={80: 1862, 90: 1845}, trips=ENTRIES | MASS),
    *(row for bits in PACKING for row in of_span(bits)),
    *(
        of_packing(
            "hex_compress",
            96,
            bits,
            budgets=budgets,
            trips=dict(range_kernel=(3,), codes_kernel=CODED),
        )
        for bits, budgets in {3: {80: 15950, 90: 15980}, 4: {80: 17260, 90: 17300}}.items()
    ),
    of_graph(8192, "25", 128, budgets={80: 264.3, 90: 259.8}),
    of_graph(32768, "75", 512, budgets={80: 168.7, 90: 151.6}),
    of_graph(131072, "280", 512, budgets={80: 143.9, 90: 124.5}),
]

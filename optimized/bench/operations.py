"""The operations of the kernels at the shapes of use: timed on a GPU, and compiled without one.

Small shapes run the same calls in Triton's interpreter. On the device `meta` tensors have no
values: a call only launches, and a launch recorder notes what it would compile.
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

import optimized as kv
from optimized import kernels, vector
from optimized.bench.launch_recorder import Launch, launched
from optimized.hex_packed_layout import TILE, PackedCache, PackedSpans
from optimized.kernels.evict import gathered, kept_per_block
from optimized.kernels.hex._packed_decode_step import ready
from optimized.kernels.hex.attention import attend_packed, decode
from optimized.kernels.hex.compress import coded_span, restored
from reference import HexCache

Named = dict[str, Any]
Rivals = Mapping[str, Callable[..., object]]
NONE: Mapping[str, Any] = MappingProxyType({})
STEPS = ("decode", "select", "pack", "mass", "graph", "evict")
RATIO = 0.95
HEADS = {False: (32, 8), True: (4, 2)}
"""Query and key heads of a layer, and of a small one."""
DECODING = ("hex_decode", "hex_attention")
PACKS = ("hex_compress", "hex_reconstruct")
PRESETS = ("KCVT-4", "HEX-4", "KCVT-3", "HEX-3")


class OperationInputs(NamedTuple):
    """The arguments of each side of an operation; they may share tensors."""

    kernel: Mapping[str, Any]
    eager: Mapping[str, Any] = NONE
    fp16: Mapping[str, Any] = NONE


class Operation(NamedTuple):
    """One operation at one shape."""

    step: str
    name: str
    shape: str
    inputs: Callable[[torch.device], OperationInputs]
    kernel: Callable[..., object]
    eager: Callable[..., object] | None = None
    rivals: Rivals = NONE
    """Attention in half precision, by name; the fastest counts."""
    launch: Callable[[], object] | None = None
    """The kernel's call on tensors without values, if the inputs depend on values."""
    variant: str = ""
    """What chooses other kernels than an operation of the same name has."""

    @property
    def title(self) -> str:
        """The operation at its shape."""
        return f"{self.name} {self.shape}"

    @property
    def kind(self) -> str:
        """What an operation and the same one with few tokens share: name and variant."""
        return f"{self.name}, {self.variant}"

    @property
    def launches(self) -> list[Launch]:
        """The launches of the kernel's call."""
        if self.launch is not None:
            return launched(self.launch)
        return launched(partial(self.kernel, **self.inputs(META).kernel))


META = torch.device("meta")


def empty(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """Return a tensor without values."""
    return torch.empty(shape, dtype=dtype, device=META)


def drawn(
    draw: Callable[..., Tensor], device: torch.device, *shape: int, dtype: torch.dtype
) -> Tensor:
    """Return a tensor of random numbers, or one without values."""
    if device == META:
        return empty(*shape, dtype=dtype)
    return draw(shape, generator=torch.Generator(device).manual_seed(0), device=device).to(dtype)


def normal(device: torch.device, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """Return a tensor of standard normal numbers, or one without values."""
    return drawn(torch.randn, device, *shape, dtype=dtype)


def uniform(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of uniform numbers in [0, 1), or one without values."""
    return drawn(torch.rand, device, *shape, dtype=dtype)


def moved(value: Any, device: torch.device) -> Any:
    """Return an argument on a device, with all tensors inside it."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def cache(
    device: torch.device,
    rows: int,
    heads: tuple[int, int],
    tokens: int,
    width: int,
    dtype: torch.dtype = torch.float16,
) -> Named:
    """Return queries of one token, and keys and values of all."""
    counts = dict(queries=(heads[0], 1), keys=(heads[1], tokens), values=(heads[1], tokens))
    return {
        name: normal(device, rows, *count, width, dtype=dtype) for name, count in counts.items()
    }


def torch_attention(backend: SDPBackend, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention by one backend of PyTorch; causal if there are several queries."""
    causal = queries.shape[-2] > 1
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(
            queries, keys, values, is_causal=causal, enable_gqa=True
        )


def flash(function: str, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention by the package `flash_attn`, which has the axis of tokens before heads."""
    attend = getattr(importlib.import_module("flash_attn"), function)
    sides = (x.transpose(1, 2) for x in (queries, keys, values))
    return attend(*sides, causal=queries.shape[-2] > 1)


def flashinfer_decode(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return decode attention by the package `flashinfer`, which supports one row."""
    package = importlib.import_module("flashinfer")
    if len(queries) > 1:
        raise ValueError("single_decode_with_kv_cache takes one row")
    return package.single_decode_with_kv_cache(
        queries[0, :, 0], keys[0], values[0], kv_layout="HND", use_tensor_cores=True
    )


TORCH: Rivals = {
    name: partial(torch_attention, getattr(SDPBackend, name))
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
}
PROMPTS: Rivals = {**TORCH, "flash_attn": partial(flash, "flash_attn_func")}
DECODES: Rivals = {
    **PROMPTS,
    "flash_attn, split": partial(flash, "flash_attn_with_kvcache"),
    "flashinfer": flashinfer_decode,
}


def decoding(
    name: str,
    rows: int,
    tokens: int,
    preset: str,
    small: bool = False,
    *,
    width: int = 128,
    mass: bool = False,
) -> Operation:
    """Return the operation of `hex_attention`, or of a step of `hex_decode` in place.

    When the residual buffer is full, further steps write its last token anew. With `mass`,
    attention returns its mass, too.
    """
    config, heads = kv.hex_preset(preset), HEADS[small]
    step = name == "hex_decode"

    def inputs(device: torch.device) -> OperationInputs:
        layer = cache(device, rows, heads, tokens, width)
        prompt = layer | dict(queries=normal(device, rows, heads[0], tokens, width))
        stored = kv.hex_prefill(**prompt, config=config)
        packed = PackedCache.of(stored)
        new = dict(queries=layer["queries"])
        if step:
            packed = packed.in_room()
            new = {part: x[:, :, :1].clone() for part, x in layer.items()}
        return OperationInputs(new | dict(cache=packed), new | dict(cache=stored), layer)

    packed = packed_cache(config, rows, heads[1], tokens, width)
    new = cache(META, rows, heads, 1, width)
    launch = partial(attend_packed, new["queries"], packed, mass=mass)
    if step:
        launch = partial(decode, **new, cache=ready(packed))
    kind = f"{preset.partition('-')[0]}-{config.bits}{', mass' * mass}"
    shape = f"[{rows}, {heads[0]}, 1, {width}] float16, {tokens} tokens, {kind}"
    sides = (decode, None) if step else (partial(attend_packed, mass=mass), vector.hex_attention)
    return Operation("decode", name, shape, inputs, *sides, DECODES, launch, kind)


def packed_cache(
    config: kv.HexConfig, rows: int, heads: int, tokens: int, width: int
) -> PackedCache:
    """Return the cache of a prompt of whole tiles and a residual, without values.

    As many entries are kept as the configuration says.
    """
    tiles = tokens // TILE
    span = tiles * TILE
    words = empty(tiles, rows, heads, TILE * width * config.bits // 32, dtype=torch.int32)
    steps, value_steps = empty(1, rows, heads, width), empty(tiles, rows, TILE)
    static = int(config.density * heads * width) * span
    whole = int(config.heavy * span) + config.recent * bool(config.heavy)
    kept = empty(rows * (static + whole * (heads * width - static // span)))
    spans = PackedSpans(
        config.bits, words, steps, steps, words.clone(), value_steps, value_steps.clone(),
        empty(rows, dtype=torch.float32), kept, kept.clone(),
        empty(tiles, rows, TILE, dtype=torch.bool), empty(tiles, 4, dtype=torch.int64),
        empty(tiles, rows, heads, dtype=torch.int64), (span,), (kept.numel(),),
        (1, tiles, kept.numel()), (span,),
    )  # fmt: skip
    exact, none = empty(rows, heads, tokens - span, width), empty(rows, heads, 0, width)
    mass = empty(rows, tokens - span, dtype=torch.float32)
    settings = config._replace(tile=True)
    cache = HexCache(settings, (), exact, exact.clone(), mass, mass[:, :0], none, none)
    return PackedCache(spans, cache)


def packing(name: str, tokens: int, bits: int, small: bool = False) -> Operation:
    """Return the operation of `hex_compress` or `hex_reconstruct` on a span."""
    heads, width = 2 if small else 8, 128
    density = kv.hex_preset("HEX-4").density

    def inputs(device: torch.device) -> OperationInputs:
        span = cache(device, 1, (heads, heads), tokens, width)
        del span["queries"]
        mask = kv.expander_mask(96, heads * width, density).repeat(tokens // 96, 1).to(device)
        dynamic = torch.zeros(1, tokens, dtype=torch.bool, device=device)
        arguments: Named = span | dict(bits=bits, expander=mask, dynamic=dynamic)
        if name == "hex_reconstruct":
            block = vector.hex_compress(**arguments, value_group="token", scales=None)
            arguments = dict(block=block, expander=mask)
        return OperationInputs(arguments, arguments)

    def launch() -> object:
        keys, dynamic = empty(heads, tokens, width), empty(tokens, dtype=torch.bool)
        masks = empty(tokens, heads * width, dtype=torch.bool), dynamic
        span = coded_span(keys, empty(*keys.shape), *masks, bits, "token", None)
        if name == "hex_compress":
            return span
        return restored(span, dynamic, bits, torch.float16)

    shape = f"[{heads}, {tokens}, {width}] float16, {bits} bits"
    sides = getattr(kernels, name), getattr(vector, name)
    return Operation("pack", name, shape, inputs, *sides, launch=launch, variant=f"{bits} bits")


def chosen(body: Any, scores: Tensor, protected: Tensor | None = None) -> Tensor:
    """Return the entries of the whole model that are kept by refined scores."""
    refined = body.hubkv_refine(scores, RATIO, protected)
    return body.retain(refined, protected, ratio=RATIO, scope="model")


def selection(*shape: int, dtype: torch.dtype = torch.bfloat16, shielded: bool = True) -> Operation:
    """Return the operation that the HubKV paper times: refinement, then selection."""
    sides = partial(chosen, kernels), partial(chosen, vector)
    return on_scores("hubkv_refine + retain", shape, *sides, dtype, shielded)


def on_scores(
    name: str,
    shape: tuple[int, ...],
    kernel: Callable[..., object],
    eager: Callable[..., object],
    dtype: torch.dtype = torch.bfloat16,
    shielded: bool = False,
) -> Operation:
    """Return an operation on scores; with `shielded`, all rows share a protected mask."""

    def inputs(device: torch.device) -> OperationInputs:
        arguments = dict(scores=uniform(device, *shape, dtype=dtype))
        if shielded:
            arguments["protected"] = kv.protected_mask(shape[-1]).to(device).expand(shape)
        return OperationInputs(arguments, arguments)

    variant = f"{str(dtype)[6:]}{', unprotected' * (not shielded)}"
    text = f"{list(shape)} {variant}"
    return Operation("select", name, text, inputs, kernel, eager, variant=variant)


def graph(tokens: int, small: bool = False) -> Operation:
    """Return the operation of GraphKV's decay over one layer."""
    heads, width, keep, count = (2, 128, 16, 4) if small else (8, 128, 512, 8)
    rest = dict(keep=keep, count=count, adaptive=False)

    def inputs(device: torch.device) -> OperationInputs:
        scores = uniform(device, heads, tokens, dtype=torch.bfloat16)
        keys = normal(device, heads, tokens, width, dtype=torch.bfloat16)
        return OperationInputs(*[dict(scores=scores, keys=keys)] * 2)

    sides = partial(kernels.graphkv_refine, **rest), partial(vector.graphkv_refine, **rest)
    shape = f"{[heads, tokens, width]} bfloat16"
    return Operation("graph", "graphkv_refine", shape, inputs, *sides)


def mass(
    name: str,
    what: str,
    count: int,
    tokens: int,
    small: bool = False,
    log_sum_exp: bool = False,
    *,
    dtype: torch.dtype = torch.bfloat16,
    padded: bool = False,
    before: int = 0,
    **rest: Any,
) -> Operation:
    """Return the operation of attention mass in a layer; rivals attend with the same queries.

    With `log_sum_exp`, one is given; its values do not affect the time. With `before`, the
    earlier mass of this number of tokens is given.
    """
    heads, width = HEADS[small], 128

    def inputs(device: torch.device) -> OperationInputs:
        layer = cache(device, 1, heads, tokens, width, dtype)
        layer["queries"] = normal(device, 1, heads[0], count, width, dtype=dtype)
        scored = {name: layer[name] for name in ("queries", "keys")}
        if log_sum_exp:
            scored["log_sum_exp"] = normal(device, 1, heads[0], count, dtype=torch.float32)
        if padded:
            scored["valid"] = torch.ones(1, tokens, dtype=torch.bool, device=device)
        if before:
            scored["mass"] = uniform(device, 1, heads[1], before)
        return OperationInputs(scored, scored, layer)

    sides = partial(getattr(kernels, name), **rest), partial(getattr(vector, name), **rest)
    options = f"{', padded' * padded}{', log-sum-exp' * log_sum_exp}"
    shape = f"{what}, {count} x {tokens} {str(dtype)[6:]}{options}"
    rivals = PROMPTS if count == tokens else NONE
    return Operation("mass", name, shape, inputs, *sides, rivals, variant=f"{what}{options}")


def eviction(tokens: int, small: bool = False) -> Operation:
    """Return the operation of evicting half of a layer's entries."""
    heads, width = 2 if small else 8, 128

    def inputs(device: torch.device) -> OperationInputs:
        layer = cache(device, 1, (heads, heads), tokens, width, torch.bfloat16)
        del layer["queries"]
        scores = uniform(device, 1, heads, tokens)
        layer["kept"] = vector.retain(scores, ratio=0.5, scope="layer")
        return OperationInputs(layer, layer)

    def launch() -> object:
        keys = empty(1, heads, tokens, width, dtype=torch.bfloat16)
        kept = empty(1, heads, tokens, dtype=torch.bool)
        counts = kept_per_block(kept)
        return gathered(keys, torch.empty_like(keys), kept, counts, heads * tokens // 2)

    shape = f"[1, {heads}, {tokens}, {width}] bfloat16, 50% left"
    return Operation("evict", "evict", shape, inputs, kernels.evict, vector.evict, launch=launch)


def ragged(tokens: int, small: bool = False) -> Operation:
    """Return the operation of a decoding step over heads of different lengths.

    Half of `2 * tokens` entries are kept.
    """
    (query_heads, heads), width = HEADS[small], 128

    def inputs(device: torch.device) -> OperationInputs:
        layer = cache(device, 1, (query_heads, heads), 2 * tokens, width, torch.bfloat16)
        # scores differ in scale, so that heads keep different numbers of entries
        scores = uniform(device, 1, heads, 2 * tokens)
        scores *= torch.arange(1, heads + 1, device=device)[:, None]
        kept = vector.retain(scores, ratio=0.5, scope="layer")
        ragged_cache = kv.evict(layer["keys"], layer["values"], kept).ragged()
        step = {name: x[:, :, -1:].contiguous() for name, x in layer.items()}
        step["cache"] = ragged_cache
        half = {name: x[:, :, :tokens] for name, x in layer.items()}
        return OperationInputs(step, step, half)

    def launch() -> object:
        keys = empty(heads * tokens, width, dtype=torch.bfloat16)
        positions, offsets = (empty(n, dtype=torch.int64) for n in (heads * tokens, heads + 1))
        ragged_cache = kv.RaggedCache(keys, torch.empty_like(keys), positions, offsets)
        step = cache(META, 1, (query_heads, heads), 1, width, torch.bfloat16)
        return kernels.ragged_attention(**step, cache=ragged_cache)

    shape = f"a decoding step, {tokens} entries a head, bfloat16"
    sides = kernels.ragged_attention, vector.ragged_attention
    return Operation("evict", "ragged_attention", shape, inputs, *sides, DECODES, launch=launch)


def operations(small: bool) -> list[Operation]:
    """Return the timed operations, the most valuable first; if `small`, with few tokens."""
    if small:
        return [
            *(decoding(name, 1, 101, preset, small) for preset in PRESETS for name in DECODING),
            *(packing(name, 96, bits, small) for bits in (3, 4) for name in PACKS),
            selection(2, 1, 2, 300),
            graph(64, small),
            *(mass("h2o_mass", "prompt", 40, 40, small, given) for given in (False, True)),
            *(
                mass("snapkv", "window", 32, 1000, small, given, window=32)
                for given in (False, True)
            ),
            eviction(64, small),
            ragged(32, small),
        ]
    sizes = (8192, 32768, 131072)
    caches = [
        decoding(name, rows, tokens, preset)
        for preset in PRESETS
        for name, rows, tokens in (
            *((name, rows, 32735) for name in DECODING for rows in (8, 1)),
            *(("hex_attention", rows, 8255) for rows in (1, 32)),
        )
    ]
    return [
        *(attention for attention in caches if "-4" in attention.variant),
        *(selection(36, 1, 8, tokens) for tokens in (4096, 8192, 16384, 32768)),
        selection(36, 4, 8, 32768),
        selection(36, 1, 8, 2**20),
        *(packing("hex_compress", 32640, bits) for bits in (3, 4)),
        *(
            mass("h2o_mass", "prompt", tokens, tokens, log_sum_exp=given)
            for given in (False, True)
            for tokens in sizes[:2]
        ),
        *(
            mass("snapkv", "window", 32, 32768, log_sum_exp=given, window=32)
            for given in (False, True)
        ),
        *map(graph, sizes),
        eviction(32768),
        ragged(8192),
        *(packing("hex_reconstruct", 32640, bits) for bits in (3, 4)),
        *(attention for attention in caches if "-3" in attention.variant),
    ]


def compiled_operations() -> list[Operation]:
    """Return the operations whose kernels are compiled: the timed ones, and other variants.

    Of a decoding step, one size is compiled, since three bits are slow.
    """
    whole, prompt = (36, 1, 8, 32768), ("prompt", 8192, 8192)
    ungated, eager = (partial(body.hubkv_refine, ratio=1.0) for body in (kernels, vector))
    return [
        *(timed for timed in operations(small=False) if timed.step != "decode"),
        *(decoding(name, 8, 32735, preset) for name in DECODING for preset in PRESETS),
        decoding("hex_attention", 8, 32735, "KCVT-4", width=64),
        decoding("hex_attention", 1, 1048703, "KCVT-4", mass=True),
        decoding("hex_attention", 8, 32735, "HEX-4", mass=True),
        *(packing("hex_compress", 96, bits) for bits in (3, 4)),
        on_scores("smd", whole, kernels.smd, vector.smd),
        selection(*whole, shielded=False),
        selection(*whole, dtype=torch.float32, shielded=False),
        on_scores("ungated_refine", whole, ungated, eager, shielded=True),
        *(mass("h2o_mass", *prompt, log_sum_exp=given, padded=True) for given in (False, True)),
        mass("h2o_mass", *prompt, dtype=torch.float32),
        mass("h2o_mass", "decoding step", 1, 32768, before=32767),
        *(mass("attention_mass", *prompt, log_sum_exp=given, span=None) for given in (False, True)),
    ]

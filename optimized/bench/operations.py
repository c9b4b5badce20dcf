"""The operations that are timed on a GPU, in their order, at the shapes that goals are set for.

An operation of `resource_budgets` has the same name and shape there. Small shapes run the same
calls in Triton's interpreter.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

import optimized as kv
from optimized import kernels, vector
from optimized.hex_packed_layout import PackedCache
from optimized.kernels.hex import attention as launcher
from optimized.kernels.hex.attention import PROGRAMS, attended

Named = dict[str, Any]
Rivals = Mapping[str, Callable[..., object]]
NONE: Rivals = MappingProxyType({})
STEPS = ("fp16", "decode", "sweep", "pack", "select", "graph", "mass", "evict")
RATIO = 0.95
PACKS = ("hex_compress", "hex_reconstruct")


class Inputs(NamedTuple):
    """The arguments of each side of an operation; they may share tensors."""

    kernel: Named
    eager: Named = MappingProxyType({})  # pyright: ignore[reportAssignmentType]
    fp16: Named = MappingProxyType({})  # pyright: ignore[reportAssignmentType]


class Operation(NamedTuple):
    """One operation at one shape."""

    step: str
    name: str
    shape: str
    inputs: Callable[[torch.device], Inputs]
    kernel: Callable[..., object] | None
    eager: Callable[..., object] | None = None
    rivals: Rivals = NONE
    """Attention in half precision, by name; the fastest counts."""
    options: Named = MappingProxyType({})  # pyright: ignore[reportAssignmentType]
    """Launch options for `override_launch_options`, in place of the launcher's own."""

    @property
    def title(self) -> str:
        """The operation at its shape, with its options."""
        options = (f", {name} {value}" for name, value in self.options.items())
        return f"{self.name} {self.shape}{''.join(options)}"


def normal(device: torch.device, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    """Return a tensor of standard normal numbers."""
    numbers = torch.randn(shape, generator=torch.Generator(device).manual_seed(0), device=device)
    return numbers.to(dtype)


def uniform(device: torch.device, *shape: int) -> Tensor:
    """Return a tensor of uniform numbers in [0, 1)."""
    return torch.rand(shape, generator=torch.Generator(device).manual_seed(0), device=device)


def cache(
    device: torch.device, rows: int, heads: tuple[int, int], tokens: int, width: int
) -> Named:
    """Return queries of one token, and keys and values of all."""
    asked, held = heads
    return dict(
        queries=normal(device, rows, asked, 1, width),
        keys=normal(device, rows, held, tokens, width),
        values=normal(device, rows, held, tokens, width),
    )


def torch_attention(backend: SDPBackend, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention by one backend of PyTorch; causal if there are several queries."""
    causal = queries.shape[-2] > 1
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(
            queries, keys, values, is_causal=causal, enable_gqa=True
        )


def flash(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention by the package `flash_attn`, which has the axis of tokens before heads."""
    package = importlib.import_module("flash_attn")
    sides = (x.transpose(1, 2) for x in (queries, keys, values))
    return package.flash_attn_func(*sides, causal=queries.shape[-2] > 1)


def flash_cached(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return decode attention by the package `flash_attn`, which splits a long cache."""
    package = importlib.import_module("flash_attn")
    return package.flash_attn_with_kvcache(*(x.transpose(1, 2) for x in (queries, keys, values)))


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
PROMPTS: Rivals = {**TORCH, "flash_attn": flash}
DECODES: Rivals = {**PROMPTS, "flash_attn, split": flash_cached, "flashinfer": flashinfer_decode}


def attention(rows: int, tokens: int, small: bool) -> Operation:
    """Return the operation of decode attention over a cache in half precision."""
    heads, width = ((4, 2), 64) if small else ((32, 8), 128)

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, rows, heads, tokens, width)
        return Inputs(made, fp16=made)

    shape = f"[{rows}, {heads[0]}, 1, {width}] float16, {tokens} tokens"
    return Operation("fp16", "attention", shape, inputs, None, rivals=DECODES)


def compressed(
    rows: int, tokens: int, preset: str, small: bool, options: Named | None = None
) -> Operation:
    """Return the operation of decode attention over a HEX cache."""
    heads, width = ((4, 2), 64) if small else ((32, 8), 128)

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, rows, heads, tokens, width)
        prompt = made | dict(queries=normal(device, rows, heads[0], tokens, width))
        held = kv.hex_prefill(**prompt, config=kv.hex_preset(preset))
        asked = made["queries"]
        packed = PackedCache.of(held)
        return Inputs(dict(queries=asked, cache=packed), dict(queries=asked, cache=held), made)

    shape = f"[{rows}, {heads[0]}, 1, {width}] float16, {tokens} tokens, {preset}"
    step = "sweep" if options else "decode"
    sides = (attended, None if options else vector.hex_attention)
    rivals = NONE if options else DECODES
    return Operation(step, "hex_attention", shape, inputs, *sides, rivals, options or {})


def packing(name: str, tokens: int, bits: int, small: bool) -> Operation:
    """Return the operation of `hex_compress` or `hex_reconstruct` on a span."""
    heads, width = (2, 64) if small else (8, 128)
    density = kv.hex_preset("HEX-4").density

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, 1, (heads, heads), tokens, width)
        span = dict(keys=made["keys"], values=made["values"], bits=bits)
        shape = (96, heads * width, density)
        mask = kv.expander_mask(*shape).repeat(tokens // 96, 1).to(device)
        span |= dict(expander=mask, dynamic=torch.zeros(1, tokens, dtype=torch.bool, device=device))
        if name == "hex_compress":
            return Inputs(span, span)
        block = vector.hex_compress(**span, value_group="token", scales=None)
        stored = dict(block=block, expander=mask)
        return Inputs(stored, stored)

    shape = f"[{heads}, {tokens}, {width}] float16, {bits} bits"
    return Operation("pack", name, shape, inputs, getattr(kernels, name), getattr(vector, name))


def chosen(body: Any, scores: Tensor, protected: Tensor) -> Tensor:
    """Return the entries of the whole model that are kept by refined scores."""
    refined = body.hubkv_refine(scores, RATIO, protected)
    return body.retain(refined, protected, ratio=RATIO, scope="model")


def selection(*shape: int) -> Operation:
    """Return the operation that the HubKV paper times: refinement, then selection."""

    def inputs(device: torch.device) -> Inputs:
        scores = uniform(device, *shape).to(torch.bfloat16)
        protected = kv.protected_mask(shape[-1]).to(device).expand(shape)
        return Inputs(*[dict(scores=scores, protected=protected)] * 2)

    sides = partial(chosen, kernels), partial(chosen, vector)
    return Operation("select", "hubkv_refine + retain", f"{list(shape)} bfloat16", inputs, *sides)


def graph(tokens: int, small: bool) -> Operation:
    """Return the operation of GraphKV's decay over one layer."""
    heads, width, keep, count = (2, 16, 16, 4) if small else (8, 128, 512, 8)
    rest = dict(keep=keep, count=count, adaptive=False)

    def inputs(device: torch.device) -> Inputs:
        scores = uniform(device, heads, tokens).to(torch.bfloat16)
        keys = normal(device, heads, tokens, width, dtype=torch.bfloat16)
        return Inputs(*[dict(scores=scores, keys=keys)] * 2)

    sides = partial(kernels.graphkv_refine, **rest), partial(vector.graphkv_refine, **rest)
    shape = f"{[heads, tokens, width]} bfloat16"
    return Operation("graph", "graphkv_refine", shape, inputs, *sides)


def mass(
    name: str, what: str, count: int, tokens: int, small: bool, known: bool = False, **rest: Any
) -> Operation:
    """Return the operation of attention mass in a layer; rivals attend with the same queries.

    With `known`, a log-sum-exp is given; its values do not affect the time.
    """
    asked, held, width = (4, 2, 16) if small else (32, 8, 128)

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, 1, (asked, held), tokens, width)
        made["queries"] = normal(device, 1, asked, count, width)
        made = {name: x.to(torch.bfloat16) for name, x in made.items()}
        scored = {name: made[name] for name in ("queries", "keys")}
        if known:
            scored["log_sum_exp"] = normal(device, 1, asked, count, dtype=torch.float32)
        return Inputs(scored, scored, made)

    sides = partial(getattr(kernels, name), **rest), partial(getattr(vector, name), **rest)
    shape = f"{what}, {count} x {tokens} bfloat16{', log-sum-exp' * known}"
    rivals = PROMPTS if count == tokens else NONE
    return Operation("mass", name, shape, inputs, *sides, rivals)


def eviction(tokens: int, small: bool) -> Operation:
    """Return the operation of evicting half of a layer's entries."""
    heads, width = (2, 16) if small else (8, 128)

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, 1, (heads, heads), tokens, width)
        del made["queries"]
        made = {name: x.to(torch.bfloat16) for name, x in made.items()}
        scores = uniform(device, 1, heads, tokens)
        made["kept"] = vector.retain(scores, ratio=0.5, scope="layer")
        return Inputs(made, made)

    shape = f"[1, {heads}, {tokens}, {width}] bfloat16, 50% left"
    return Operation("evict", "evict", shape, inputs, kernels.evict, vector.evict)


def ragged(tokens: int, small: bool) -> Operation:
    """Return the operation of a decoding step over heads of different lengths.

    Half of `2 * tokens` entries are kept.
    """
    asked, heads, width = (4, 2, 16) if small else (32, 8, 128)

    def inputs(device: torch.device) -> Inputs:
        made = cache(device, 1, (asked, heads), 2 * tokens, width)
        made = {name: x.to(torch.bfloat16) for name, x in made.items()}
        # scores differ in scale, so that heads keep different numbers of entries
        scores = uniform(device, 1, heads, 2 * tokens)
        scores *= torch.arange(1, heads + 1, device=device)[:, None]
        kept = vector.retain(scores, ratio=0.5, scope="layer")
        held = kv.evict(made["keys"], made["values"], kept)
        new = {name: made[name][:, :, -1:].contiguous() for name in ("keys", "values")}
        step = dict(queries=made["queries"], cache=held, **new)
        half = dict(
            queries=made["queries"], keys=made["keys"][:, :, :tokens],
            values=made["values"][:, :, :tokens],
        )  # fmt: skip
        return Inputs(step, step, half)

    shape = f"a decoding step, {tokens} entries a head, bfloat16"
    sides = kernels.ragged_attention, vector.ragged_attention
    return Operation("evict", "ragged_attention", shape, inputs, *sides, DECODES)


def operations(small: bool) -> list[Operation]:
    """Return all operations in order, with small shapes for the interpreter if `small`."""
    presets = ["KCVT-4", "HEX-4", "KCVT-3", "HEX-3"]
    choices = [dict(num_warps=warps, num_stages=stages) for warps in (1, 2, 4) for stages in (2, 3)]
    choices += [dict(PROGRAMS=PROGRAMS // 4 * factor) for factor in (1, 2, 8)]
    swept = (1, 101) if small else (8, 32735)
    sweeps = [compressed(*swept, preset, small, one) for preset in presets for one in choices]
    if small:
        return [
            attention(1, 101, small),
            *(compressed(1, 101, preset, small) for preset in presets),
            *sweeps,
            *(packing(name, 96, bits, small) for bits in (3, 4) for name in PACKS),
            selection(2, 1, 2, 300),
            graph(64, small),
            *(mass("h2o_mass", "prompt", 40, 40, small, known) for known in (False, True)),
            *(mass("snapkv", "window", 8, 40, small, known, window=8) for known in (False, True)),
            eviction(64, small),
            ragged(32, small),
        ]
    sizes = (8192, 32768, 131072)
    return [
        *(attention(rows, tokens, small) for tokens in sizes for rows in (1, 8, 32)),
        *(
            compressed(rows, tokens, preset, small)
            for preset in presets
            for rows, tokens in ((8, 32735), (1, 8255), (1, 32735), (32, 8255))
        ),
        *sweeps,
        *(packing(name, 32640, bits, small) for bits in (3, 4) for name in PACKS),
        *(selection(36, 1, 8, tokens) for tokens in (4096, 8192, 16384, 32768)),
        selection(36, 4, 8, 32768),
        selection(36, 1, 8, 2**20),
        *(graph(tokens, small) for tokens in sizes),
        *(
            mass("h2o_mass", "prompt", tokens, tokens, small, known)
            for known in (False, True)
            for tokens in sizes[:2]
        ),
        *(mass("snapkv", "window", 32, 32768, small, known) for known in (False, True)),
        eviction(32768, small),
        ragged(8192, small),
    ]


@contextmanager
def override_launch_options(options: Named, kernel: str = "codes_kernel") -> Iterator[None]:
    """Return a context that launches one kernel with other options.

    Names in capitals are constants of the launcher's module.
    """
    constants = {name: value for name, value in options.items() if name.isupper()}
    rest = {name: value for name, value in options.items() if not name.isupper()}

    def launching(run: Callable[..., object]) -> Callable[..., object]:
        def launch(self: Any, *args: Any, **given: Any) -> object:
            chosen = rest if self.fn.__name__ == kernel else {}
            return run(self, *args, **(given | chosen))

        return launch

    with ExitStack() as patches:
        # patched one by one, since names that Triton's interpreter adds to the module must stay
        for name, value in constants.items():
            patches.enter_context(patch.object(launcher, name, value))
        for kind in (JITFunction, InterpretedFunction):
            patches.enter_context(patch.object(kind, "run", launching(kind.run)))
        yield

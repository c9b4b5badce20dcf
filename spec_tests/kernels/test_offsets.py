"""Offsets beyond 2³¹: one program runs at the end of a large array that is mostly unallocated."""

import mmap
from math import prod
from typing import Any
from unittest.mock import patch

import pytest
import torch
from triton.runtime import interpreter

import reference
from optimized import kernels, vector
from optimized._dispatch import tensors
from optimized.bench.launch_recorder import recorded
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.kernels.evict import copy_kernel, count_kernel
from optimized.kernels.graphkv.refine import send_signal
from optimized.kernels.hex import heavy_hitters as mass
from optimized.kernels.hex.attention import attend_packed
from optimized.kernels.hex.compress import coded_span, restored
from optimized.kernels.hex.heavy_hitters import columns
from optimized.kernels.retain import INTEGERS, MOST, key_kernel, mark_kernel
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.attention.strategies import log_sum_exp
from spec_tests.kernels.interpreter import programs_in_order, small_blocks

BLOCK = 64
LENGTH = (1 << 31) + (1 << 15)
"""Elements of an array whose last blocks are beyond 2³¹."""
LAST = LENGTH // BLOCK - 1


def sparse(dtype, size=LENGTH):
    """Return zeros that take no memory until they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(mmap.mmap(-1, size * dtype.itemsize, flags=flags), dtype=dtype)


def run_program(kernel, *arguments, program=LAST, **constants):
    """Run one program of a kernel alone, and copy nothing back."""
    in_place = patch.object(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)
    size = dict(BLOCK=BLOCK) if "BLOCK" in kernel.arg_names else {}
    with in_place, programs_in_order(lambda _: [program]):
        kernel[(1,)](*arguments, **size | constants)


def at_the_end(part, size):
    """Return `size` zeros that take no memory, followed by the elements of `part`."""
    made = sparse(part.dtype, size + part.numel())
    made[size:] = part.flatten()
    return made


def as_last_of(rows: int, launch: Any, *still: str) -> dict[str, Any]:
    """Return the arguments of a launch for one row, moved to the last of many rows.

    Tensors named in `still` are shared by all rows and are not moved.
    """

    def moved(name: str, x: Any) -> Any:
        if hasattr(x, "_fields"):
            fields = zip(x._fields, x, strict=True)
            return x._make(moved(field, part) for field, part in fields)
        if isinstance(x, torch.Tensor) and x.numel() and name not in still:
            return at_the_end(x, (rows - 1) * x.numel())
        return x

    return {name: moved(name, x) for name, x in launch.arguments.items()}


def run_as_last(launch):
    """Run a launch for the last of many equal parts of long arrays, and copy its results back."""
    own = [*tensors((*launch.arguments.values(),))]
    parts = LENGTH // max(x.numel() for x in own) + 1
    moved, programs = as_last_of(parts, launch, "static", "dynamic"), prod(launch.grid)
    if "static" in moved:  # the mask of all heads of a span
        mask = moved["static"]
        moved["static"] = sparse(torch.bool, parts * mask.numel()).view(len(mask), -1)
        moved["static"][:, -mask.shape[1] :] = mask
        moved["heads"] *= parts
    for program in range((parts - 1) * programs, parts * programs):
        run_program(launch.kernel, program=program, **moved)
    for x, far in zip(own, tensors((*moved.values(),)), strict=True):
        if x.dtype != torch.bool:
            x.copy_(far.flatten()[far.numel() - x.numel() :].view(x.shape))


DRAW = torch.Generator().manual_seed(0)
SCORES = torch.rand(1, 2, BLOCK, generator=DRAW).bfloat16()
QUERIES, KEYS = torch.randn(2, 2, BLOCK, 16, generator=DRAW).bfloat16()
SPAN: dict[str, Any] = dict(
    keys=KEYS[:, :32],
    values=QUERIES[:, :32],
    expander=torch.rand(32, 32, generator=DRAW) < 0.1,
    dynamic=torch.rand(32, generator=DRAW) < 0.1,
    bits=4,
    value_group="token",
    scales=None,
)
STORED = vector.hex_compress(**SPAN)
CALLS: dict[str, Any] = {
    "smd": lambda: kernels.smd(SCORES),
    "smd, protected": lambda: kernels.smd(SCORES, protected=SCORES > 0.5),
    "hubkv_refine": lambda: kernels.hubkv_refine(SCORES, 0.5),
    "hubkv_refine, protected": lambda: kernels.hubkv_refine(SCORES, 0.5, SCORES > 0.5),
    "mass": lambda: columns(QUERIES, KEYS),
    "mass, sums given": lambda: columns(
        QUERIES, KEYS, log_sum_exp=log_sum_exp(QUERIES.float(), KEYS.float())
    ),
    "edges": lambda: send_signal(
        SCORES[0].float(), KEYS, KEYS, torch.tensor([[3, 40]] * 2), torch.tensor([2, 2]),
        SCORES[0] > 0.5, 3, rounds=1, strength=0.5, rule="product", clamp=False,
    ),
    "codes": lambda: coded_span(**SPAN),
    "restored": lambda: restored(STORED[1:7], SPAN["dynamic"], 4, torch.bfloat16),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_last_of_many_rows_is_computed_as_the_first(name):
    with small_blocks(BLOCK), patch.object(mass, "multiprocessors", lambda _: 0):
        expected = CALLS[name]()
        with recorded() as launches:
            found = CALLS[name]()
    for launch in launches:
        run_as_last(launch)
    assert_equal(found, expected)


@pytest.mark.parametrize(("dtype", "digit"), [(torch.bfloat16, 5), (torch.float32, 8)])
def test_entries_are_selected(dtype, digit):
    """Test the keys, their counts and the mask; the cut is among equal scores."""
    scores, width = sparse(dtype), 8 * dtype.itemsize
    scores[-BLOCK:] = torch.rand(BLOCK, generator=torch.Generator().manual_seed(0))
    integer = INTEGERS[dtype]
    keys, kept, bits = sparse(integer), sparse(torch.bool), scores.view(integer)
    counts = torch.zeros(1, 3, MOST, dtype=torch.int64)
    tiles = LAST + 1
    run_program(key_kernel, bits, bits, keys, counts, LENGTH, 1, tiles, 1,
                SHIFT=width - digit, BITS=digit, MOST=MOST, SHIELDED=False)  # fmt: skip
    unsigned = keys[-BLOCK:].long() & (2**width - 1)
    assert counts.sum() == BLOCK
    assert_equal(unsigned.argsort(stable=True), scores[-BLOCK:].argsort(stable=True))
    middle = int(scores[-BLOCK:].argsort()[BLOCK // 2])
    cut = torch.tensor([[int(unsigned[middle]), LAST, 1]])
    run_program(mark_kernel, keys, cut, kept, LENGTH, tiles, 1)
    assert_equal(kept[-BLOCK:], scores[-BLOCK:] >= scores[middle - BLOCK])


def test_what_is_left_of_the_last_head_is_attended():
    width, count = 16, BLOCK // 2
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(1, 1, width, generator=draw)
    keys, values = torch.randn(2, count, width, generator=draw).bfloat16()
    ends = torch.tensor([0, count])
    left = reference.RaggedCache(keys, values, torch.arange(count), ends)
    none = torch.zeros(1, 0, width)
    with recorded() as launches:
        kernels.ragged_attention(query, left, none, none, None, True, None)
    given = launches[0].arguments | dict(offsets=ends + LENGTH // width)
    given |= {name: at_the_end(given[name], LENGTH) for name in ("left_keys", "left_values")}
    run_program(launches[0].kernel, program=0, **given)
    expected = reference.attention(query, keys[None].float(), values[None].float())
    torch.testing.assert_close(given["means"][0], expected[0])


def test_kept_entries_are_counted_and_copied():
    width, channels = 32, 32
    tokens, blocks = LENGTH // width, LENGTH // width // BLOCK
    draw = torch.Generator().manual_seed(0)
    entries = torch.randn(2, BLOCK, width, generator=draw).bfloat16()
    marked = torch.rand(BLOCK, generator=draw) < 0.5
    far = [at_the_end(x, (tokens - BLOCK) * width) for x in entries]
    kept, many = at_the_end(marked, LENGTH - BLOCK), int(marked.sum())
    counts = sparse(torch.int64, LAST + 1)
    run_program(count_kernel, kept, counts, LENGTH, LAST + 1, program=LAST // BLOCK, COUNTED=BLOCK)
    assert counts[-1] == many
    left = [sparse(torch.bfloat16, LENGTH + many * width) for _ in entries]
    ends, places = sparse(torch.int64, blocks), sparse(torch.int64, tokens + many)
    counts[blocks - 1], ends[blocks - 1] = many, tokens + many
    run_program(copy_kernel, *far, kept[-tokens:], ends, counts, *left, places, tokens, blocks,
                program=blocks - 1, WIDTH=width, CHANNELS=channels)  # fmt: skip
    for copied, entry in zip(left, entries, strict=True):
        assert_equal(copied[LENGTH:].unflatten(0, (many, width)), entry[marked])
    assert_equal(places[tokens:], tokens - BLOCK + marked.nonzero()[:, 0])


def test_codes_of_the_last_row_are_attended():
    width, bits = 128, 4
    draw = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 1, 1, TILE, width, generator=draw).half()
    cache = reference.hex_prefill(queries, keys, values, reference.hex_preset("HEX-4"))
    query, rows = queries[..., -1:, :], LENGTH // (3 * width * bits) + 1
    with recorded() as launches:
        attend_packed(query, PackedCache.of(cache))
    kept = "kept_keys", "kept_values"
    alike = "counts", "tokens", "channels", "columns", "places", "tiles"
    given = as_last_of(rows, launches[0], *kept, *alike)
    entries = given["entries"]
    entries = entries._replace(**{x: at_the_end(getattr(entries, x), LENGTH) for x in kept})
    entries.begins[-1] += LENGTH
    given |= dict(entries=entries, size=given["size"]._replace(rows=rows))
    run_program(launches[0].kernel, program=rows - 1, **given)
    expected = reference.hex_attention(query, cache).output
    assert_close(given["found"][-width:].half(), expected.flatten())

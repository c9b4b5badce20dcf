"""Offsets beyond 2³¹: one program runs at the end of a large array that is mostly unallocated."""

import mmap
from importlib import import_module
from struct import pack, unpack
from typing import Any
from unittest.mock import patch

import pytest
import torch
from triton.runtime import interpreter

import reference
from optimized.bench.launch_recorder import recorded
from optimized.hex_packed_layout import TILE, PackedCache
from optimized.vector.hex.packing import pack_bits
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.kernels.interpreter import programs_in_order

TOKENS, BLOCK = 1 << 15, 64
ROWS = (1 << 31) // TOKENS + 1
"""The last row starts at element 2³¹."""

LENGTH = ROWS * TOKENS
LAST = LENGTH // BLOCK - 1
smd, refine, select, graphkv, compress, mass, decode, ragged, evict = (
    import_module(f"optimized.kernels.{name}")
    for name in (
        *("hubkv.discount", "hubkv.refine", "retain", "graphkv.refine", "hex.compress"),
        *("hex.heavy_hitters", "hex.attention", "ragged_attention", "evict"),
    )
)


def sparse(dtype, size=LENGTH):
    """Return zeros that take no memory until they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(mmap.mmap(-1, size * dtype.itemsize, flags=flags), dtype=dtype)


@pytest.fixture
def last():
    """Return a function that runs a kernel's last program alone and copies nothing back."""
    in_place = patch.object(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)

    def run(kernel, *arguments, place=LAST, **constants):
        size = dict(BLOCK=BLOCK) if "BLOCK" in kernel.arg_names else {}
        with in_place, programs_in_order(lambda _: [place]):
            kernel[(1,)](*arguments, **size | constants)

    return run


@pytest.fixture(scope="module")
def scores():
    """Scores that are 0 except in the last block."""
    made = sparse(torch.bfloat16)
    made[-BLOCK:] = torch.rand(BLOCK, generator=torch.Generator().manual_seed(0))
    return made


def test_scores_are_discounted(last, scores):
    found = sparse(torch.bfloat16)
    half = unpack("<q", pack("<d", 0.5))[0]
    last(smd.smd_kernel, scores, scores, found, TOKENS, half, RADIUS=2, HAS_PROTECTED=False)
    expected = reference.smd(scores[-2 * BLOCK :])
    assert_equal(found[-2 * BLOCK :], expected)


def test_scores_are_refined(last, scores):
    found, factors = sparse(torch.bfloat16), torch.zeros(ROWS, 2)
    factors[-1] = torch.tensor([0.5, 1.0])
    last(refine.refine_kernel, scores, scores, factors, found, TOKENS, 0,
         RADIUS=2, SHIELDED=False, WIDTH=8, EACH=16)  # fmt: skip
    assert_equal(found[-BLOCK:], reference.smd(scores[-2 * BLOCK :])[-BLOCK:])


def test_scores_set_aside_are_refined_to_one(last, scores):
    found, factors, protected = sparse(torch.bfloat16), torch.ones(ROWS, 2), sparse(torch.uint8)
    protected[-BLOCK // 2 :] = 1
    last(refine.refine_kernel, scores, protected, factors, found, TOKENS, TOKENS,
         RADIUS=2, SHIELDED=True, WIDTH=8, EACH=16)  # fmt: skip
    assert_equal(found[-BLOCK // 2 :], torch.ones(BLOCK // 2, dtype=torch.bfloat16))
    assert_equal(found[-BLOCK : -BLOCK // 2], scores[-BLOCK : -BLOCK // 2])


def test_moments_are_taken(last, scores):
    moments = sparse(torch.float32, 4 * (LAST + 1)).view(-1, 4)
    protected = sparse(torch.uint8)
    protected[-BLOCK // 2 :] = 1
    last(refine.moments_kernel, scores, protected, moments, TOKENS, TOKENS, HAS_PROTECTED=True)
    half = scores[-BLOCK : -BLOCK // 2].float()
    assert moments[-1, 0] == BLOCK // 2
    assert moments[-1, 1] == half.min()


@pytest.mark.parametrize(("dtype", "digit"), [(torch.bfloat16, 5), (torch.float32, 8)])
def test_entries_are_selected(last, dtype, digit):
    """Test the keys, their counts and the mask; the cut is among equal scores."""
    scores, width = sparse(dtype), 8 * dtype.itemsize
    scores[-BLOCK:] = torch.rand(BLOCK, generator=torch.Generator().manual_seed(0))
    integer = select.INTEGERS[dtype]
    keys, kept, bits = sparse(integer), sparse(torch.bool), scores.view(integer)
    counts = torch.zeros(1, 3, select.MOST, dtype=torch.int64)
    tiles = LAST + 1
    last(select.key_kernel, bits, bits, keys, counts, LENGTH, 1, tiles, 1,
         SHIFT=width - digit, BITS=digit, MOST=select.MOST, SHIELDED=False)  # fmt: skip
    unsigned = keys[-BLOCK:].long() & (2**width - 1)
    assert counts.sum() == BLOCK
    assert_equal(unsigned.argsort(stable=True), scores[-BLOCK:].argsort(stable=True))
    middle = int(scores[-BLOCK:].argsort()[BLOCK // 2])
    cut = torch.tensor([[int(unsigned[middle]), LAST, 1]])
    last(select.mark_kernel, keys, cut, kept, LENGTH, tiles, 1)
    assert_equal(kept[-BLOCK:], scores[-BLOCK:] >= scores[middle - BLOCK])


def test_the_last_of_many_pools_is_cut(last):
    """The digits of all pools at a step are stored after those of the steps before."""
    step, bins = 3, select.MOST
    pools = (1 << 32) // (step * bins) + 1
    found = sparse(torch.int64, (step + 1) * pools * 2)
    found[-1] = 2
    counts = sparse(torch.int32, (step + 1) * pools * bins)
    ties = sparse(torch.int32, pools * bins)
    counts[7 - bins] = ties[7 - bins] = 5
    cuts = sparse(torch.int64, pools * 3)
    last(select.cut_kernel, found, counts, ties, cuts, pools, 1, place=pools - 1,
         STEP=step, BINS=bins, MOST=bins, TILES=1)  # fmt: skip
    assert_equal(cuts[-3:], torch.tensor([7, 0, 2]))
    # the next kernel reads the digits of the step before, and counts its own
    keys = sparse(torch.int32, pools * BLOCK)
    keys[-BLOCK:] = 7 << 8 | 9
    found[-1] = found[-2 * pools - 1] = 2
    counts[(step - 1 + 1) * pools * bins - bins + 7] = 5
    last(select.count_kernel, keys, found, counts, ties, BLOCK, 1, pools, step, 0, place=pools - 1,
         BITS=8, BEFORE=bins, LAST=False, MOST=bins)  # fmt: skip
    assert_equal(found[-2:], torch.tensor([7, 2]))
    assert counts[9 - bins] == BLOCK


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
            return x._make(moved(field, one) for field, one in fields)
        if isinstance(x, torch.Tensor) and x.numel() and name not in still:
            return at_the_end(x, (rows - 1) * x.numel())
        return x

    return {name: moved(name, x) for name, x in launch.arguments.items()}


@pytest.mark.parametrize("given", [False, True], ids=("sums to be found", "sums given"))
def test_mass_is_drawn(last, given):
    tokens, width = 64, 16
    rows = LENGTH // (tokens * width)
    draw = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 1, tokens, width, generator=draw).bfloat16()
    sums = None
    if given:
        logits = queries.float() @ keys.float().mT / 4
        sums = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -torch.inf).logsumexp(-1)
    with patch.object(mass, "resident_programs", lambda *_: 1), recorded() as launches:
        mass.columns(queries, keys, log_sum_exp=sums)
    found = {}
    for launch in launches:
        found = as_last_of(rows, launch) | found
        last(launch.kernel, place=rows - 1, **{name: found[name] for name in launch.arguments})
    expected = reference.attention_mass(queries.float(), keys.float())
    torch.testing.assert_close(found["drawn"][-tokens:], expected)


def test_what_is_left_of_the_last_head_is_attended(last):
    width, count = 16, BLOCK // 2
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(1, 1, width, generator=draw)
    keys, values = torch.randn(2, count, width, generator=draw).bfloat16()
    ends = torch.tensor([0, count])
    left = reference.RaggedCache(keys, values, torch.arange(count), ends)
    none = torch.zeros(1, 0, width)
    with recorded() as launches:
        ragged.ragged_attention(query, left, none, none, None, True, None)
    given = launches[0].arguments | dict(offsets=ends + LENGTH // width)
    given |= {name: at_the_end(given[name], LENGTH) for name in ("left_keys", "left_values")}
    last(launches[0].kernel, place=0, **given)
    expected = reference.attention(query, keys[None].float(), values[None].float())
    torch.testing.assert_close(given["means"][0], expected[0])


def test_kept_entries_are_counted_and_copied(last):
    width, channels = 32, 32
    tokens, blocks = LENGTH // width, LENGTH // width // BLOCK
    draw = torch.Generator().manual_seed(0)
    entries = torch.randn(2, BLOCK, width, generator=draw).bfloat16()
    marked = torch.rand(BLOCK, generator=draw) < 0.5
    far = [at_the_end(x, (tokens - BLOCK) * width) for x in entries]
    kept, many = at_the_end(marked, LENGTH - BLOCK), int(marked.sum())
    counts = sparse(torch.int64, LAST + 1)
    last(evict.count_kernel, kept, counts, LENGTH, LAST + 1, place=LAST // BLOCK, COUNTED=BLOCK)
    assert counts[-1] == many
    left = [sparse(torch.bfloat16, LENGTH + many * width) for _ in entries]
    ends, places = sparse(torch.int64, blocks), sparse(torch.int64, tokens + many)
    counts[blocks - 1], ends[blocks - 1] = many, tokens + many
    last(evict.copy_kernel, *far, kept[-tokens:], ends, counts, *left, places, tokens, blocks,
         place=blocks - 1, WIDTH=width, CHANNELS=channels)  # fmt: skip
    for one, each in zip(left, entries, strict=True):
        assert_equal(one[LENGTH:].unflatten(0, (many, width)), each[marked])
    assert_equal(places[tokens:], tokens - BLOCK + marked.nonzero()[:, 0])


def test_codes_of_the_last_row_are_attended(last):
    width, bits = 128, 4
    draw = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 1, 1, TILE, width, generator=draw).half()
    cache = reference.hex_prefill(queries, keys, values, reference.hex_preset("HEX-4"))
    query, rows = queries[..., -1:, :], LENGTH // (3 * width * bits) + 1
    with recorded() as launches:
        decode.attend_packed(query, PackedCache.of(cache))
    kept = "kept_keys", "kept_values"
    alike = "counts", "tokens", "channels", "columns", "places", "tiles"
    given = as_last_of(rows, launches[0], *kept, *alike)
    entries = given["entries"]
    entries = entries._replace(**{x: at_the_end(getattr(entries, x), LENGTH) for x in kept})
    entries.begins[-1] += LENGTH
    given |= dict(entries=entries, size=given["size"]._replace(rows=rows))
    last(launches[0].kernel, place=rows - 1, **given)
    expected = reference.hex_attention(query, cache).output
    assert_close(given["found"][-width:].half(), expected.flatten())


def test_edges_are_made_twice_and_a_neighbour_listed(last, scores):
    width, subtile = 16, 8
    tokens, ends, blocks = LENGTH // width, BLOCK // width, LENGTH // width // BLOCK
    chosen, counts = torch.tensor([tokens - ends]), (tokens, 1, 1)
    shape = dict(WIDTH=width, CHANNELS=width, CLAMPED=False, WIDE=True)
    shape |= dict(SOURCES=16, SUBTILE=subtile)
    copy, reach = torch.zeros(1, width).bfloat16(), torch.zeros(1)
    last(graphkv.sources_kernel, scores, chosen, copy, reach, *counts,
         place=0, WIDTH=width, CHUNK=width)  # fmt: skip
    vectors = scores[-BLOCK:].float().unflatten(0, (ends, width))
    unit = torch.nn.functional.normalize(vectors[:1], dim=-1)
    torch.testing.assert_close(copy.float() / reach, unit)

    lengths = sparse(torch.float32, tokens)
    maxima, highest = sparse(torch.float32, tokens // subtile), torch.zeros(blocks)
    graph = graphkv.Graphs(scores, copy, reach, chosen, None, lengths, maxima, highest)
    last(graphkv.maxima_kernel, graph, *counts, place=blocks - 1, **shape)
    assert_equal(lengths[-BLOCK:-ends], torch.ones(BLOCK - ends))
    torch.testing.assert_close(lengths[-ends:], vectors.norm(dim=-1))
    cosines = torch.cosine_similarity(vectors[:1], vectors[1:])
    assert_equal(maxima[-BLOCK // subtile : -1], torch.zeros(BLOCK // subtile - 1))
    torch.testing.assert_close(maxima[-1], cosines.max())
    assert_equal(highest[-1], maxima[-1])

    tile, picked, reached = torch.zeros(3, 1, dtype=torch.int32)
    exact, edge = torch.zeros(subtile), torch.zeros(1)
    last(graphkv.neighbours_kernel, graph, *counts, torch.ones(1, dtype=torch.int64),
         tile, picked, exact, reached, edge, blocks, 1, 1, 1, place=0,
         CHUNK=1 << 20, **shape)  # fmt: skip
    assert reached.item() == tokens - ends + 1 + int(cosines.argmax())
    torch.testing.assert_close(edge, cosines.max()[None])


def test_codes_are_written(last):
    """Steps are 1 and minima 0, so that a code is the number itself, or 0 where it is kept."""
    width, bits, strip = 64, 4, 32
    tokens = LENGTH // width // strip * strip
    count = tokens * bits // 32
    keys, values, static = sparse(torch.float16), sparse(torch.float16), sparse(torch.bool)
    codes = torch.arange(strip * width, dtype=torch.uint8).view(strip, width) % 16
    for x in (keys, values):
        x[(tokens - strip) * width : tokens * width] = codes.flatten()
    static[tokens * width - 1] = True
    codes[-1, -1] = 0
    dynamic = torch.zeros(tokens, dtype=torch.bool)
    of_keys = torch.tensor([1.0, 0]).half()[:, None].repeat(1, width)
    words = sparse(torch.int32, 2 * width * count).view(2, width, count)
    scales = torch.zeros(2, tokens, dtype=torch.float16)
    strips = tokens // strip
    last(compress.codes_kernel, keys, values, static, dynamic, *of_keys, *words, *scales, tokens,
         1, count, strips, place=strips - 1, PER=1, HEADS=1, GROUP=16, BITS=bits,
         WIDTH=width)  # fmt: skip
    for one in words:
        assert_equal(one[:, -strip * bits // 32 :], pack_bits(codes.mT.contiguous(), bits))
    assert_equal(scales[:, -strip:], torch.tensor([1.0, 0]).half()[:, None].expand(2, strip))

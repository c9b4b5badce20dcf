"""The streaming cache: HEX §4.1."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import reference
from reference import HexConfig
from spec_tests.accuracy import assert_equal
from spec_tests.hex.cache.feed_stream import (
    assert_same_cache,
    compressed,
    prefill_and_append,
    slice_stream,
)
from spec_tests.hex.cache.strategies import BLOCK, MODES, configs, streams
from spec_tests.inputs import INPUTS


@st.composite
def decodings(draw, modes=MODES, least=1, **fixed):
    """A stream, its settings, and the length of its prompt."""
    tokens = draw(st.integers(least, 4 * BLOCK))
    return draw(streams(tokens)), draw(configs(modes, **fixed)), draw(st.integers(0, tokens))


@pytest.mark.extension
@given(decodings(heavy=0.0, extended=True))
def test_keys_have_the_codes_of_their_bits_and_values_those_of_theirs(impl, x):
    stream, config, prompt = x
    bits, value_bits = config.bits, config.value_bits
    both = prefill_and_append(impl, stream, config, prompt)
    of_keys, of_values = (
        prefill_and_append(impl, stream, config._replace(bits=width, value_bits=None), prompt)
        for width in (bits, value_bits)
    )
    blocks = []
    for for_keys, for_values in zip(of_keys.blocks, of_values.blocks, strict=True):
        names = [name for name in for_values._fields if "value" in name]
        parts = {name: getattr(for_values, name) for name in names}
        blocks.append(for_keys._replace(**parts))
    if bits != value_bits:
        blocks = [block._replace(bits=(bits, value_bits)) for block in blocks]
    assert_same_cache(both, of_keys._replace(config=config, blocks=tuple(blocks)))
    expected = impl.hex_read(of_keys)[0], impl.hex_read(of_values)[1]
    assert_equal(impl.hex_read(both), expected)


@pytest.mark.spec("HEX-4.1a")
@given(INPUTS["hex_prefill"])
def test_a_prompt_leaves_less_than_a_block_and_the_tokens_carried(impl, x):
    cache, config = impl.hex_prefill(**x), x["config"]
    length, carried = x["keys"].shape[-2], config.recent if config.carry_recent else 0
    residual = cache.residual_keys.shape[-2]
    assert min(length, carried) <= residual < BLOCK + carried
    assert (length - residual) % BLOCK == 0
    assert len(cache.blocks) == (length > residual)


@pytest.mark.spec("HEX-4.1a", "HEX-4.1b")
@given(decodings() | decodings(least=3 * BLOCK, density=0.0, carry_recent=False), st.data())
def test_decoding_in_any_chunks_gives_the_same_cache(impl, x, data):
    stream, config, prompt = x
    start = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    tokens = stream[1].shape[-2]
    cuts = sorted(data.draw(st.lists(st.integers(prompt, tokens), max_size=5)))
    once, cache = impl.hex_append(start, *slice_stream(stream, prompt)), start
    for low, high in pairwise([prompt, *cuts, tokens]):
        cache = impl.hex_append(cache, *slice_stream(stream, low, high))
    assert_same_cache(cache, once)


@pytest.mark.spec("HEX-4.1b")
@given(decodings(("append",)))
def test_append_never_changes_a_byte_of_earlier_blocks(impl, x):
    stream, config, prompt = x
    before = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    after = impl.hex_append(before, *slice_stream(stream, prompt))
    assert_equal(after.blocks[: len(before.blocks)], before.blocks)
    old = impl.hex_read(before)[0][..., : prompt - before.residual_keys.shape[-2], :]
    assert_equal(impl.hex_read(after)[0][..., : old.shape[-2], :], old)


@pytest.mark.spec("HEX-4.1c")
@given(decodings(("oracle",)) | decodings(("oracle",), least=2 * BLOCK, density=0.5))
def test_full_from_originals_is_compressing_once(impl, x):
    stream, config, prompt = x
    cache = impl.hex_recompress(prefill_and_append(impl, stream, config, prompt))
    tokens = cache.mass.shape[-1]
    assert_equal(cache.original_keys, stream[1][..., :tokens, :])
    assert len(cache.blocks) == (tokens > 0)
    for block in cache.blocks:
        span = slice_stream(stream[1:], 0, tokens)
        assert_equal(block, compressed(impl, span, config, block.dynamic, tokens))


@pytest.mark.spec("HEX-4.1c")
@given(st.integers(2, 4), configs(("full",)), st.data())
def test_full_quantises_the_block_that_fills_once(impl, count, config, data):
    carried = config.recent if config.carry_recent else 0
    last = count * BLOCK + carried - 1
    stream = data.draw(streams(last + 1))
    cache = impl.hex_prefill(*slice_stream(stream, 0, data.draw(st.integers(0, last))), config)
    start = cache.mass.shape[-1] + cache.residual_keys.shape[-2]
    before = impl.hex_append(cache, *slice_stream(stream, start, last))
    after = impl.hex_append(before, *slice_stream(stream, last))
    joined = zip(impl.hex_read(before), slice_stream(stream[1:], last), strict=True)
    keys, values = (torch.cat(parts, -2) for parts in joined)
    # one span of restored and exact entries, unless the new block stays apart
    whole = 0 < len(before.blocks) == config.period
    alone = 0 if whole else before.mass.shape[-1]
    block = after.blocks[-1]
    span, tokens = slice_stream((keys, values), alone, count * BLOCK), count * BLOCK - alone
    once = compressed(impl, span, config, block.dynamic, tokens)
    assert_equal(after.blocks, (once,) if whole else (*before.blocks, once))


@pytest.mark.spec("HEX-4.1c")
@given(decodings(("full",), least=BLOCK))
def test_full_changes_no_code_where_mask_and_groups_stay(impl, x):
    stream, config, prompt = x
    once = impl.hex_recompress(prefill_and_append(impl, stream, config, prompt))
    twice = impl.hex_recompress(once)
    for again, block in zip(twice.blocks, once.blocks, strict=True):
        for part in ("key_words", "value_words", "kept_keys", "kept_values", "dynamic"):
            assert_equal(getattr(again, part), getattr(block, part))


@pytest.mark.spec("HEX-4.1c")
@settings(max_examples=20)  # each runs sixteen steps
@given(streams(4 * BLOCK, batch=((),)), configs(("full", "oracle")), st.integers(1, 3))
def test_no_more_blocks_stand_side_by_side_than_the_period(impl, stream, config, period):
    config = config._replace(period=period, carry_recent=False)
    cache = impl.hex_prefill(*slice_stream(stream, 0, 0), config)
    for token in range(0, 4 * BLOCK, 4):
        cache = impl.hex_append(cache, *slice_stream(stream, token, token + 4))
        assert len(cache.blocks) <= period
    assert sum(block.dynamic.shape[-1] for block in cache.blocks) == 4 * BLOCK


@st.composite
def wide_streams(draw):
    """Gaussian queries, keys and values in float64: any order of sums gives the same ranking."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(3, 2, draw(st.integers(BLOCK, 3 * BLOCK)), 4, generator=generator)
    return tuple(x.double())


@pytest.mark.spec("HEX-3.3a", "HEX-4.1a", "HEX-4.1b")
@pytest.mark.parametrize("normalize", [False, True])
@given(wide_streams(), configs(("append",)), st.data())
def test_heavy_hitters_of_a_span_are_by_the_queries_since_it_arrived(
    impl, normalize, stream, config, data
):
    # all entries are kept, so that all queries see exact keys
    config = config._replace(density=1.0, heavy=0.25, normalize=normalize)
    tokens = stream[1].shape[-2]
    prompt = data.draw(st.integers(0, tokens) | st.just(tokens))
    cache = impl.hex_prefill(*slice_stream(stream, 0, prompt), config)
    of_prompt, carried = len(cache.blocks), config.recent if config.carry_recent else 0
    cache = impl.hex_append(cache, *slice_stream(stream, prompt))
    start = 0
    for number, block in enumerate(cache.blocks):
        stop = start + block.dynamic.shape[-1]
        # a prompt is one forward pass: its span is chosen by its own queries
        end = stop if number < of_prompt else stop + carried
        queries, keys = stream[0][..., start:end, :], stream[1][..., :end, :]
        mass = impl.attention_mass(queries, keys, end - start, normalize=config.normalize)
        windowed = not config.carry_recent and (start == 0 or config.recent_per_block)
        window = config.recent if windowed else 0
        expected = impl.h2o_mask(mass[: stop - start], config.heavy, window, config.outside_recent)
        assert_equal(block.dynamic, expected)
        start = stop


@pytest.mark.spec("HEX-3.3a", "HEX-4.1c")
@given(wide_streams(), configs(("full", "oracle")), st.data())
def test_heavy_hitters_of_the_whole_are_by_all_queries(impl, stream, config, data):
    config = config._replace(density=1.0, heavy=0.25)
    prompt = data.draw(st.integers(0, stream[1].shape[-2]))
    cache = impl.hex_recompress(prefill_and_append(impl, stream, config, prompt))
    mass = impl.attention_mass(*stream[:2], normalize=config.normalize)
    window = 0 if config.carry_recent else config.recent
    for block in cache.blocks:
        rivals = mass[: block.dynamic.shape[-1]]
        expected = impl.h2o_mask(rivals, config.heavy, window, config.outside_recent)
        assert_equal(block.dynamic, expected)


@pytest.mark.spec("HEX-3.2a", "HEX-4.1a", "HEX-4.1b")
@given(wide_streams(), st.integers(0, 99), st.booleans(), st.sampled_from([0.5, 0.3]))
def test_each_span_has_the_mask_of_its_length_and_of_the_seed(impl, stream, seed, tile, density):
    near = density == 0.3
    config = HexConfig(
        block=BLOCK, density=density, heavy=0.0, recent=0, seed=seed, tile=tile, near=True
    )
    cache = prefill_and_append(impl, stream, config, 2 * BLOCK)
    start = 0
    for block in cache.blocks:
        keys = stream[1][..., start : start + block.dynamic.shape[-1], :]
        mask = impl.expander_mask(keys.shape[-2], 8, density, seed, near, tile, BLOCK)
        assert_equal(block.kept_keys, keys[impl.hex_mask(mask, block.dynamic, 2)])
        start += keys.shape[-2]


@pytest.mark.spec("HEX-3.2a", "HEX-4.1a")
def test_a_density_that_no_graph_has_is_refused_unless_near_will_do(impl):
    keys = torch.ones(1, BLOCK, 4)
    config = HexConfig(block=BLOCK, density=0.3, heavy=0.0, recent=0)
    with pytest.raises(ValueError, match="density"):
        impl.hex_prefill(keys, keys, keys, config)
    assert impl.hex_prefill(keys, keys, keys, config._replace(near=True)).blocks


def machine(impl) -> type[RuleBasedStateMachine]:
    """Return the machine that runs one implementation."""

    class Stream(RuleBasedStateMachine):
        """A cache, and the record of all tokens it was given."""

        @initialize(stream=streams(3 * BLOCK), config=configs(), prompt=st.integers(0, 3 * BLOCK))
        def start(self, stream, config, prompt):
            """Read a prompt."""
            self.stream = tuple(slice_stream(stream, 0, prompt))
            self.cache = impl.hex_prefill(*self.stream, config)

        @rule(data=st.data(), tokens=st.integers(0, BLOCK + 3))
        def append(self, data, tokens):
            """Decode some tokens."""
            new = data.draw(streams(tokens, batch=(tuple(self.stream[1].shape[:-3]),)))
            heads = self.stream[0].shape[-3]
            new = (new[0][..., :1, :, :].repeat_interleave(heads, -3), *new[1:])
            self.stream = tuple(
                torch.cat([old, x], -2) for old, x in zip(self.stream, new, strict=True)
            )
            self.cache = impl.hex_append(self.cache, *new)

        @precondition(lambda self: self.cache.config.mode != "append")
        @rule()
        def recompress(self):
            """Compress the whole cache again."""
            self.cache = impl.hex_recompress(self.cache)

        @invariant()
        def order_and_count_and_residual_hold(self):
            """Each token is at its position; the residual buffer is exact."""
            keys, values = impl.hex_read(self.cache)
            assert keys.shape == self.stream[1].shape
            coded = keys.shape[-2] - self.cache.residual_keys.shape[-2]
            assert coded % BLOCK == 0
            buffers = self.cache.residual_keys, self.cache.residual_values
            sides = zip(buffers, (keys, values), self.stream[1:], strict=True)
            for buffer, restored, stream in sides:
                assert_equal(buffer, stream[..., coded:, :])
                assert_equal(restored[..., coded:, :], buffer)
            # no restored entry is far outside the range of its channel
            span = self.stream[1].new_zeros(()) if not keys.numel() else self.stream[1].abs().amax()
            assert (keys.abs() <= 2 * span).all()
            start = 0
            for block in self.cache.blocks if self.cache.config.mode == "append" else ():
                kept = block.dynamic[..., None, :, None].expand(
                    *keys.shape[:-2], block.dynamic.shape[-1], keys.shape[-1]
                )
                stop = start + block.dynamic.shape[-1]
                for now, then in zip((keys, values), self.stream[1:], strict=True):
                    assert_equal(now[..., start:stop, :][kept], then[..., start:stop, :][kept])
                start = stop

        @invariant()
        def bytes_add_up(self):
            """The sum of the parts is the size of all storages."""
            assert impl.hex_bytes(self.cache).total == reference.stored_bytes(self.cache)

    return Stream


@pytest.mark.spec("HEX-4.1a", "HEX-4.1b", "HEX-4.1c", "HEX-4.2a")
def test_any_sequence_of_steps_keeps_order_count_residual_and_bytes(impl):
    short = settings(max_examples=20, stateful_step_count=8)
    run_state_machine_as_test(machine(impl), settings=short)

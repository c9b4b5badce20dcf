"""Any sequence of prompt, decoding and recompression: HEX §4.1, as a state machine."""

import pytest
import torch
from hypothesis import settings
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
from spec_tests.accuracy import assert_equal
from spec_tests.hex.streams import pieces
from spec_tests.inputs.hexcache import BLOCK, configs, streams


def machine(impl) -> type[RuleBasedStateMachine]:
    """Return the machine that runs one implementation."""

    class Stream(RuleBasedStateMachine):
        """A cache beside the list of everything it was given."""

        @initialize(stream=streams(3 * BLOCK), config=configs(), prompt=st.integers(0, 3 * BLOCK))
        def start(self, stream, config, prompt):
            """Read a prompt."""
            self.stream = tuple(pieces(stream, 0, prompt))
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
            """Compress the whole anew."""
            self.cache = impl.hex_recompress(self.cache)

        @invariant()
        def order_and_count_and_residual_hold(self):
            """Each token is where it was put; what is not compressed is exact."""
            keys, values = impl.hex_read(self.cache)
            assert keys.shape == self.stream[1].shape
            left = keys.shape[-2] - self.cache.residual_keys.shape[-2]
            assert left % BLOCK == 0
            assert_equal(self.cache.residual_keys, self.stream[1][..., left:, :])
            assert_equal(self.cache.residual_values, self.stream[2][..., left:, :])
            # no quantisation of ours moves an entry past the range of its channel
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
            """The parts are all there is, and every storage is as small as its tensor."""
            assert impl.hex_bytes(self.cache).total == reference.stored_bytes(self.cache)

    return Stream


@pytest.mark.spec("HEX-4.1a", "HEX-4.1b", "HEX-4.1c", "HEX-4.2a")
def test_any_sequence_of_steps_keeps_order_count_residual_and_bytes(impl):
    short = settings(max_examples=20, stateful_step_count=8)
    run_state_machine_as_test(machine(impl), settings=short)

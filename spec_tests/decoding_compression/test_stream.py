"""A state machine: any sequence of prompt and decoding, in any chunks (HubKV §4.3)."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.decoding_compression.strategies import part, start, streams


def machine(impl) -> type[RuleBasedStateMachine]:
    """Return the state machine of one implementation."""

    class Stream(RuleBasedStateMachine):
        """A cache, one that gets the same tokens one by one, and a record of all tokens."""

        @initialize(x=start())
        def begin(self, x):
            """Read a prompt."""
            self.cache = self.single = impl.decoding_start(**x)
            self.given = [x["keys"], x["values"], x["scores"][..., None].clone()]
            valid = x["valid"]
            if valid is None:
                valid = torch.ones_like(x["scores"][..., 0, :], dtype=torch.bool)
            self.start = (~valid).sum(-1).expand(x["scores"].shape[:-2])
            self.since = 0

        @rule(data=st.data(), tokens=st.integers(0, 5))
        def append(self, data, tokens):
            """Decode some tokens."""
            shape = self.given[0].shape[:-2]
            new = data.draw(streams(self.cache.config, tokens, shape[:-1], shape[-1]))
            before = impl.decoding_read(self.cache)
            self.cache = impl.decoding_append(self.cache, *new)
            for t in range(tokens):
                self.single = impl.decoding_append(self.single, *part(new, t, t + 1))
            parts = (*new[:2], new[2][..., None])
            self.given = [torch.cat(pair, -2) for pair in zip(self.given, parts, strict=True)]
            self.since += tokens
            if self.since < self.cache.config.interval:
                positions = impl.decoding_read(self.cache).positions
                older = positions[..., : before.present.shape[-1]]
                assert_equal(older.clone(), before.positions)
            self.since %= self.cache.config.interval

        @rule(amount=st.sampled_from([0.25, 1.0]))
        def attend(self, amount):
            """Add mass to all scores in the cache, as the attention of a query does."""
            mass = torch.full(impl.decoding_read(self.cache).scores.shape, amount)
            nothing = part([*self.given[:2], self.given[2][..., 0]], 0, 0)
            self.cache = impl.decoding_append(self.cache, *nothing, mass=mass)
            self.single = impl.decoding_append(self.single, *nothing, mass=mass)
            kept = impl.decoding_read(self.cache)
            flat = self.given[2][..., 0]
            for head, (positions, here) in enumerate(
                zip(kept.positions.flatten(0, -2), kept.present.flatten(0, -2), strict=True)
            ):
                where = positions[here] + int(self.start.flatten()[head // flat.shape[-2]])
                flat.flatten(0, -2)[head][where] += amount

        @invariant()
        def each_entry_is_where_it_was_put(self):
            """Positions increase; each entry has the key, value and score of its position."""
            view = impl.decoding_read(self.cache)
            heads = self.given[0].shape[-3]
            parts = [x.flatten(0, -3) for x in self.given]
            for head in range(parts[0].shape[0]):
                here = view.present.flatten(0, -2)[head]
                assert not (here[:-1] & ~here[1:]).any()
                positions = view.positions.flatten(0, -2)[head][here]
                assert (positions.diff() > 0).all()
                where = positions + int(self.start.flatten()[head // heads])
                assert_equal(view.keys.flatten(0, -3)[head][here], parts[0][head][where])
                assert_equal(view.values.flatten(0, -3)[head][here], parts[1][head][where])
                scores = view.scores.flatten(0, -2)[head][here]
                assert_close(scores, parts[2][head][where, 0])

        @invariant()
        def counts_are_exact(self):
            """Stored entries are within the target; pending ones came after the compression."""
            view, config = impl.decoding_read(self.cache), self.cache.config
            assert self.cache.pending_scores.shape[-1] == self.since
            tokens = self.given[0].shape[-2]
            assert_equal(self.cache.seen, tokens - self.start)
            stored = view.present[..., : view.present.shape[-1] - self.since].sum(-1)
            if config.scope == "model":
                total, heads = stored.sum((0, -1)), stored.shape[0] * stored.shape[-1]
                seen = self.cache.seen[0]
            elif config.scope == "layer":
                total, heads, seen = stored.sum(-1), stored.shape[-1], self.cache.seen
            else:
                total, heads, seen = stored, 1, self.cache.seen[..., None].expand(stored.shape)
            assert (total <= config.target * heads).all()
            assert (total >= (seen - self.since).clamp(max=config.target) * heads).all()

        @invariant()
        def protected_and_pending_tokens_are_there(self):
            """Sinks are never evicted, nor any token since the last compression."""
            view, config = impl.decoding_read(self.cache), self.cache.config
            for head, positions in enumerate(view.positions.flatten(0, -2).tolist()):
                seen = int(self.cache.seen.flatten()[head // self.given[0].shape[-3]])
                due = {*range(min(config.sinks, seen)), *range(seen - self.since, seen)}
                assert due <= set(positions)

        @invariant()
        def chunks_make_no_difference(self):
            """The cache is the same for tokens one by one and for chunks."""
            assert_equal(self.cache, self.single)

    return Stream


@pytest.mark.spec("HubKV-4.3")
def test_any_sequence_of_steps_keeps_order_values_counts_and_the_protected(impl):
    short = settings(max_examples=20, stateful_step_count=6)
    run_state_machine_as_test(machine(impl), settings=short)

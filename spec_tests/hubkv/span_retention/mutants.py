"""Mutants of the retention of a span."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/span_retention")
mutant("""
test_the_changed_share_counts_tokens
  chains_by_position: positions of layers and heads are counted, not tokens
  - (kept_refined != kept).sum().float() / count
  + (base ^ refined)[..., span].float().mean()
test_a_token_that_moves_to_another_head_is_unchanged
  chains_by_mask: a token counts as changed if it moves to another head
  - (kept_refined != kept).sum().float() / count
  + (base ^ refined).reshape(heads, -1).any(0)[span].float().mean()
test_means_run_over_the_span_alone
  chains_everywhere: means are taken over all tokens
  +     span = torch.ones_like(span)
        heads, count = base.shape
""")

"""Mutants of retained chains."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/span_retention")
mutant("""
test_the_changed_share_counts_tokens
  chains_by_position: layer and head positions are counted, not tokens
  - (kept_refined != kept).sum().float() / count
  + (base ^ refined)[..., span].float().mean()
test_a_token_that_moves_to_another_head_is_unchanged
  chains_by_mask: a token that moves to another head has changed
  - (kept_refined != kept).sum().float() / count
  + (base ^ refined).reshape(heads, -1).any(0)[span].float().mean()
test_means_run_over_the_span_alone
  chains_everywhere: means over all tokens
  +     span = torch.ones_like(span)
        heads, count = base.shape
""")

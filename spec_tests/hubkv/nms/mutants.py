"""Mutants of non-maximum suppression."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/nms")
mutant("""
test_only_local_maxima_keep_their_score
  nms_keeps_plateaus: of a plateau both ends are maxima
  -     return torch.where(hub_mask(scores, radius), scores, factor * scores)
  +     mirrored = hub_mask(scores.flip(-1), radius).flip(-1)
  +     return torch.where(hub_mask(scores, radius) | mirrored, scores, factor * scores)
test_suppression_covers_more_segments_than_top_k
  nms_does_nothing: nothing is suppressed
  - torch.where(hub_mask(scores, radius), scores, factor * scores)
  + scores.clone()
""")

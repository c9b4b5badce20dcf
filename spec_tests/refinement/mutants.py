"""Mutants of the step between scoring and selecting."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("refinement")
mutant("""
test_suppression_compares_content_with_content_alone
  protected_compete: protected tokens suppress content
  - widen(scored.scores), scored.protected
  + widen(scored.scores), scored.protected & False
test_the_gate_takes_the_share_removed_unless_told_otherwise
  kept_for_removed: the gate takes the share kept, not the share removed
  - max(0.0, 1 - keep / max(1, scores.shape[-1]))
  + min(1.0, keep / max(1, scores.shape[-1]))
compress/test_laws.py::test_a_real_score_below_0_is_refused_unless_it_is_protected_from_suppression
  negatives_suppressed: scores of content may be negative, those of protected tokens may not
  - real & ~scored.protected
  + real & scored.protected
graphkv/compress/test_laws.py::test_each_row_of_hex_has_neighbours_by_its_own_thousands
  unadapted_rows: the number of neighbours does not depend on the length of a row
  - settings = refinement._asdict()
  + settings = refinement._asdict() | dict(adaptive=False)
""")

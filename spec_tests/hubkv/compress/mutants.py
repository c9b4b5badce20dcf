"""Mutants of HubKV as a whole."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/compress")
mutant("""
vector:the-first-real-token-and-the-last-are-marked
  no_sinks_of_its_own: sinks are not added to the tokens that the scorer protects
  - (mine | (position < sinks))
  + mine
test_what_is_kept_ranks_first_by_the_refined_scores
  power_of_its_own: the gate squares the ratio, whatever the settings
  - shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
  -         valid=valid,
  + shielded, keep=keep, ratio=ratio, scope=scope,
  +         refinement=refinement._replace(power=2.0), valid=valid,
        )
vector:the-first-real-token-is-the-sink
  padded_sinks: sinks are counted from the start of the padding
  - (position < sinks)
  + (position + index[-1].start < sinks)
test_the_window_gives_way_and_says_so
  budget_gives_way: the budget grows if the window does not fit
  +     axes = {'head': (), 'layer': (-2,), 'model': (0, -2)}[scope]
  +     heads = int(torch.tensor([keys.shape[:-1][axis] for axis in axes]).prod())
  +     keep = max(keep, heads * (sinks + recent)) if recent and store is None else keep
        shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)
test_layers_compete_with_each_other_by_default
  head_by_head: every head is its own pool by default
  -     scope: Scope = "model",
  +     scope: Scope = "head",
        refinement: HubSettings = HubSettings(),  # noqa: B008
        sinks: Whole = 4,
        recent: Whole | None = None,
        valid: Bool[Tensor, "*rows tokens"] | None = None,
        store
test_in_hex_the_ends_need_no_budget
  always_padded: an all-true mask is passed without padding, although only append mode accepts one
  +     real = scored.scores[..., 0, :] >= 0 if valid is None else valid
  +     storable(keys, values, real, store)
        shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)
""")

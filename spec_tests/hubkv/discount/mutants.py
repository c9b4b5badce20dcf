"""Mutants of hubs and of their discount."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/discount")
mutant("""
vector:below-zero-there-are-hubs-too
  zeros_beyond_the_end: windows contain scores of 0 beyond the end of a row
  - window = scores[..., start : i + radius + 1]
  + window = torch.nn.functional.pad(scores, (0, radius))[..., start : i + radius + 1]
test_a_token_that_is_no_hub_reads_gamma_times_its_score
  fading_discount: the discount is weaker further behind a hub
  -     return torch.where(hubs, scores, gamma * scores)
  +     at = torch.arange(scores.shape[-1])
  +     behind = at - torch.where(hubs, at, 0).cummax(-1).values if scores.numel() else at
  +     kept = 1 - (1 - gamma) / behind.clamp(min=1)
  +     return torch.where(hubs, scores, (kept * scores).to(scores.dtype))
test_every_token_of_a_row_reads_its_score_or_gamma_times_it
  discount_within_windows: a token outside every hub's window keeps its score
  -     discounted = discount(scores, hub_mask(scores, radius, protected), gamma)
  +     hubs = hub_mask(scores, radius, protected)
  +     near = hubs.clone()
  +     for i in range(hubs.shape[-1]):
  +         near[..., i] = hubs[..., max(0, i - radius) : i + radius + 1].any(-1)
  +     discounted = discount(scores, hubs | ~near, gamma)
test_a_unique_maximum_outranks_its_window_by_the_discount
  no_discount: nothing is discounted
  - torch.where(hubs, scores, gamma * scores)
  + scores.clone()
  near_the_maximum_lifted: a token within 2 % of a row's maximum is lifted above its hub
  -     discounted = discount(scores, hub_mask(scores, radius, protected), gamma)
  +     hubs, most = hub_mask(scores, radius, protected), scores.amax(-1, keepdim=True)
  +     lifted = torch.where(~hubs & (scores >= 0.98 * most), 1.05 / gamma * scores, scores)
  +     discounted = discount(lifted, hubs, gamma)
test_hub_dominance_holds_exactly_through_weight_and_gate
  discounted_twice: the discount is applied twice to tokens that are no hubs
  - torch.where(hubs, scores, gamma * scores)
  + torch.where(hubs, scores, gamma * gamma * scores)
test_no_two_hubs_are_within_a_radius
  hub_on_every_tie: every token of a plateau is a hub
  - start + window.argmax(-1) == i
  + scores[..., i] == window.amax(-1)
test_a_hub_keeps_its_score
  discount_everything: hubs are discounted too
  - torch.where(hubs, scores, gamma * scores)
  + gamma * scores
test_protected_tokens_suppress_nothing
  protected_tokens_compete: protected tokens compete with the others
  - scores = scores.masked_fill(protected, -torch.inf)
  + pass
  protected_hubs_suppress: protected tokens suppress their neighbours
  - hub_mask(scores, radius, protected), gamma
  + hub_mask(scores, radius), gamma
vector:radius-is-a-half-width
  narrow_windows: the radius is the full width of a window
  - hubs = torch.zeros_like(scores, dtype=torch.bool)
  + hubs, radius = torch.zeros_like(scores, dtype=torch.bool), radius // 2
test_a_hub_has_no_stronger_or_earlier_equal_in_its_window
  nothing_below_zero: a token with a negative score is no hub
  - start + window.argmax(-1) == i
  + (start + window.argmax(-1) == i) & (scores[..., i] >= 0)
  close_to_the_maximum: a hub is the first within a thousandth of its window's maximum
  - start + window.argmax(-1) == i
  + start + (window >= window.amax(-1, keepdim=True) - 1e-3).int().argmax(-1) == i
  hubs_by_half_precision: windows are compared in bfloat16
  - start + window.argmax(-1) == i
  + start + window.bfloat16().argmax(-1) == i
  windows_end_early: a window does not contain its last token
  -         window = scores[..., start : i + radius + 1]
  -         hubs[..., i] = start + window.argmax(-1) == i
  +         window = scores[..., start : i + radius]
  +         hubs[..., i] = window.shape[-1] > 0 and start + window.argmax(-1) == i
  protected_hubs: a protected token may be a hub
  - return hubs if protected is None else hubs & ~protected
  + return hubs
  last_of_a_plateau: the last of a plateau is the hub
  - start + window.argmax(-1) == i
  + start + window.shape[-1] - 1 - window.flip(-1).argmax(-1) == i
test_windows_reach_across_a_long_row
  blind_at_block_borders: windows end at the borders of blocks of 256 tokens
  - max(0, i - radius)
  -         window = scores[..., start : i + radius + 1]
  + max(i // 256 * 256, i - radius)
  +         window = scores[..., start : min(i // 256 * 256 + 256, i + radius + 1)]
  hole_at_the_end: the last token is never written
  +     discounted[..., -1:] = torch.empty_like(scores[..., -1:])
        return discounted if
test_a_discounted_score_is_rounded_once[torch.bfloat16]
  truncated_products: half-precision products are truncated, not rounded
  +     if scores.dtype == torch.bfloat16:
  +         cut = (gamma * scores.float()).view(torch.int32) >> 16 << 16
  +         return torch.where(hubs, scores, cut.view(torch.float32).bfloat16())
        return torch.where(hubs, scores, gamma * scores)
""")

"""Lies that kernels tell: ties, ends of blocks, masks, scales, rounding, what one block says."""

from spec_tests.mutants.make import kernel_lies

lie = kernel_lies("hubkv/discount.py")
lie(
    "kernel_later_ties",
    "a hub may have an equal on its left",
    "hub &= mine > rival(",
    "hub &= mine >= rival(",
    "test_vectors.py::test_vector[discount-a-plateau-and-a-row-end-in-one-hub-each]",
)
lie(
    "kernel_past_the_row",
    "the first score of the next row competes",
    ".to(tl.uint32, bitcast=True) < tokens",
    ".to(tl.uint32, bitcast=True) <= tokens",
    "test_vectors.py::test_vector[discount-a-plateau-and-a-row-end-in-one-hub-each]",
)
lie(
    "kernel_protected_suppress",
    "protected tokens suppress their neighbours",
    "there &= tl.load(protected + j, mask=there, other=1) == 0",
    "there &= j >= 0",
    "hubkv/discount/test_laws.py::test_protected_tokens_suppress_nothing",
)

lie = kernel_lies("hubkv/refine.py")
lie(
    "kernel_protected_moments",
    "protected scores count among those of their head",
    "inside = aside == 0",
    "inside = aside < 2",
    "hubkv/refine/test_laws.py::test_scores_of_protected_tokens_change_nothing",
)
lie(
    "kernel_refined_later_ties",
    "a hub may have an equal on its left",
    "hub = (mine > largest[j - RADIUS])",
    "hub = (mine >= largest[j - RADIUS])",
    "hubkv/refine/test_laws.py::test_refinement_is_its_four_steps[torch.float32]",
)
lie(
    "kernel_refined_beside_what_is_aside",
    "protected tokens suppress their neighbours",
    'found = tl.where(aside != 0, -float("inf"), found)',
    'found = tl.where(aside > 1, -float("inf"), found)',
    "hubkv/refine/test_laws.py::test_scores_of_protected_tokens_change_nothing",
)
lie(
    "kernel_equal_blocks",
    "the means of blocks do not spread",
    "(spreads + apart * apart) * counts",
    "spreads * counts",
    "hubkv/refine/test_laws.py::test_refinement_is_its_four_steps[torch.float32]",
)

lie = kernel_lies("retain.py")
HALVES = "retain/test_laws.py::test_few_values_of_half_precision_are_cut_exactly"
lie(
    "kernel_one_tie_more",
    "the tie after the last one is kept",
    "tl.cumsum(equal, 0) <= room",
    "tl.cumsum(equal, 0) <= room + 1",
    "retain/test_laws.py::test_counts_are_exact_with_evicted_and_protected_entries_too",
)
lie(
    "kernel_ties_of_any_block",
    "a block keeps all of its ties or none",
    "tl.where(rank > whole, 0, tl.load(cuts + pool * 3 + 2))",
    "tl.where(rank > whole, 0, BLOCK)",
    "retain/test_laws.py::test_counts_are_exact_with_evicted_and_protected_entries_too",
)
lie(
    "kernel_negative_bits",
    "scores below zero order as their bits do",
    "bits = tl.where(bits < 0, -(bits & most), bits)",
    "bits = tl.where(bits < 0, bits, bits)",
    "retain/test_laws.py::test_pools_are_filled_in_the_total_order",
)

lie(
    "kernel_halves_of_any_block",
    "a thread keeps all of its ties or none",
    "leading(equal, taken.to(tl.uint32), PTX), equal)",
    "equal & 0, equal)",
    HALVES,
)
lie(
    "kernel_hidden_once",
    "what is aside competes after the first digit",
    "match &= equals(p[i] | hidden, prefix,",
    "match &= equals(p[i], prefix,",
    HALVES,
)

lie = kernel_lies("_planes.py", block=32)
lie(
    "kernel_minus_zero_below",
    "minus zero is below zero",
    "below = p[15] & some",
    "below = p[15]",
    HALVES,
)
lie(
    "kernel_last_of_a_group",
    "the last score of a group is none",
    "tl.where(left == 32, 0xFFFFFFFF, first(left & 31))",
    "first(tl.minimum(left, 31))",
    HALVES,
)

lie = kernel_lies("evict.py", block=2)
lie(
    "kernel_positions_in_blocks",
    "positions count from the start of their block",
    "tl.store(positions + place, i, mask=marked)",
    "tl.store(positions + place, i - start, mask=marked)",
    "evict/test_laws.py::test_each_head_holds_its_kept_entries_in_position_order",
)
lie(
    "kernel_rows_of_the_first_head",
    "every head has the keys of the first",
    "copied(keys, left_keys, head * tokens + i,",
    "copied(keys, left_keys, i,",
    "evict/test_laws.py::test_each_head_holds_its_kept_entries_in_position_order",
)

lie = kernel_lies("graphkv/refine.py")
lie(
    "kernel_every_tied_edge",
    "all tokens tied with the weakest neighbour are reached",
    "(edge == cut) & ((first + at)[:, None] <= end)",
    "(edge == cut)",
    "graphkv/refine/test_laws.py::test_excluding_the_window_takes_it_off_the_budget_of_every_graph",
)
lie(
    "kernel_own_neighbour",
    "a source is a neighbour of itself",
    "present[None, :] & (n[:, None] != itself[None, :])",
    "present[None, :]",
    "graphkv/refine/test_laws.py::test_every_graph_is_made_of_its_parts[layer-decay]",
)

lie = kernel_lies("hex/heavy_hitters.py", block=32)
lie(
    "kernel_blind_to_itself",
    "the weights are those over tokens before a query's own",
    "seen &= n[None, :] <= at[:, None]",
    "seen &= n[None, :] < at[:, None]",
    "scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)
lie(
    "kernel_drawn_from_before",
    "a token draws attention from queries before it",
    "at[None, :] >= n[:, None]",
    "at[None, :] >= 0",
    "scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)
lie(
    "kernel_unscaled",
    "logits are not divided by the root of the width",
    "scale = math.log2(math.e) / math.sqrt(width)",
    "scale = math.log2(math.e)",
    "scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)

lie = kernel_lies("ragged.py", block=2)
lie(
    "kernel_sums_as_they_were",
    "a larger logit leaves the sum of powers before it as it was",
    "before = total * tl.exp2((high - base) * 1.4426950408889634)",
    "before = total",
    "ragged/test_laws.py::test_after_no_eviction_it_is_attention_over_the_whole",
)
lie(
    "kernel_sees_later",
    "a query sees new tokens after its own",
    "seen &= n[None, :] <= at[:, None]",
    "seen &= n[None, :] >= 0",
    "ragged/test_laws.py::test_after_no_eviction_it_is_attention_over_the_whole",
)

lie = kernel_lies("hex/compress.py")
RESTORED = "hex/compress/test_laws.py::test_what_is_restored_is_kcvt_of_the_remaining_entries"
lie(
    "kernel_kept_in_range",
    "kept values widen the range of their token",
    "\n                left = free(static + mark",
    "\n                left = mine | free(static + mark",
    RESTORED,
)
lie(
    "kernel_steps_of_the_first_row",
    "keys of every row are scaled as those of the first",
    "channel = prepared + head * WIDTH",
    "channel = prepared + h * WIDTH",
    RESTORED,
)

lie = kernel_lies("hex/attention.py")
WIDE = "hex/attention/test_laws.py::test_heads_of_a_models_width_read_what_is_restored"
lie(
    "kernel_past_the_residual",
    "what is beyond the residual buffer is a key of zeros",
    's * scale[None, :], -float("inf"))',
    "s * scale[None, :], 0.0)",
    WIDE,
)
lie(
    "kernel_residual_once",
    "a program of the residual buffer attends to its first 16 tokens alone",
    "for start in tl.range(first, tokens, stride,",
    "for start in tl.range(first, tl.minimum(first + 1, tokens), stride,",
    WIDE,
)
lie(
    "kernel_residual_of_the_first_row",
    "every head attends to the residual buffer of the first",
    "behind = head * residual * WIDTH",
    "behind = head * 0",
    WIDE,
)
lie(
    "kernel_unfaded",
    "what earlier splits found is not weighed anew",
    "o = o * fade + tl.sum(",
    "o = o + tl.sum(",
    WIDE,
)

lie = kernel_lies("hex/_entries.py")
lie(
    "kernel_kept_in_part",
    "of a token that is kept whole the first entries are added, as though the static mask's",
    "tl.where(whole, -1 - before, before)",
    "before",
    WIDE,
)
lie(
    "kernel_kept_over_codes",
    "a kept key is added to the minimum that its code stands for",
    "beyond -= widened(tl.load(minima + channel, mask=ok, other=0.0))",
    "beyond -= tl.zeros([32], tl.float32)",
    WIDE,
)

lie = kernel_lies("_device.py", block=1024)
lie(
    "kernel_cut_off",
    "what is rounded to bfloat16 is cut off",
    "even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16",
    "even = bits >> 16",
    "hubkv/refine/test_laws.py::test_refined_scores_are_rounded_once[torch.bfloat16]",
)
lie(
    "kernel_half_up",
    "what is rounded to bfloat16 goes up halfway",
    "even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16",
    "even = (bits + 0x8000) >> 16",
    "hubkv/discount/test_laws.py::test_a_discounted_score_is_rounded_once[torch.bfloat16]",
)

lie = kernel_lies("_tiles.py", block=32)
lie(
    "kernel_last_channel",
    "the last channel of a narrow row is left out",
    "there &= (d < WIDTH)[None, :]",
    "there &= (d < WIDTH - 1)[None, :]",
    "scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)
lie(
    "kernel_first_rows_again",
    "every tile has the rows of the first",
    "here = matrix + tl.cast(start, tl.int64) * WIDTH",
    "here = matrix + tl.cast(start * 0, tl.int64) * WIDTH",
    "scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)

"""Mutants of kernels: ties, ends of blocks, masks, scales, rounding, single blocks."""

from spec_tests.mutants.registry import register_kernel_mutants

mutant = register_kernel_mutants("hubkv/discount.py")
mutant("""
kernels/test_every_kernel.py::test_no_kernel_runs_where_gradients_are_asked_for[smd]
  kernel_without_gradients: the kernel runs whether gradients are asked for or not
  - @gradient_fallback(vector.smd)
  + 
test_vectors.py::test_vector[discount-a-plateau-and-a-row-end-in-one-hub-each]
  kernel_later_ties: a hub may have an equal on its left
  - hub &= mine > rival(
  + hub &= mine >= rival(
  kernel_past_the_row: the first score of the next row competes
  - .to(tl.uint32, bitcast=True) < tokens
  + .to(tl.uint32, bitcast=True) <= tokens
hubkv/discount/test_laws.py::test_protected_tokens_suppress_nothing
  kernel_protected_suppress: protected tokens suppress their neighbours
  - there &= tl.load(protected + j, mask=there, other=1) == 0
  + there &= j >= 0
""")

mutant = register_kernel_mutants("hubkv/refine.py")
mutant("""
hubkv/refine/test_laws.py::test_refinement_is_its_four_steps
  kernel_protected_moments: protected scores count in the statistics of their head
  - inside = aside == 0
  + inside = aside < 2
  kernel_refined_beside_what_is_aside: protected tokens suppress their neighbours
  - found = tl.where(aside != 0, -float("inf"), found)
  + found = tl.where(aside > 1, -float("inf"), found)
hubkv/refine/test_laws.py::test_refinement_is_its_four_steps[torch.float32]
  kernel_refined_later_ties: a hub may have an equal on its left
  - hub = (mine > largest[j - RADIUS])
  + hub = (mine >= largest[j - RADIUS])
  kernel_equal_blocks: the distance of block means is left out of the variance
  - (spreads * spreads + apart * apart) * counts
  + spreads * counts
""")

mutant = register_kernel_mutants("hubkv/refine.py", block=32)
mutant("""
hubkv/refine/test_laws.py::test_refinement_is_its_four_steps[torch.float32]
  kernel_refined_beyond_the_row: scores before the start of a row are read
  - there = (index >= -start) if WHOLE else (index >= -start) & (index < left)
  + there = index >= -start
""")

mutant = register_kernel_mutants("retain.py")
mutant("""
retain/test_laws.py::test_pools_are_filled_in_the_total_order
  kernel_one_tie_more: one tie too many is kept
  - tl.cumsum(equal, 0) <= room
  + tl.cumsum(equal, 0) <= room + 1
  kernel_ties_of_any_block: a block keeps all of its ties or none
  - tl.where(rank > whole, 0, tl.load(cuts + pool * 3 + 2))
  + tl.where(rank > whole, 0, BLOCK)
  kernel_ties_of_another_pool: the bin of a negative digit is negative
  - (last & (BINS - 1))
  + last % BINS
  kernel_negative_bits: negative scores are ordered as their bits are
  - bits = tl.where(bits < 0, -(bits & most), bits)
  + bits = tl.where(bits < 0, bits, bits)
retain/test_laws.py::test_few_values_of_half_precision_are_cut_exactly
  kernel_hidden_once: protected tokens compete
  - bits = tl.where(aside, most, bits)
  + bits = tl.where(aside, bits, bits)
  kernel_minus_zero_below: -0.0 ranks below 0.0
  - -(bits & most), bits)
  + ~(bits & most), bits)
""")

mutant = register_kernel_mutants("evict.py", block=2)
mutant("""
evict/test_laws.py::test_each_head_holds_its_kept_entries_in_position_order
  kernel_positions_in_blocks: positions count from the start of their block
  - (start + i).to(tl.int64)
  + i.to(tl.int64)
  kernel_rows_of_the_first_head: every head has the keys of the first head
  - keys + first * WIDTH
  + keys + start * WIDTH
  kernel_over_the_first: values of every block overwrite those of the first block
  - left_values + before * WIDTH
  + left_values
""")

mutant = register_kernel_mutants("graphkv/refine.py")
mutant("""
graphkv/refine/test_laws.py::test_a_graph_of_many_tokens_is_made_of_its_parts
  kernel_last_of_equals: of equal edges the last are chosen
  - rank = tied + tl.cumsum(equal.to(tl.int32), 0)
  + rank = tied + tl.cumsum(equal.to(tl.int32), 0, reverse=True)
  kernel_last_token_again: beyond the end, the last token is a candidate again
  - candidate = inside
  + candidate = t >= 0
        if graphs.barred
  kernel_weakest_subtile: a tile is as strong as its weakest sub-tile
  - tl.store(graphs.highest + here, tl.max(edge, 1), mask=present)
  + tl.store(graphs.highest + here, tl.min(edge, 1), mask=present)
  kernel_weakest_token: a sub-tile is as strong as its weakest token
  - clamped(tl.max(tl.reshape(edge,
  + clamped(tl.min(tl.reshape(edge,
  kernel_listed_and_passed_over: after each group of neighbours, the next group is skipped
  - mine & (i >= hit + HITS)
  + mine & (i >= hit + 2 * HITS)
  kernel_own_tile: a source can be the strongest token of its own sub-tile
  - candidate[None, :] & (t[None, :] != itself[:, None])
  + candidate[None, :] & (t[None, :] >= 0)
graphkv/refine/test_laws.py::test_every_graph_is_made_of_its_parts[layer-decay]
  kernel_own_neighbour: a source can be its own neighbour where its edges are recomputed
  - candidate = inside & (t != itself)
  + candidate = inside
graphkv/refine/test_laws.py::test_every_graph_takes_its_own_window_off_the_budget[layer]
  kernel_every_rank_acts: ranks beyond the sources of a graph also reach their neighbours
  - i = tl.where(acts & (edge > -float("inf")), i, -1)
  + i = tl.where(edge > -float("inf"), i, -1)
""")

mutant = register_kernel_mutants("hex/heavy_hitters.py", block=32)
mutant("""
scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out
  kernel_blind_to_itself: a query does not see its own token
  - seen &= n[None, :] <= position[:, None]
  + seen &= n[None, :] < position[:, None]
  kernel_drawn_from_before: a token gets mass from earlier queries
  - position[None, :] >= n[:, None]
  + position[None, :] >= 0
  kernel_unscaled: logits are not divided by the root of the width
  -  / math.sqrt(width)
  +  / 1
scorers/h2o/test_laws.py::test_a_weight_is_what_the_log_sum_exp_leaves_of_a_logit
  kernel_sum_of_base_two: the log-sum-exp is taken to base two
  - tl.exp2(above * 1.4426950408889634)
  + tl.exp2(above)
  kernel_sum_of_the_first_head: every head has the log-sum-exp of the first head
  - tl.load(sums + row + r, mask
  + tl.load(sums + r, mask
  kernel_sum_at_padding: the log-sum-exp at padding is used
  - there = (r < rows) & (position >= first)
  + there = r < rows
  kernel_sum_ignored: the log-sum-exp argument is ignored
  - given = log_sum_exp is not None
  + given, log_sum_exp = False, None
""")

mutant = register_kernel_mutants("ragged_attention.py", block=2)
mutant("""
ragged_attention/test_laws.py::test_after_no_eviction_it_is_attention_over_the_whole
  kernel_sums_as_they_were: the running sum is not rescaled when a larger logit comes
  - before = total * tl.exp2((high - base) * 1.4426950408889634)
  + before = total
  kernel_sees_later: a query sees new tokens after its own
  - seen &= n[None, :] <= position[:, None]
  + seen &= n[None, :] >= 0
  kernel_values_of_the_first_share: every part of a head has the values of the first part
  - left_values += (begin + first) * WIDTH
  + left_values += begin * WIDTH
ragged_attention/test_laws.py::test_the_log_sum_exp_is_that_of_every_logit_that_a_query_sees
  kernel_sum_of_the_new_tokens: the log-sum-exp counts the new tokens alone
  - tl.store(log_sums + row, high +
  + tl.store(log_sums + row, tl.load(sums + last * 2) +
""")

mutant = register_kernel_mutants("hex/compress.py")
mutant("""
hex/compress/test_laws.py::test_what_is_restored_is_kcvt_of_the_remaining_entries
  kernel_kept_in_range: kept values count in the range of their token
  - left = free(static + channel, mine)
  + left = mine | free(static + channel, mine)
            x = widened(tl.load(values + offset + channel, mask=mine, other=0.0))
            low =
  kernel_steps_of_the_first_row: keys of every row have the scales of the first row
  - here = head * WIDTH + channel
  + here = h * WIDTH + channel
""")

mutant = register_kernel_mutants("hex/attention.py", programs=1)
mutant("""
hex/attention/test_laws.py::test_attention_to_a_cache_merges_with_attention_to_other_tokens
  kernel_sum_to_base_two: the log-sum-exp is a logarithm to base two
  - [..., :group] * log(2)
  + [..., :group] * 1
""")

mutant = register_kernel_mutants("hex/_codes.py", programs=1)
mutant("""
hex/attention/test_laws.py::test_heads_of_a_models_width_read_what_is_restored
  kernel_half_queries: queries and weights are rounded to half precision
  - return near, (x - near.to(tl.float32)).to(tl.float16)
  + return near, (x - x).to(tl.float16)
  kernel_codes_unfaded: the sum over codes is not rescaled with a new offset
  - faded += (o[i] * fade[None, :],)
  + faded += (o[i],)
  kernel_minima_unfaded: the sum over minima is not rescaled with a new offset
  - minima *= fade
  + minima *= 1.0
""")

mutant = register_kernel_mutants("hex/_decode_kernels.py", programs=1)
mutant("""
hex/attention/test_laws.py::test_heads_of_a_models_width_read_what_is_restored
  kernel_past_the_tile: padding behind the tokens of a tile counts
  - (token < tokens)[:, None], x, -float("inf"))
  + (token < 96)[:, None], x, -float("inf"))
  kernel_scales_of_the_first_span: codes of every span have the steps and minima of the first one
  - tl.load(tiles + 4 * tile + SPAN) * heads
  + tl.load(tiles + 4 * tile + SPAN) * 0
  kernel_past_the_residual: keys beyond the residual buffer count as zeros
  - s * scale, -float("inf"))
  + s * scale, 0.0)
  kernel_residual_once: a program reads only its first 16 tokens of the residual buffer
  - for start in range(16 * tl.program_id(1), tokens, 16 * tl.num_programs(1)):
  + for start in range(16 * tl.program_id(1), 16 * tl.program_id(1) + 1, 16):
  kernel_residual_of_the_first_row: every head has the residual buffer of the first head
  - residual.residual_keys + head * room * WIDTH
  + residual.residual_keys + head * 0
hex/attention/test_laws.py::test_what_comes_last_may_weigh_most
  kernel_unfaded: results of earlier splits are not rescaled
  - o = o * fade + tl.sum(
  + o = o + tl.sum(
""")

mutant = register_kernel_mutants("hex/_sparse_entries.py", programs=1)
mutant("""
hex/attention/test_laws.py::test_heads_of_a_models_width_read_what_is_restored
  kernel_kept_unfaded: the sum over kept values is not rescaled with a new offset
  - before = tl.load(every) * tl.load(fades + g)[None, :]
  + before = tl.load(every)
  kernel_kept_in_part: of a token that is kept whole only the first entries are added
  - tl.where(whole, -1 - before, before)
  + before
  kernel_kept_over_codes: a kept key is added to the minimum of its code
  - beyond -= widened(tl.load(minima + channel, mask=ok, other=0.0))
  + beyond -= tl.zeros([32], tl.float32)
""")

mutant = register_kernel_mutants("_numerics.py", block=1024)
mutant("""
hubkv/refine/test_laws.py::test_refined_scores_are_rounded_once[torch.bfloat16]
  kernel_cut_off: numbers are truncated to bfloat16
  - even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
  + even = bits >> 16
hubkv/discount/test_laws.py::test_a_product_halfway_between_two_numbers_goes_to_the_even_one[torch.bfloat16]
  kernel_half_up: halves are rounded up to bfloat16
  - even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
  + even = (bits + 0x8000) >> 16
""")

mutant = register_kernel_mutants("_attention_common.py", block=32)
mutant("""
scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out
  kernel_last_channel: the last channel of a narrow row is left out
  - there &= (d < WIDTH)[None, :]
  + there &= (d < WIDTH - 1)[None, :]
  kernel_first_rows_again: every tile has the rows of the first tile
  - here = matrix + tl.cast(start, tl.int64) * WIDTH
  + here = matrix + tl.cast(start * 0, tl.int64) * WIDTH
""")

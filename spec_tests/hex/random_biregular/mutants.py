"""Mutants of pairing half-edges, and of swapping edges."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/random_biregular")
mutant("""
test_the_channels_share_the_half_edges_evenly
  draw_with_replacement: channels are drawn independently, so that their degrees vary
  - paired = generator.permutation(half_edges)
  + paired = generator.randint(0, channels, len(half_edges), dtype=np.int64)
test_every_half_edge_of_a_token_meets_every_channel_equally_often
  circulant_pairing: every seed gives the same circulant graph, which is regular but not random
  - paired = generator.permutation(half_edges)
  + paired = np.arange(tokens * token_degree) % channels
test_a_mask_loses_about_half_the_product_of_the_degrees_less_one
  repaired_pairing: whole edges are drawn without repetition, not half-edges
  -     return torch.from_numpy(paired).reshape(tokens, token_degree)
  +     pairs = torch.from_numpy(paired).reshape(tokens, token_degree)
  +     possible = 2 * token_degree <= channels
  +     return double_edge_swaps(pairs, channels, seed, draw) if possible else pairs
test_a_seed_and_a_draw_name_a_pairing_and_swaps
  same_draw_again: the number of the draw is ignored, so that a rejected graph is drawn again
  - RandomState([seed, draw, 0])
  + RandomState([seed, 0, 0])
  unseeded_pairing: the pairing ignores the seed
  - RandomState([seed, draw, 0])
  + RandomState()
  unseeded_swaps: the swaps of repeated edges ignore the seed
  - RandomState([seed, draw, 1])
  + RandomState()
  unseeded_connecting: the swaps that connect components ignore the seed
  - RandomState([seed, draw, 4])
  + RandomState()
test_swaps_leave_a_simple_graph_with_the_same_degrees
  move_repeated_edges: repeated edges move to a free channel, which changes the degrees of channels
  -     generator = np.random.RandomState([seed, draw, 1])
  +     free = [[c for c in range(channels) if c not in row] for row in pairs.tolist()]
  +     both = zip(pairs.tolist(), free, strict=True)
  +     moved = [sorted({*row, *others[: len(row) - len({*row})]}) for row, others in both]
  +     return torch.tensor(moved, dtype=torch.int64).reshape(pairs.shape)
test_swaps_change_few_edges
  reconstruct_globally: the whole graph is drawn again instead of the repeated edges
        generator = np.random.RandomState([seed, draw, 1])
  +     shuffled = generator.permutation(pairs.flatten().numpy())
  +     pairs = torch.from_numpy(shuffled).reshape(pairs.shape)
test_swaps_connect_a_graph_as_far_as_its_degrees_allow
  leave_the_pieces: components stay disconnected
  - generator = np.random.RandomState([seed, draw, 4])
  + return pairs.sort(1).values
test_any_edge_of_a_ring_may_be_the_one_that_swaps
  swap_the_first_edges: the first edges in the order of tokens are swapped, whatever the seed
  - order = generator.permutation(len(edges)).tolist()
  + order = list(range(len(edges)))
test_two_edges_change_for_each_component_that_joins_another
  pair_again: the whole graph is paired again until it is connected
  -         rows[e // degree][e % degree] = edges[f][1]
  -         rows[f // degree][f % degree] = edges[e][1]
  +         rows = generator.permutation(pairs.flatten()).reshape(pairs.shape).tolist()
  swap_bridges_too: edges outside cycles are swapped too
  - e, f = redundant[0], apart[0]
  + e, f = order[0], next(f for f in order if component[f] is not component[order[0]])
""")

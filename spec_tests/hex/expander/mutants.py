"""Mutants of degrees and expander masks."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/expander")
mutant("""
hex/spectrum/test_laws.py::test_85_tiles_are_three_times_over_the_bound_of_the_prompt_they_make
  fresh_tiles: each tile is drawn anew: the graph is as good, but not tiled
  - return expander_mask(block, channels, density, seed, near).repeat(tokens // block, 1)
  + seeds = [(seed + i) % 2**32 for i in range(tokens // block)]
  +         return torch.cat([expander_mask(block, channels, density, s, near) for s in seeds])
test_a_seed_names_a_mask
  unseeded_graphs: the seed is ignored: every call draws anew
  - mask = _simple_graph(tokens, channels, token_degree, seed, draw)
  + from random import randrange
  +         mask = _simple_graph(tokens, channels, token_degree, randrange(2**32), draw)
  one_graph_for_all_seeds: every seed gives the same graph
  - mask = _simple_graph(tokens, channels, token_degree, seed, draw)
  + mask = _simple_graph(tokens, channels, token_degree, 0, draw)
test_every_entry_is_kept_equally_often
  dense_band: above half density, adjacent entries are left out
  - dense = 2 * token_degree > channels
  + if 2 * token_degree > channels:
  +         start = torch.arange(tokens)[:, None] * channels // tokens
  +         return (torch.arange(channels) - start) % channels < token_degree
  +     dense = 2 * token_degree > channels
test_no_seed_gives_a_graph_over_the_bound
  no_filter: the first graph is taken, whatever its spectrum
  - if not certified or is_ramanujan(mask):
  + if True:
  one_more_draw: the number of draws is one too large
  - return Expander(mask, draw + 1)
  + return Expander(mask, draw + 2)
  band_of_neighbours: tokens keep adjacent channels: regular and connected, but no expander
  - mask = _simple_graph(tokens, channels, token_degree, seed, draw)
  + start = torch.arange(tokens)[:, None] * channels // tokens
  +         mask = (torch.arange(channels) - start) % channels < token_degree
  +         return Expander(mask, draw + 1)
  +         mask = _simple_graph(tokens, channels, token_degree, seed, draw)
test_a_feasible_density_gives_the_certified_mask_whether_near_is_allowed_or_not
  near_is_never_certified: near masks are never certified, even if the density is feasible
  - certified = not uneven and
  + certified = not near and not uneven and
test_a_near_mask_hangs_together_where_its_degrees_allow
  near_in_pieces: near masks stay disconnected where a degree is below 3
  -     return biadjacency(connecting_swaps(pairs, channels, seed, draw), channels)
  +     if min(token_degree, tokens * token_degree // channels) >= 3:
  +         pairs = connecting_swaps(pairs, channels, seed, draw)
  +     return biadjacency(pairs, channels)
hex/expander/test_table5.py::test_the_printed_second_eigenvalue_is_one_of_ours[-960
  equal_halves: a long prompt consists of two equal halves
  +     if tokens >= 960 and tokens % 2 == 0:
  +         half = random_expander(tokens // 2, channels, token_degree, seed, near)
  +         return half._replace(mask=half.mask.repeat(2, 1))
        for draw in range(DRAWS):
test_a_near_mask_rounds_the_token_degree_and_spreads_the_channels
  tokens_choose_freely: token degrees are exact, channel degrees are arbitrary
  -     return random_expander(tokens, channels, degrees.token, seed, near).mask
  +     import torch
  +     keys = torch.rand(tokens, channels, generator=torch.Generator().manual_seed(seed))
  +     return keys.argsort(1).argsort(1) < degrees.token
  near_rounds_half_up: a half is rounded up, not to the even degree
  - round(share * channels)
  + floor(share * channels + Fraction(1, 2))
test_a_long_prompt_has_one_graph_under_the_bound
  always_tiled: one block mask tiled along every prompt
  -     if tile:
  +     if tile or (tokens > block and tokens % block == 0):
  +         near = near or (density * block) % 1 > 0
test_densities_of_the_paper_that_no_graph_has_are_refused
  round_the_degrees: degrees are rounded where they must be refused
  -     if near:
  +     if True:
hex/cache/test_laws.py::test_each_span_has_the_mask_of_its_length_and_of_the_seed
  seedless_prompt: every seed gives the same mask
  - how = config.seed, config.near
  + how = 0, config.near
""")

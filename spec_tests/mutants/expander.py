"""Mutants of HEX's expanders."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "expander_mask",
    "tiles are drawn one by one: as good a graph, and no tiling",
    killer="hex/test_spectrum.py::"
    "test_85_tiles_are_three_times_over_the_bound_of_the_prompt_they_make",
)
def fresh_tiles(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Draw a block for every tile."""
    if not tile or tokens % block or tokens == block:
        return reference.expander_mask(tokens, channels, density, seed, near, tile, block)
    masks = [
        reference.expander_mask(block, channels, density, (seed + i) % 2**32, near)
        for i in range(tokens // block)
    ]
    return torch.cat(masks)


@mutant(
    "random_expander",
    "the first graph is taken, whatever its spectrum",
    killer="hex/test_expander.py::test_the_filter_needs_more_than_one_draw_now_and_then",
)
def no_filter(tokens, channels, token_degree, seed=0, near=False):
    """Take the first simple and connected graph."""
    if near or 2 * token_degree > channels:
        return reference.random_expander(tokens, channels, token_degree, seed, near)
    pairs = reference.half_edge_pairing(tokens, channels, token_degree, seed)
    pairs = reference.double_edge_swaps(pairs, channels, seed)
    pairs = reference.connecting_swaps(pairs, channels, seed)
    return reference.Expander(reference.biadjacency(pairs, channels), 1)


@mutant(
    "expander_mask",
    "near masks are never certified, though the density is feasible",
    killer="hex/test_expander.py::"
    "test_a_feasible_density_gives_the_certified_mask_whether_near_is_allowed_or_not",
)
def near_is_never_certified(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Take the first simple and connected graph."""
    if not near or tile or density > 1 / 2:
        return reference.expander_mask(tokens, channels, density, seed, near, tile, block)
    degree = reference.biregular_degrees(tokens, channels, density, near).token
    return no_filter(tokens, channels, degree, seed).mask


@mutant(
    "expander_mask",
    "near masks stay in pieces where a degree is below 3",
    killer="hex/test_expander.py::test_a_near_mask_hangs_together_where_its_degrees_allow",
)
def near_in_pieces(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Leave out the swaps that connect."""
    degree = reference.biregular_degrees(tokens, channels, density, near).token
    if not near or tile or 2 * degree > channels:
        return reference.expander_mask(tokens, channels, density, seed, near, tile, block)
    pairs = reference.half_edge_pairing(tokens, channels, degree, seed)
    return reference.biadjacency(reference.double_edge_swaps(pairs, channels, seed), channels)


@mutant(
    "random_expander",
    "the number of draws is not counted",
    killer="hex/test_expander.py::test_the_mask_is_the_first_draw_that_passes",
)
def one_more_draw(tokens, channels, token_degree, seed=0, near=False):
    """Count from one too many."""
    found = reference.random_expander(tokens, channels, token_degree, seed, near)
    return found._replace(draws=found.draws + 1)


@mutant(
    "random_expander",
    "one fixed graph for every seed",
    killer="hex/test_expander.py::test_every_entry_is_kept_equally_often",
)
def one_graph_for_all_seeds(tokens, channels, token_degree, seed=0, near=False):
    """Forget the seed."""
    return reference.random_expander(tokens, channels, token_degree, 0, near)


@mutant(
    "random_expander",
    "long prompts have two equal halves",
    killer="hex/test_table5.py::test_the_printed_second_eigenvalue_is_one_of_ours[-960",
)
def equal_halves(tokens, channels, token_degree, seed=0, near=False):
    """Draw half of it."""
    if tokens < 480 or tokens % 2:
        return reference.random_expander(tokens, channels, token_degree, seed, near)
    half = reference.random_expander(tokens // 2, channels, token_degree, seed, near)
    return half._replace(mask=half.mask.repeat(2, 1))


@mutant(
    "expander_mask",
    "exact token degrees and any channel degrees",
    killer="hex/test_expander.py::test_a_near_mask_rounds_the_token_degree_and_spreads_the_channels",
)
def tokens_choose_freely(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Keep the same number of random channels for each token."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(tokens, channels, generator=generator)
    kept = keys.argsort(1)[:, : round(density * channels)]
    return torch.zeros(tokens, channels, dtype=torch.bool).scatter_(1, kept, True)


@mutant(
    "expander_mask",
    "one block mask tiled along every prompt",
    killer="test_vectors.py::test_vector[expander-prompt-mask-seed-7",
)
def always_tiled(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Tile whatever can be tiled."""
    tile = tile or (tokens % block == 0 and density * block >= 3)
    near = near or (density * block) % 1 > 0
    return reference.expander_mask(tokens, channels, density, seed, near, tile, block)


@mutant(
    "biregular_degrees",
    "degrees are rounded in place of refused",
    killer="hex/test_expander.py::test_densities_of_the_paper_that_no_graph_has_are_refused",
)
def round_the_degrees(tokens, channels, density, near=False):
    """Take near degrees always."""
    return reference.biregular_degrees(tokens, channels, density, near=True)

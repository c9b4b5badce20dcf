"""Mutants of HEX's expanders."""

import math

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "half_edge_pairing",
    "channels are drawn independently, so their degrees vary",
    killer="hex/test_pairing.py::test_the_channels_share_the_half_edges_evenly",
)
def draw_with_replacement(tokens, channels, token_degree, seed=0, draw=0):
    """Draw a channel for each half-edge."""
    generator = torch.Generator().manual_seed(1000 * seed + draw)
    return torch.randint(channels, (tokens, token_degree), generator=generator)


@mutant(
    "half_edge_pairing",
    "every seed gives the same circulant: regular, not random",
    killer="hex/test_pairing.py::test_every_half_edge_of_a_token_meets_every_channel_equally_often",
)
def circulant_pairing(tokens, channels, token_degree, seed=0, draw=0):
    """Deal the channels out in turn."""
    dealt = torch.arange(tokens * token_degree) % channels
    return dealt.reshape(tokens, token_degree)


@mutant(
    "half_edge_pairing",
    "the pairing is of whole edges, none of which repeats",
    killer="hex/test_pairing.py::test_a_mask_loses_about_half_the_product_of_the_degrees_less_one",
)
def repaired_pairing(tokens, channels, token_degree, seed=0, draw=0):
    """Swap at once."""
    pairs = reference.half_edge_pairing(tokens, channels, token_degree, seed, draw)
    possible = 2 * token_degree <= channels
    return reference.double_edge_swaps(pairs, channels, seed, draw) if possible else pairs


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
    "half_edge_pairing",
    "the number of the draw is ignored: a rejected graph is drawn again for ever",
    killer="hex/test_pairing.py::test_seeds_and_draws_name_different_pairings",
)
def same_draw_again(tokens, channels, token_degree, seed=0, draw=0):
    """Use the seed alone."""
    return reference.half_edge_pairing(tokens, channels, token_degree, seed)


@mutant(
    "double_edge_swaps",
    "repeated edges are moved to a free channel: channels lose their degree",
    killer="hex/test_pairing.py::test_swaps_leave_a_simple_graph_with_the_same_degrees",
)
def move_repeated_edges(pairs, channels, seed=0, draw=0):
    """Take the next channel that the token does not have."""
    rows = []
    for row in pairs.tolist():
        free = [c for c in range(channels) if c not in row]
        spare = len(row) - len(set(row))
        rows.append(sorted({*row, *free[:spare]}))
    return torch.tensor(rows, dtype=torch.int64).reshape(pairs.shape)


@mutant(
    "double_edge_swaps",
    "the whole graph is drawn again in place of the repeated edges",
    killer="hex/test_pairing.py::test_swaps_change_few_edges",
)
def reconstruct_globally(pairs, channels, seed=0, draw=0):
    """Shuffle all channels, then swap."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = pairs.flatten()[torch.randperm(pairs.numel(), generator=generator)]
    return reference.double_edge_swaps(shuffled.reshape(pairs.shape), channels, seed, draw)


@mutant(
    "ramanujan_bound",
    "the balanced bound at the mean degree",
    killer="test_vectors.py::test_vector[expander-bound-of-the-block-mask",
)
def bound_at_the_mean_degree(token_degree, channel_degree):
    """Average the degrees first."""
    return 2 * math.sqrt((token_degree + channel_degree) / 2 - 1)


@mutant(
    "second_singular_value",
    "the first singular value is taken out wherever it occurs",
    killer="hex/test_spectrum.py::test_the_first_singular_value_occurs_once_for_each_component",
)
def skip_repeated_values(mask):
    """Look for the next smaller value."""
    values = torch.linalg.svdvals(mask.double())
    return next((v.item() for v in values if v < values[0] - 1 / 8), 0.0)


@mutant(
    "second_singular_value",
    "too few steps of power iteration",
    killer="hex/test_spectrum.py::test_a_large_mask_has_the_second_singular_value_of_a_dense_solver",
)
def stop_early(mask):
    """Iterate twice from a fixed start."""
    if min(mask.shape) < 2:
        return 0.0
    matrix = mask.double() - mask.double().mean()
    x = torch.linspace(-1, 1, mask.shape[1], dtype=torch.float64)
    for _ in range(2):
        x = matrix.T @ (matrix @ x)
        x = x / x.norm().clamp(min=1 / 1024)
    return (matrix @ x).norm().item()


@mutant(
    "second_singular_value",
    "of a constant mask the first singular value is reported",
    killer="hex/test_spectrum.py::"
    "test_a_large_mask_of_nothing_or_everything_has_no_second_singular_value",
)
def first_if_alone(mask):
    """Look for the largest value that is not 0."""
    if mask.numel() and mask.all():
        return float(mask.numel()) ** 0.5
    return reference.second_singular_value(mask)


@mutant(
    "is_ramanujan",
    "only the degrees and connectedness are looked at",
    killer="hex/test_spectrum.py::test_a_tiled_prompt_is_no_ramanujan_graph",
)
def connected_is_enough(mask):
    """Forget the spectrum."""
    regular = len(mask.sum(0).unique()) == len(mask.sum(1).unique()) == 1
    return regular and reference.is_connected(mask) and int(mask[0].sum()) >= 3


@mutant(
    "is_ramanujan",
    "degrees below 3 are let through",
    killer="hex/test_spectrum.py::test_degrees_below_three_are_not_ramanujan[",
)
def any_degree_will_do(mask):
    """Compare with the bound alone."""
    degrees = int(mask[0].sum()), int(mask[:, 0].sum())
    if min(degrees) < 1:
        return True
    return reference.second_singular_value(mask) <= reference.ramanujan_bound(*degrees) + 1 / 1024


@mutant(
    "random_expander",
    "the first graph is taken, whatever its spectrum",
    killer="hex/test_expander.py::test_the_filter_needs_more_than_one_draw_now_and_then",
)
def no_filter(tokens, channels, token_degree, seed=0, near=False):
    """Ask for a near graph, which only has to be connected."""
    return reference.random_expander(tokens, channels, token_degree, seed, near=True)


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


@mutant(
    "cheeger_constant",
    "the boundary of a set counts its edges, not its vertices",
    killer="hex/test_expansion.py::test_rings_and_complete_graphs_have_the_known_constants",
)
def edge_boundary(adjacency):
    """Divide the conductance's cut by the size."""
    return reference.conductance(adjacency) * int(adjacency[0].sum())


@mutant(
    "lift",
    "every edge is replaced by the same permutation: copies of the base side by side",
    killer="hex/test_covering.py::test_an_edge_follows_its_permutation",
)
def parallel_copies(mask, permutations):
    """Use the identity for every edge."""
    identity = torch.arange(permutations.shape[1]).expand_as(permutations)
    return reference.lift(mask, identity.contiguous())


@mutant(
    "ramanujan_lift",
    "the base is copied, which falls apart",
    killer="hex/test_covering.py::test_an_accepted_covering_is_ramanujan",
)
def copies_are_a_covering(mask, sheets=2, seed=0):
    """Return the trivial covering."""
    identity = torch.arange(sheets).repeat(int(mask.sum()), 1)
    return reference.Expander(reference.lift(mask, identity), 1)


@mutant(
    "lps_mask",
    "a random regular graph of the same size",
    killer="hex/test_explicit.py::test_the_graph_looks_the_same_from_every_vertex",
)
def random_in_place_of_explicit(prime, modulus):
    """Draw it."""
    vertices = modulus * (modulus**2 - 1) // 2
    pairs = reference.half_edge_pairing(vertices, vertices, prime + 1)
    return reference.biadjacency(reference.double_edge_swaps(pairs, vertices), vertices)


@mutant(
    "subtile_permutations",
    "the carry of the multiplication is not folded back: no shift",
    killer="test_vectors.py::test_vector[expander-a-code-unfolds",
)
def affine_permutation(codes, width=128):
    """Leave the exclusive or out."""
    y = (codes[..., None] & 255) * torch.arange(width) + (codes[..., None] >> 8 & 255)
    return ((codes[..., None] >> 16 & 255) * y + (codes[..., None] >> 24)) % width


@mutant(
    "to_csr",
    "rows without entries are skipped",
    killer="hex/test_csr.py::test_rows_hold_their_columns_in_order",
)
def skip_empty_rows(mask):
    """Keep the rows that have something."""
    return reference.to_csr(mask[mask.any(1)] if mask.numel() else mask)

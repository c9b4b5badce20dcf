"""Mutants of drawing and mending pairings."""

from contextlib import suppress

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
    "connecting_swaps",
    "pieces stay pieces: the graph would be drawn anew",
    killer="hex/test_pairing.py::test_swaps_connect_a_graph_as_far_as_its_degrees_allow",
)
def leave_the_pieces(pairs, channels, seed=0, draw=0):
    """Sort and return."""
    return pairs.sort(1).values


@mutant(
    "connecting_swaps",
    "the whole graph is paired again until it hangs together",
    killer="hex/test_pairing.py::test_two_edges_change_for_each_component_that_joins_another",
)
def pair_again(pairs, channels, seed=0, draw=0):
    """Shuffle all channels, mend, and try ten times."""
    joined = reference.connecting_swaps(pairs, channels, seed, draw)
    if 2 * pairs.shape[1] > channels or pairs.equal(joined):
        return joined
    generator = torch.Generator().manual_seed(seed)
    for _ in range(10):
        shuffled = pairs.flatten()[torch.randperm(pairs.numel(), generator=generator)]
        with suppress(RuntimeError):
            mended = reference.double_edge_swaps(shuffled.reshape(pairs.shape), channels, seed)
            if reference.is_connected(reference.biadjacency(mended, channels)):
                return mended
    return joined


@mutant(
    "connecting_swaps",
    "an edge is taken from any piece, whether or not on a cycle",
    killer="hex/test_pairing.py::test_swaps_connect_a_graph_as_far_as_its_degrees_allow",
)
def swap_bridges_too(pairs, channels, seed=0, draw=0):
    """Swap the first edges of the first two tokens that share no component."""
    mask = reference.biadjacency(pairs, channels).double()
    near = torch.matrix_power(mask @ mask.T, len(mask)) > 0
    rows = pairs.clone()
    for token in range(1, len(rows) if rows.numel() else 0):
        if not near[0, token]:
            rows[[0, token], 0] = rows[[token, 0], 0]
            break
    return rows.sort(1).values


@mutant(
    "connecting_swaps",
    "the first edges in the order of tokens swap, whatever the seed",
    killer="hex/test_pairing.py::test_any_edge_of_a_ring_may_be_the_one_that_swaps",
)
def swap_the_first_edges(pairs, channels, seed=0, draw=0):
    """Forget the seed."""
    return reference.connecting_swaps(pairs, channels)

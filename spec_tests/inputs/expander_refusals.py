"""What HEX's expander functions are given, and what they refuse beyond their signatures."""

import torch

from spec_tests.draw import Refusal

ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
full = ~torch.eye(4, dtype=torch.bool)
bad_pairs = [
    Refusal("pairs", lambda pairs: pairs - 1, ValueError, "in [0, 2]"),
    Refusal("pairs", lambda pairs: pairs + 1, ValueError, "in [0, 2]"),
]
bad_graph = [
    Refusal("adjacency", torch.ones(4, 4).triu() > 0, ValueError, "symmetric"),
    Refusal("adjacency", lambda graph: graph[:, :3], ValueError, "square"),
]
too_few = Refusal("adjacency", lambda graph: graph[:1, :1], ValueError, "vertices >= 2")
wrong_number = [
    Refusal("adjacency", lambda graph: graph[:1, :1], ValueError, "in [2, 20]"),
    Refusal("adjacency", torch.ones(21, 21) > 0, ValueError, "in [2, 20]"),
]
bad_permutations = [
    Refusal("permutations", lambda rows: rows + 1, ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[:, :0], ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[1:], ValueError, "shape (12, 2)"),
]
infeasible = Refusal("density", 0.3, ValueError, "nearest feasible: 0.25 and 0.5")
sheets = torch.tensor([[0, 1]] * 12)

REFUSALS = dict(
    half_edge_pairing=(
        dict(tokens=3, channels=3, token_degree=2, seed=0, draw=0),
        [Refusal("token_degree", 4, ValueError, "in [0, 3]")],
    ),
    double_edge_swaps=(dict(pairs=ring, channels=3, seed=0, draw=0), bad_pairs),
    connecting_swaps=(dict(pairs=ring, channels=3, seed=0, draw=0), bad_pairs),
    biadjacency=(dict(pairs=ring, channels=3), bad_pairs),
    spectral_gap=(
        dict(adjacency=full, bipartite=False, two_sided=False),
        [*bad_graph, too_few],
    ),
    vertex_expansion=(
        dict(adjacency=full, subset=full[0]),
        [
            *bad_graph,
            Refusal("subset", lambda subset: subset & False, ValueError, "a member"),
        ],
    ),
    cheeger_constant=(dict(adjacency=full), [*bad_graph, *wrong_number]),
    conductance=(dict(adjacency=full), [*bad_graph, *wrong_number]),
    biregular_degrees=(dict(tokens=12, channels=16, density=0.25, near=False), [infeasible]),
    random_expander=(
        dict(tokens=12, channels=12, token_degree=4, seed=0, near=False),
        [
            Refusal("token_degree", 2, ValueError, "in [3, 12]"),
            Refusal("token_degree", 13, ValueError, "in [3, 12]"),
            Refusal("channels", 5, ValueError, "whole degree"),
            Refusal("tokens", 7, ValueError, "whole degree"),
        ],
    ),
    expander_mask=(
        dict(tokens=12, channels=16, density=0.25, seed=0, near=False, tile=True, block=12),
        [infeasible, Refusal("tokens", 13, ValueError, "multiple of block = 12")],
    ),
    lift=(dict(mask=full, permutations=sheets), bad_permutations),
    new_singular_value=(dict(mask=full, permutations=sheets), bad_permutations),
    ramanujan_lift=(
        dict(mask=full, sheets=2, seed=0),
        [Refusal("mask", lambda mask: mask & mask.flip(0), ValueError, "Ramanujan")],
    ),
    from_csr=(
        dict(offsets=torch.tensor([0, 1, 3]), columns=torch.tensor([2, 0, 1]), channels=3),
        [
            Refusal("offsets", lambda offsets: offsets.flip(0), ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:2], ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:0], ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[None], ValueError, "1 axis"),
            Refusal("columns", lambda columns: columns + 1, ValueError, "in [0, 2]"),
            Refusal("columns", lambda columns: columns[None], ValueError, "1 axis"),
        ],
    ),
)

GOOD = dict(
    ramanujan_bound=dict(token_degree=3, channel_degree=3),
    second_singular_value=dict(mask=full),
    is_ramanujan=dict(mask=full),
    bipartite_adjacency=dict(mask=full),
    component_count=dict(mask=full),
    is_connected=dict(mask=full),
    to_csr=dict(mask=full),
)

"""What HEX's expander functions refuse."""

import torch

from spec_tests.draw import Refusal, numbers

bad_seed = [
    Refusal("seed", -1, ValueError, "in [0, 4294967295]"),
    Refusal("seed", 2**32, ValueError, "in [0, 4294967295]"),
    Refusal("seed", 0.5, TypeError, "integer"),
]
bad_draw = [Refusal("draw", -1, ValueError, "in [0, 4294967295]")]
bad_sizes = [
    Refusal("tokens", 0, ValueError, ">= 1"),
    Refusal("tokens", 2.0, TypeError, "integer"),
    Refusal("channels", 0, ValueError, ">= 1"),
]
ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
full = ~torch.eye(4, dtype=torch.bool)
bad_pairs = [
    Refusal("pairs", numbers, TypeError, "int64"),
    Refusal("pairs", lambda pairs: pairs - 1, ValueError, "in [0, 2]"),
    Refusal("pairs", lambda pairs: pairs + 1, ValueError, "in [0, 2]"),
    Refusal("pairs", lambda pairs: pairs[None], ValueError, "2 axes"),
    Refusal("channels", 0, ValueError, ">= 1"),
]
bad_matrix = [
    Refusal("mask", numbers, TypeError, "boolean"),
    Refusal("mask", lambda mask: mask[0], ValueError, "2 axes"),
]
bad_graph = [
    Refusal("adjacency", numbers, TypeError, "boolean"),
    Refusal("adjacency", torch.ones(3, 3).triu() > 0, ValueError, "symmetric"),
    Refusal("adjacency", lambda graph: graph[:, :3], ValueError, "symmetric"),
    Refusal("adjacency", lambda graph: graph[:1, :1], ValueError, "vertices"),
]
too_many = Refusal("adjacency", torch.ones(21, 21) > 0, ValueError, "in [2, 20]")
bad_permutations = [
    Refusal("permutations", numbers, TypeError, "int64"),
    Refusal("permutations", lambda rows: rows + 1, ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[None], ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[:, :0], ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[1:], ValueError, "shape"),
]
bad_density = [
    Refusal("density", 0.3, ValueError, "nearest feasible: 0.25 and 0.5"),
    Refusal("density", 1.5, ValueError, "in [0, 1]"),
    Refusal("density", float("nan"), ValueError, "in [0, 1]"),
]
sheets = torch.tensor([[0, 1]] * 12)

REFUSALS = dict(
    half_edge_pairing=(
        dict(tokens=3, channels=3, token_degree=2, seed=0, draw=0),
        [
            Refusal("tokens", -1, ValueError, ">= 0"),
            Refusal("channels", 0, ValueError, ">= 1"),
            Refusal("token_degree", 4, ValueError, "in [0, 3]"),
            *bad_seed,
            *bad_draw,
        ],
    ),
    double_edge_swaps=(
        dict(pairs=ring, channels=3, seed=0, draw=0),
        [*bad_pairs, *bad_seed, *bad_draw],
    ),
    connecting_swaps=(
        dict(pairs=ring, channels=3, seed=0, draw=0),
        [*bad_pairs, *bad_seed, *bad_draw],
    ),
    biadjacency=(dict(pairs=ring, channels=3), bad_pairs),
    ramanujan_bound=(
        dict(token_degree=3, channel_degree=3),
        [
            Refusal("token_degree", 0, ValueError, ">= 1"),
            Refusal("channel_degree", 0, ValueError, ">= 1"),
            Refusal("channel_degree", 3.0, TypeError, "integer"),
        ],
    ),
    second_singular_value=(dict(mask=full), bad_matrix),
    is_ramanujan=(dict(mask=full), bad_matrix),
    bipartite_adjacency=(dict(mask=full), bad_matrix),
    component_count=(dict(mask=full), bad_matrix),
    is_connected=(dict(mask=full), bad_matrix),
    spectral_gap=(dict(adjacency=full, bipartite=False, two_sided=False), bad_graph),
    vertex_expansion=(
        dict(adjacency=full, subset=full[0]),
        [
            *bad_graph,
            Refusal("subset", numbers, TypeError, "boolean"),
            Refusal("subset", lambda subset: subset[:3], ValueError, "shape"),
            Refusal("subset", lambda subset: subset & False, ValueError, "a member"),
        ],
    ),
    cheeger_constant=(dict(adjacency=full), [*bad_graph, too_many]),
    conductance=(dict(adjacency=full), [*bad_graph, too_many]),
    biregular_degrees=(
        dict(tokens=12, channels=16, density=0.25, near=False),
        [*bad_sizes, *bad_density],
    ),
    random_expander=(
        dict(tokens=12, channels=12, token_degree=4, seed=0, near=False),
        [
            *bad_sizes,
            *bad_seed,
            Refusal("token_degree", 2, ValueError, "in [3, 12]"),
            Refusal("token_degree", 13, ValueError, "in [3, 12]"),
            Refusal("channels", 5, ValueError, "whole degree"),
            Refusal("tokens", 7, ValueError, "whole degree"),
        ],
    ),
    expander_mask=(
        dict(tokens=12, channels=16, density=0.25, seed=0, near=False, tile=True, block=12),
        [
            *bad_sizes,
            *bad_density,
            *bad_seed,
            Refusal("tokens", 13, ValueError, "multiple of block = 12"),
            Refusal("block", 0, ValueError, ">= 1"),
        ],
    ),
    lift=(dict(mask=full, permutations=sheets), [*bad_matrix, *bad_permutations]),
    new_singular_value=(dict(mask=full, permutations=sheets), [*bad_matrix, *bad_permutations]),
    ramanujan_lift=(
        dict(mask=full, sheets=2, seed=0),
        [
            *bad_matrix,
            *bad_seed,
            Refusal("mask", lambda mask: mask & mask.flip(0), ValueError, "Ramanujan"),
            Refusal("sheets", 0, ValueError, ">= 1"),
        ],
    ),
    to_csr=(dict(mask=full), bad_matrix),
    from_csr=(
        dict(offsets=torch.tensor([0, 1, 3]), columns=torch.tensor([2, 0, 1]), channels=3),
        [
            Refusal("offsets", numbers, TypeError, "int64"),
            Refusal("offsets", lambda offsets: offsets.flip(0), ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:2], ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[:0], ValueError, "ascend"),
            Refusal("offsets", lambda offsets: offsets[None], ValueError, "1 axis"),
            Refusal("columns", numbers, TypeError, "int64"),
            Refusal("columns", lambda columns: columns + 1, ValueError, "in [0, 2]"),
            Refusal("columns", lambda columns: columns[None], ValueError, "1 axis"),
            Refusal("channels", -1, ValueError, ">= 0"),
        ],
    ),
)

"""The settings of HEX, and those the paper's tables use."""

from typing import Annotated, NamedTuple

from reference.contract.types import (
    Bits,
    Mode,
    OneOf,
    Positive,
    Ratio,
    Scales,
    Seed,
    ValueGroup,
    Whole,
)


class HexConfig(NamedTuple):
    """Every setting of HEX; the defaults are HEX-3.

    Source:
        HEX-4.2b, HEX-A.5.
    """

    bits: Bits = 3
    """Code width b."""
    density: Ratio = 0.03125
    """Share ρ of the entries that the expander mask keeps; 0 for no mask, 1 to keep all."""
    heavy: Ratio = 0.02
    """Share η of the tokens of a span that are heavy hitters."""
    recent: Whole = 8
    """Length r of the recent window."""
    block: Positive = 96
    """Tokens n_b compressed at a time while decoding."""
    mode: Mode = "append"
    """`"append"`; `"full"` compresses again what it holds; `"oracle"`, for study, the originals."""
    period: Positive = 1
    """How many blocks may stand beside the whole before `full` and `oracle` recompress."""
    value_group: ValueGroup = "token"
    """Whether a value group is a `"token"`, or a token of one `"head"`."""
    scales: Scales = None
    """Precision of stored steps and minima, as in `quantise`."""
    normalize: bool = False
    """Divide attention mass by the number of queries that saw the token."""
    outside_recent: bool = False
    """Choose heavy hitters outside the recent window."""
    recent_per_block: bool = True
    """Keep a recent window in every span compressed, not in the first alone."""
    carry_recent: bool = False
    """Hold the last r tokens back in the residual buffer instead of keeping them in a span."""
    near: bool = False
    """Where no biregular mask has this density, take the nearest degrees."""
    tile: bool = False
    """Repeat the mask of one block along longer spans."""
    seed: Seed = 0
    """Names the expander mask."""
    value_bits: Bits | None = None
    """Code width of values, by default that of keys. Ours."""


HEX = HexConfig()
EXPANDER = HEX._replace(heavy=0.0, recent=0)
H2O = HEX._replace(density=0.0)
QUANT = HEX._replace(density=0.0, heavy=0.0, recent=0)
LONGBENCH = HEX._replace(density=0.046875, near=True)

PRESETS = {
    "HEX-3": HEX,
    "HEX-4": HEX._replace(bits=4),
    "KCVT-3": QUANT,
    "KCVT-4": QUANT._replace(bits=4),
    "LongBench-3": LONGBENCH,
    "LongBench-4": LONGBENCH._replace(bits=4),
    "LongBench-4-full": LONGBENCH._replace(bits=4, mode="full"),
    "Table4-3-full": HEX,
    "Table4-3-expander": EXPANDER,
    "Table4-3-H2O": H2O,
    "Table4-3-quant": QUANT,
    "Table4-4-full": HEX._replace(bits=4, density=0.046875, near=True),
    "Table4-4-expander": EXPANDER._replace(bits=4, density=0.046875, near=True),
    "Table4-4-expander-EO": EXPANDER._replace(bits=4, density=0.078125, near=True),
    "Table4-4-H2O": H2O._replace(bits=4),
    "Table4-4-H2O-EO": H2O._replace(bits=4, heavy=0.05, recent=16),
    "Table4-4-quant": QUANT._replace(bits=4),
}


def hex_preset(name: Annotated[str, OneOf(tuple(PRESETS))]) -> HexConfig:
    r"""Return the settings of one of the paper's systems.

    $$b \in \{3, 4\}, \quad n_b = 96, \quad \rho = 3.125\,\%, \quad \eta = 2\,\%, \quad
      r \in \{8, 16\}$$

    Args:
        name: `"HEX-3"`, `"HEX-4"`, `"KCVT-3"`, `"KCVT-4"`, `"LongBench-3"`, `"LongBench-4"`,
            `"LongBench-4-full"`, or a row of Table 4: `"Table4-3-"` with `full`, `expander`,
            `H2O` or `quant`, `"Table4-4-"` with those, `expander-EO` or `H2O-EO`.

    Returns:
        The configuration. Rows of Table 4 are settings of one method, not methods.

    Source:
        HEX-4.2b, HEX-Tab4. In words (§4.2): "Unless otherwise stated, HEX uses 3.125% expander
        sparsity, 2% heavy hitters, and a small recent window (8, 16 tokens)." $n_b$ is in §4.1;
        §4.3 and Table 4 have other numbers for some rows.

    Reading:
        E-H2, E-H47: 4.6875 % and 7.8125 % exist for no 96-token block; these rows take the nearest
        degrees there, and exact ones where a longer span has them. Of the windows of 8 and 16
        tokens that §4.2 names, all but `"Table4-4-H2O-EO"` have 8.
    """
    return PRESETS[name]

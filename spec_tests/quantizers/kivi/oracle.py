"""KIVI one number at a time: grids over `Fraction`."""

from fractions import Fraction

Matrix = list[list[float]]


def on_grid(group: list[float], bits: int, among: list[float] | None = None) -> list[float]:
    """Return each member's nearest point on the grid of `among`, by default of the group."""
    exact = [Fraction(x) for x in group]
    low = min(map(Fraction, among or group), default=Fraction(0))
    high = max(map(Fraction, among or group), default=Fraction(0))
    step = (high - low) / (2**bits - 1)
    # Python rounds halves of fractions to even
    return [float(low + step * round((x - low) / step)) if step else float(low) for x in exact]


def in_groups(row: list[float], size: int, bits: int) -> list[float]:
    """Return a row in which each group is on its own grid."""
    pieces = [on_grid(row[start : start + size], bits) for start in range(0, len(row), size)]
    return [x for piece in pieces for x in piece]


def transposed(rows: Matrix) -> Matrix:
    """Exchange rows and columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def kivi_keys(keys: Matrix, bits: int, group: int, residual: int) -> Matrix:
    """Return one head's keys: full buffers quantised by channel, the rest unchanged."""
    whole = len(keys) - len(keys) % residual
    channels = [in_groups(channel, group, bits) for channel in transposed(keys[:whole])]
    return transposed(channels) + keys[whole:]


def kivi_values(values: Matrix, bits: int, group: int, residual: int) -> Matrix:
    """Return one head's values: all but the last `residual` quantised by token."""
    old = max(0, len(values) - residual)
    return [in_groups(token, group, bits) for token in values[:old]] + values[old:]

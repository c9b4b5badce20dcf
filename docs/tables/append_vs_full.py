"""Compare append and full mode on three kinds of keys: `python docs/tables/append_vs_full.py`."""

import torch
from torch import Tensor

from optimized import attention_error, hex_append, hex_prefill, hex_read
from reference import HexConfig

HEADS, TOKENS, WIDTH, PROMPT, LAST = 2, 1920, 64, 96, 32
MODES = {"append": "append", "oracle": "full from originals", "full": "full from the lossy cache"}


def normal(seed: int, *shape: int) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heavy_tailed(seed: int) -> Tensor:
    """Return independent numbers of Student's t distribution with 3 degrees of freedom."""
    x = normal(seed, 4, HEADS, TOKENS, WIDTH)
    return x[0] / x[1:].square().mean(0).sqrt()


def gaussian(seed: int) -> Tensor:
    """Return independent standard normal numbers."""
    return normal(seed, HEADS, TOKENS, WIDTH)


def correlated(seed: int) -> Tensor:
    """Return numbers that drift along the tokens, around an offset for each channel."""
    x = normal(seed, HEADS, TOKENS, WIDTH)
    for t in range(1, TOKENS):
        x[:, t] = 0.995 * x[:, t - 1] + (1 - 0.995**2) ** 0.5 * x[:, t]
    return x + 2 * normal(seed + 100, HEADS, 1, WIDTH)


KEYS = {
    "independent, heavy tails (Student's t, 3 degrees of freedom)": heavy_tailed,
    "independent, Gaussian": gaussian,
    "correlated along the tokens (0.995 from one to the next) with channel offsets": correlated,
}


def errors(keys: Tensor, values: Tensor, mode: str) -> tuple[float, float]:
    """Return the relative error of the keys, and the mean deviation of the last queries."""
    queries = normal(3, HEADS, TOKENS, WIDTH)
    config = HexConfig(bits=4, density=0.0, heavy=0.0, recent=0)._replace(mode=mode)
    cache = hex_prefill(queries[:, :PROMPT], keys[:, :PROMPT], values[:, :PROMPT], config)
    cache = hex_append(cache, queries[:, PROMPT:], keys[:, PROMPT:], values[:, PROMPT:])
    held = hex_read(cache)
    deviation = attention_error(queries[..., -LAST:, :], keys, values, *held).mean()
    return float((held[0] - keys).norm() / keys.norm()), float(deviation)


def main() -> None:
    """Print a line for each kind of keys; values are of the same kind."""
    print(f"| keys and values | {' | '.join(MODES.values())} |")
    print("| --- " * (1 + len(MODES)) + "|")
    for name, make in KEYS.items():
        found = [errors(make(1), make(2), mode) for mode in MODES]
        cells = [f"{key:.3f}, {deviation:.3f}" for key, deviation in found]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

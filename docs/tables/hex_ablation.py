"""HEX-3 with one setting changed at a time, and Table 4: `python docs/tables/hex_ablation.py`.

The stream is synthetic. Keys have a correlation of 0.9 from one token to the next and an offset for
each channel; queries lean towards the mean key of their head.
"""

import torch
from torch import Tensor

from optimized import hex_preset, sensitivity
from reference import HexConfig

PROMPT, DECODED, KV_HEADS, QUERY_HEADS, WIDTH = 480, 192, 2, 4, 64
CHANGES = {
    "block $n_b$": ("block", (32, 64, 96, 192)),
    "mode": ("mode", ("append", "full", "oracle")),
    "bits $b$": ("bits", (2, 3, 4, 8)),
    r"heavy $\eta$": ("heavy", (0.0, 0.02, 0.05, 0.1)),
    "recent $r$": ("recent", (0, 8, 16, 32)),
    r"density $\rho$": ("density", (0.0, 0.03125, 0.0625, 0.125)),
}
KINDS = ("full", "expander", "expander-EO", "H2O", "H2O-EO", "quant")


def stream() -> tuple[Tensor, ...]:
    """Return queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    tokens = PROMPT + DECODED
    keys = torch.randn(KV_HEADS, tokens, WIDTH, generator=generator)
    for t in range(1, tokens):
        keys[:, t] = 0.9 * keys[:, t - 1] + (1 - 0.9**2) ** 0.5 * keys[:, t]
    offsets = 2 * torch.randn(KV_HEADS, 1, WIDTH, generator=generator)
    values = torch.randn(KV_HEADS, tokens, WIDTH, generator=generator)
    queries = torch.randn(QUERY_HEADS, tokens, WIDTH, generator=generator)
    queries = queries + offsets.repeat_interleave(QUERY_HEADS // KV_HEADS, 0) / 2
    return queries.half(), (keys + offsets).half(), values.half()


def measured(configs: list[HexConfig]) -> list[str]:
    """Return the mean deviation and the percentage of bytes of each setting."""
    queries, keys, values = stream()
    rows = sensitivity(queries, keys, values, PROMPT, configs)
    return [f"{row.error:.3f} ({row.percent:.1f})" for row in rows]


def main() -> None:
    """Print both tables."""
    base = hex_preset("HEX-3")._replace(near=True)
    print("| setting | | | | |\n| --- | --- | --- | --- | --- |")
    for name, (setting, values) in CHANGES.items():
        found = measured([base._replace(**{setting: value}) for value in values])
        cells = [f"{value}: {text}" for value, text in zip(values, found, strict=True)]
        print(f"| {name} | {' | '.join(cells + [''] * (4 - len(cells)))} |", flush=True)
    print("\n| row of Table 4 | 3 bits | 4 bits |\n| --- | --- | --- |")
    for kind in KINDS:
        cells = [f"Table4-{bits}-{kind}" for bits in (3, 4)]
        exist = [bits == 4 or not kind.endswith("EO") for bits in (3, 4)]
        found = [
            measured([hex_preset(name)])[0] if there else ""
            for name, there in zip(cells, exist, strict=True)
        ]
        print(f"| {kind} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()

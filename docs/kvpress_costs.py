"""Memory and speed beside kvpress: `python docs/kvpress_costs.py [TOKENS ...]`, on Linux.

Where kvpress is installed its presses are measured, elsewhere `models.compressed`: call it in both
environments. Each system reads a prompt in a process of its own; its row goes to
docs/kvpress_costs.csv at once, and what has its rows there is not measured again.
"""

import csv
import ctypes
import gc
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from time import process_time
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from optimized.bench.report import commit, hardware
from reference import stored_bytes

FILE = Path(__file__).parent / "kvpress_costs.csv"
LENGTHS, RATIO, STEPS, WARM = ("512", "8192", "32768"), 0.75, 96, 4
TRIM, MMAP = -1, -3
"""Thresholds of glibc's malloc."""
LIBRARY = "kvpress" if find_spec("kvpress") else "kvspec"
STAY = ["full", "hex-4", "kivi-4"]
OURS = "snapkv knorm expected_attention streaming_llm kvzip+hubkv snapkv+graphkv snapkv@layer"
THEIRS = "SnapKV Knorm ExpectedAttention StreamingLLM KVzip AdaKV"
SYSTEMS = THEIRS.split() if LIBRARY == "kvpress" else STAY + OURS.split()
CONFIG = LlamaConfig(
    num_hidden_layers=6, hidden_size=256, intermediate_size=512, num_attention_heads=8,
    num_key_value_heads=4, head_dim=64, vocab_size=512, max_position_embeddings=65536,
)  # fmt: skip


def model() -> Any:
    """Return a model whose weights are the same in every process."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG, attn_implementation="sdpa").eval()


def read(one: Any, system: str, ids: torch.Tensor) -> Any:
    """Read a prompt and compress it: ours as `compressed` does, theirs as their pipeline does."""
    if LIBRARY == "kvspec" and system != "stock":
        ratio = None if system in STAY else RATIO
        return import_module("optimized.models").compressed(one, system, ids, ratio=ratio)
    cache = DynamicCache()
    with torch.no_grad() if system == "stock" else press(system)(one):
        one.model(input_ids=ids, past_key_values=cache)
    return cache


def press(system: str) -> Any:
    """Return a press; the model has no tokenizer, so KVzip's request gets a token a word."""
    theirs, zipping = import_module("kvpress"), import_module("kvpress.presses.kvzip_press")
    words = SimpleNamespace(
        chat_template=None,
        encode=lambda text, **_: torch.ones(1, len(text.split()), dtype=torch.long),
    )
    vars(zipping)["AutoTokenizer"] = SimpleNamespace(from_pretrained=lambda _: words)
    if system == "AdaKV":
        return theirs.AdaKVPress(theirs.SnapKVPress(RATIO))
    return getattr(theirs, f"{system}Press")(RATIO)


def step(one: Any, cache: Any, place: int) -> float:
    """Return the CPU seconds of one more token: ours as `generate` asks, theirs as pipelines do."""
    given = dict(position_ids=torch.tensor([[place]]))
    if LIBRARY == "kvspec":
        given["attention_mask"] = torch.ones(1, place + 1, dtype=torch.long)
    start = process_time()
    one(input_ids=torch.ones(1, 1).long(), past_key_values=cache, use_cache=True, **given)
    return process_time() - start


def resident(name: str) -> int:
    """Return how many bytes the process has in memory (VmRSS), or had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


@torch.no_grad()
def measured(system: str, tokens: int) -> tuple[Any, ...]:
    """Return the growth while a prompt is read, seconds, bytes kept, and what steps cost."""
    torch.set_num_threads(1)
    ids = torch.randint(1, 512, (1, tokens), generator=torch.Generator().manual_seed(0))
    one, stock = model(), model()
    read(one, system, ids[:, :128])  # what is imported or drawn once is no prompt's
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    libc.mallopt(MMAP, 1 << 16)  # what is freed is gone at once, and the peak is what was alive
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is forgotten
    before, start = resident("VmRSS"), process_time()
    cache = read(one, system, ids)
    seconds, peak = process_time() - start, resident("VmHWM") - before
    libc.mallopt(MMAP, 1 << 25)  # where malloc comes to by itself, since blocks of pages take time
    libc.mallopt(TRIM, 1 << 26)
    whole, held, pairs = DynamicCache(), 0, []
    for layer in range(CONFIG.num_hidden_layers):
        whole.update(torch.randn(1, 4, tokens, 64), torch.randn(1, 4, tokens, 64), layer)
    first = cache.get_seq_length() if LIBRARY == "kvspec" else tokens
    for n in range(WARM + STEPS):
        pairs.append((step(one, cache, first + n), step(stock, whole, tokens + n)))
        if not held:  # a first step lays out anew what some hold, and lets go of views
            masked = [vars(layer.self_attn).get("masked_key_indices") for layer in one.model.layers]
            held = stored_bytes([cache.layers, masked])
    here, there = zip(*pairs[WARM:], strict=True)
    times = median(here), median(there), median(a / b for a, b in pairs[WARM:])
    return peak, f"{seconds:.3g}", held, *(f"{x:.4g}" for x in (*times, sum(here) / sum(there)))


def main() -> None:
    """Measure every system of the library that is installed, short prompts first."""
    names = ("torch", "transformers", "kvpress")[: 3 if LIBRARY == "kvpress" else 2]
    found = " ".join(f"{name} {version(name)}" for name in names)
    where = hardware("cpu", 1), found, commit(), datetime.now(UTC).date().isoformat()
    for tokens in sys.argv[1:] or LENGTHS:
        for turn, system in product(range(3 if tokens == "512" else 1), ("stock", *SYSTEMS)):
            rows = [row[:3] for row in csv.reader(FILE.read_text().splitlines())]
            if rows.count([LIBRARY, system, tokens]) > turn:
                continue
            asked = [sys.executable, __file__, "--only", system, tokens]
            done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
            with FILE.open("a", newline="") as file:
                line = LIBRARY, system, tokens, *done.stdout.split(), *where
                csv.writer(file, lineterminator="\n").writerow(line)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--only"]:
        print(*measured(sys.argv[2], int(sys.argv[3])))
    else:
        main()

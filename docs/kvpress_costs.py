"""Compare memory and speed with kvpress: `python docs/kvpress_costs.py [TOKENS ...]`, on Linux.

The script measures the presses of kvpress where it is installed, and `models.compressed` elsewhere:
run it in both environments. Each system reads a prompt in its own process. Its row is written to
docs/kvpress_costs.csv at once, and a system with all rows there is not measured again.
"""

import csv
import ctypes
import gc
import subprocess
import sys
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

from optimized.bench.report import commit, processor, today
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
    """Return the compressed cache of a prompt, from `compressed` or as kvpress' pipeline does."""
    if LIBRARY == "kvspec" and system != "stock":
        ratio = None if system in STAY else RATIO
        return import_module("optimized.models").compressed(one, system, ids, ratio=ratio)
    cache = DynamicCache()
    with torch.no_grad() if system == "stock" else press(system)(one):
        one.model(input_ids=ids, past_key_values=cache)
    return cache


def press(system: str) -> Any:
    """Return a press; KVzip gets a stand-in tokenizer with one token for each word."""
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
    """Return the CPU seconds of one decode step, called as `generate` or kvpress' pipeline does."""
    given = dict(position_ids=torch.tensor([[place]]))
    if LIBRARY == "kvspec":
        given["attention_mask"] = torch.ones(1, place + 1, dtype=torch.long)
    start = process_time()
    one(input_ids=torch.ones(1, 1).long(), past_key_values=cache, use_cache=True, **given)
    return process_time() - start


def resident(name: str) -> int:
    """Return the resident bytes of the process (VmRSS), or their maximum (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


@torch.no_grad()
def measured(system: str, tokens: int) -> tuple[Any, ...]:
    """Return the peak growth of memory in prefill, its seconds, stored bytes, and step times."""
    torch.set_num_threads(1)
    ids = torch.randint(1, 512, (1, tokens), generator=torch.Generator().manual_seed(0))
    one, stock = model(), model()
    read(one, system, ids[:, :128])  # imports and one-time allocations are not measured
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.malloc_trim(0)
    libc.mallopt(MMAP, 1 << 16)  # freed memory is returned at once: the peak counts live memory
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before, start = resident("VmRSS"), process_time()
    cache = read(one, system, ids)
    seconds, peak = process_time() - start, resident("VmHWM") - before
    libc.mallopt(MMAP, 1 << 25)  # the value that malloc adapts to, since mmap is slow
    libc.mallopt(TRIM, 1 << 26)
    whole, held, pairs = DynamicCache(), 0, []
    for layer in range(CONFIG.num_hidden_layers):
        whole.update(torch.randn(1, 4, tokens, 64), torch.randn(1, 4, tokens, 64), layer)
    first = cache.get_seq_length() if LIBRARY == "kvspec" else tokens
    for n in range(WARM + STEPS):
        pairs.append((step(one, cache, first + n), step(stock, whole, tokens + n)))
        if not held:  # the first step may change the layout and free views
            masked = [vars(layer.self_attn).get("masked_key_indices") for layer in one.model.layers]
            held = stored_bytes([cache.layers, masked])
    here, there = zip(*pairs[WARM:], strict=True)
    times = median(here), median(there), median(a / b for a, b in pairs[WARM:])
    return peak, f"{seconds:.3g}", held, *(f"{x:.4g}" for x in (*times, sum(here) / sum(there)))


def main() -> None:
    """Measure every system of the installed library, short prompts first."""
    names = ("torch", "transformers", "kvpress")[: 3 if LIBRARY == "kvpress" else 2]
    found = " ".join(f"{name} {version(name)}" for name in names)
    where = processor(), found, commit(), today()
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

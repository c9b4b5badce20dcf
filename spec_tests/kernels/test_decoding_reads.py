"""While a model decodes on a GPU, the caches of the plug-in wait for no value of a tensor."""

from functools import cache, partial
from itertools import pairwise, product

import pytest
import torch

import optimized
import reference
from optimized.hex_packed_layout import TILE
from spec_tests.operations import reads_as_if_on_gpu

transformers = pytest.importorskip("transformers")
models = pytest.importorskip("optimized.models")

PROMPT, NEW, PADDING, INTERVAL = 2 * TILE - 2, 6, 2, 3
HEX = optimized.HexConfig(bits=4, density=0.0, heavy=0.0, recent=2)
SYSTEMS = {
    "snapkv@head": dict(ratio=0.5),
    "snapkv@layer": dict(ratio=0.5),
    "h2o+hubkv@head": dict(keep=60, interval=INTERVAL),
    "knorm@head": dict(keep=60, interval=INTERVAL),
    "kivi-4": {},
    "gear": {},
    "hex": {},
    "snapkv@layer>kcvt-4": dict(ratio=0.5),
}
PADDED = "snapkv@head", "h2o+hubkv@head", "hex"
COMPRESSING = {"h2o+hubkv@head": {2, 5}, "knorm@head": {2, 5}, "hex": {2, 2 + PADDING}}
"""The steps that evict, or fill a block."""


@cache
def model():
    """Return an attached model of one layer with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=64, intermediate_size=48, num_hidden_layers=1, head_dim=64,
        num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    return models.attach(transformers.AutoModelForCausalLM.from_config(config).eval())


def prompt(padded):
    """Return ids and mask of two prompts; the second may be padded."""
    ids = torch.randint(1, 61, (2, PROMPT), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, : PADDING * padded] = 0
    return ids, mask


def filled(system, padded):
    """Return the cache of the prompts."""
    config = HEX if system == "hex" else system
    return models.compressed(model(), config, *prompt(padded), **SYSTEMS[system])


def generate(cache, ids, mask):
    """Decode by `generate`, which passes no mask where nothing is padding."""
    how = dict(do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW)
    model().generate(ids, attention_mask=mask, past_key_values=cache, **how)


def one_by_one(cache, ids, mask):
    """Decode by calls of the model, with masks and positions."""
    token, prompt_length = ids[:, :1], mask.shape[1]
    seen = mask.new_ones(2, cache.get_seq_length() + NEW)
    seen[:, :prompt_length] = mask[:, : seen.shape[1]]
    for stop in range(cache.get_seq_length() + 1, seen.shape[1] + 1):
        shown = seen[:, :stop]
        positions = (shown.cumsum(1) - 1)[:, -1:]
        step = dict(input_ids=token, attention_mask=shown, position_ids=positions)
        with torch.no_grad():
            token = model()(**step, past_key_values=cache).logits[:, -1:].argmax(-1)


def places_of_reads(run):
    """Return, for each step of a run, the lines of this package that wait for values."""
    with reads_as_if_on_gpu() as reads:
        steps = []
        before = model().register_forward_pre_hook(lambda *_: steps.append(len(reads.found)))
        try:
            run()
        finally:
            before.remove()
    ours = (*optimized.__path__, *reference.__path__)
    return [
        [f"{name} {line}" for name, line in reads.found[start:stop] if line.startswith(ours)]
        for start, stop in pairwise([*steps, None])
    ]


@pytest.mark.parametrize(
    ("system", "padded"), [*product(SYSTEMS, [False]), *product(PADDED, [True])]
)
def test_no_step_after_the_first_waits_for_a_value(system, padded):
    """Steps that evict or compress what was decoded may wait."""
    decode = one_by_one if padded else generate
    first, *later = places_of_reads(partial(decode, filled(system, padded), *prompt(padded)))
    assert first
    assert len(later) == NEW - 1
    waits = {step: lines for step, lines in enumerate(later, 1) if lines}
    assert waits.keys() <= COMPRESSING.get(system, {*()}), waits

"""Small models of every causal architecture of `transformers`, and what the caches support.

`python -m spec_tests.internal.models.architectures` runs all or the named ones, and writes the
table and the page.
"""

import dataclasses
import json
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, DynamicCache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from optimized import models
from optimized.models.eviction_cache import EvictionLayer
from optimized.models.layer import WindowLayer
from spec_tests.index import ROOT
from spec_tests.internal.models.oracle import Turn, VisibleEntries, logits_of_turns
from spec_tests.internal.models.random_model import LINEAR, logits_after, with_random_weights

TABLE, PAGE = Path(__file__).with_suffix(".json"), ROOT / "docs" / "models.md"
TOKENS, QUESTION, PADDING, NEW, VOCABULARY, WINDOW = 40, 4, 7, 8, 61, 7
KEPT = 9
CLOSE = 1e-4
"""Largest allowed difference of logits, relative to the largest logit."""
LOOSE = 1e-3
"""The same where the stock model itself differs by about as much between one call and two."""
SYSTEMS = {
    "full": {},
    "snapkv": {"ratio": 0.5},
    "kvzip+hubkv": {"ratio": 0.5},
    "h2o": {"keep": 20, "interval": 8},
    "kivi-4": {},
    "gear": {},
}
LABELS = {"h2o": "eviction while decoding"}
"""Labels of systems on the page, where the name alone would be misleading."""
NOT_RUN, RIGHT = "not run", "**right**"
BEGIN, END = "<!-- architectures -->", "<!-- end of architectures -->"
EVERY = "every system"
"""Key in the table of a model that is refused when it is attached."""

BEHIND = ", a question behind the prompt"
"""Suffix in the table of a system that supports the prompt alone."""


def fields(value, names: str) -> dict:
    """Return settings of one value."""
    return dict.fromkeys(names.split(), value)


USUAL = (
    dict(vocab_size=VOCABULARY, max_position_embeddings=256, pad_token_id=0, is_decoder=True)
    | dict(hidden_size=128, head_dim=32, intermediate_size=48, sliding_window=WINDOW)
    | fields(4, "num_hidden_layers num_attention_heads")
    | fields(2, "num_key_value_heads num_experts_per_tok")
    | fields(4, "num_experts num_local_experts n_routed_experts")
    | fields(16, "moe_intermediate_size shared_expert_intermediate_size")
    | fields(1, "n_group topk_group")
    | fields(None, "bos_token_id eos_token_id")
)
"""Settings of every architecture whose configuration has them."""
TURNS = ["sliding_attention", "full_attention"] * 2
STATES = ["linear_attention", "full_attention"] * 2
MAMBA = dict(mamba_n_heads=8, mamba_d_head=32, mamba_d_state=16)
LATENT = dict(num_key_value_heads=4) | fields(
    8, "head_dim kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim"
)
LATENT_STATES = LATENT | dict(layer_types=STATES, linear_head_dim=8, linear_num_heads=2)
LINEAR_STATES = LINEAR | dict(layer_types=STATES)
INDEXED = dict(index_topk=16, index_head_dim=16, index_n_heads=2)
ENDS = dict(bos_token_id=1, eos_token_id=VOCABULARY - 1)
HALF = fields(2, "encoder_layers decoder_layers decoder_attention_heads")
KV_SHARED = dict(num_kv_shared_layers=2, layer_types=TURNS, hidden_size_per_layer_input=8)
KV_SHARED |= dict(vocab_size_per_layer_input=VOCABULARY)
TEXT = {k: v for k, v in USUAL.items() if k not in ("sliding_window", "is_decoder")}
TEXT_IN_TURNS = TEXT | dict(layer_types=TURNS, sliding_window=WINDOW)
TEXT_ALONE = fields(None, "vision_config audio_config")
WIDTHS = fields(32, "hidden_size intermediate_size")
SIGHT = WIDTHS | dict(num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=8)
SOUND = (
    WIDTHS
    | dict(num_blocks=1, num_attention_heads=2)
    | fields(32, "ext_pw_out_channel nemo_conv_channels depthwise_separable_out_channel")
)
QWEN4 = dict(layer_types=["linear_attention", "indexed_attention"] * 2, indexer_n_heads=2)
QWEN4 |= dict(indexer_kv_heads=1, indexer_head_dim=32, indexer_budget=16, indexer_compress_ratio=2)
BYTES = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=48)
BYTES |= fields(2, "num_hidden_layers num_attention_heads")
CHUNKS = dict(intermediate_size_mlp=48, attention_chunk_size=WINDOW)
ROPE = dict(rope_type="default", rope_theta=1e4)
ALIKE = [
    (LATENT, "axk1 deepseek_v2 deepseek_v3 glm4_moe_lite minicpm3 youtu"),
    (LATENT | INDEXED, "axk2 deepseek_v32 dots3_note_text glm_moe_dsa hy_v4"),
    (LATENT_STATES, "bailing_hybrid kimi_linear"),
    (LINEAR_STATES, "olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next"),
    (dict(text_config=TEXT | LINEAR_STATES), "qwen3_5 qwen3_5_moe"),
    (dict(layer_types=["conv", "full_attention"] * 2), "lfm2 lfm2_moe"),
    (dict(layers_block_type=["linear_attention", "hybrid"] * 2), "zamba zamba2"),
    (dict(layer_types=TURNS), "gemma3_text gemma4_unified_text kolibri1 ministral"),
    (dict(layer_types=["hybrid_sliding", "hybrid"] * 2), "inkling_text inkling2_text"),
    (dict(sliding_window=None), "doge ministral3 mistral mixtral phi3 phimoe starcoder2"),
    (HALF, "bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus plbart"),
    (HALF, "trocr whisper"),
    (dict(rotary_dim=16), "codegen gptj"),
    (ENDS, "cwm modernbert-decoder"),
]
"""Settings of several architectures."""
SETTINGS: dict[str, dict] = {kind: chosen for chosen, kinds in ALIKE for kind in kinds.split()}
SETTINGS |= {
    "bamba": MAMBA | dict(attn_layer_indices=[1, 3]),
    "blt": fields(BYTES, "patcher_config global_config")
    | fields(BYTES | dict(hidden_size_global=64), "encoder_config decoder_config")
    | dict(encoder_hash_byte_group_vocab=50),
    "fuyu": dict(text_config=dict(model_type="persimmon") | TEXT, patch_size=4),
    "cohere_compass_text": dict(
        layer_types=TURNS, rope_parameters=fields(ROPE, "full_attention sliding_attention")
    ),
    "dbrx": dict(d_model=128, attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0)),
    "dots1": dict(n_shared_experts=1, layer_types=["full_attention"] * 4),
    "emu3": dict(text_config=TEXT | ENDS),
    "falcon_h1": MAMBA | dict(mamba_d_ssm=256),
    "gemma3n_text": KV_SHARED
    | dict(intermediate_size=[48] * 4, activation_sparsity_pattern=[0.0] * 4, laurel_rank=4),
    "gemma4": TEXT_ALONE | dict(text_config=TEXT_IN_TURNS | dict(hidden_size_per_layer_input=0)),
    "gemma4_unified": TEXT_ALONE | dict(text_config=TEXT_IN_TURNS),
    "gemma4_text": KV_SHARED | dict(global_head_dim=64),
    "gemma4_text unshared": dict(layer_types=TURNS, hidden_size_per_layer_input=0)
    | dict(global_head_dim=64, num_global_key_value_heads=1, attention_k_eq_v=True),
    "gpt_neo": dict(attention_types=[[["global", "local"], 2]]),
    "granitemoehybrid": MAMBA | dict(layer_types=STATES, shared_intermediate_size=32),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False),
    "longcat_flash": LATENT | dict(num_layers=2),
    "mamba2": dict(num_heads=8, head_dim=32),
    "llama4_text unchunked": dict(intermediate_size_mlp=48, attention_chunk_size=256),
    "llama4": dict(text_config=TEXT | CHUNKS),
    "mllama": dict(text_config=TEXT | ENDS | dict(cross_attention_layers=[])),
    "llama4_text": CHUNKS,
    "minimax_m3_vl_text": dict(dense_intermediate_size=48, shared_intermediate_size=16),
    "minimax_m3_vl_text sparse": dict(layer_types=["full_attention", "minimax_m3_sparse"] * 2),
    "mistral windowed": {},
    "qwen4_exp_text": QWEN4,
    "reformer": dict(axial_pos_embds_dim=[32, 32], hidden_size=64),
    "xlnet": dict(d_head=32),
    "got_ocr2": dict(text_config=dict(model_type="qwen2") | TEXT, vision_config=SIGHT),
    "gemma3": dict(text_config=TEXT_IN_TURNS, vision_config=SIGHT),
    "phi4_multimodal": dict(sliding_window=None, audio_config=SOUND)
    | dict(vision_config=SIGHT | dict(crop_size=8)),
    "qwen4_exp": dict(text_config=QWEN4 | TEXT),
    "opt": dict(ffn_dim=48, word_embed_proj_dim=128),
    "xmod": dict(default_language="en_XX", languages=["en_XX"]),
    "zaya": dict(num_experts_per_tok=1),
}
KINDS = tuple(dict.fromkeys((*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *SETTINGS)))
CHUNKED = ("llama4", "llama4_text")
"""Architectures with chunked attention, which the oracle does not implement."""
COMPOSITE = "composite of text and other inputs: see its text model"
DRAFTS = "attends to the keys of the model that it drafts for: generates nothing by itself"
LEFT_OUT = {
    "blt": "`transformers` makes no cache of its configuration: it generates nothing by itself",
    "dots3_note": COMPOSITE,
    "gemma3n": COMPOSITE,
    "gemma4_assistant": DRAFTS,
    "gemma4_unified_assistant": DRAFTS,
    "moss_transcribe_diarize": COMPOSITE,
    "musicgen": COMPOSITE,
    "musicgen_melody": COMPOSITE,
}


def build(kind: str):
    """Return a model of an architecture with random weights."""
    name = kind.split()[0]
    settings = {field.name for field in dataclasses.fields(CONFIG_MAPPING[name])}
    settings |= {*CONFIG_MAPPING[name].attribute_map}
    usual = {field: value for field, value in USUAL.items() if field in settings}
    chosen = usual | {"experts_implementation": "eager"} | SETTINGS.get(kind, {})
    return with_random_weights(transformers.AutoConfig.for_model(name, **chosen))


def prompts() -> tuple[Tensor, Tensor]:
    """Return ids and mask of two prompts, each followed by a question; the second is padded."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(2, VOCABULARY - 1, (2, TOKENS + QUESTION), generator=draw)
    mask = torch.ones_like(ids)
    mask[1, :PADDING] = 0
    return ids, mask


def answer(model, ids: Tensor, mask: Tensor, cache=None):
    """Return `NEW` generated tokens with their logits."""
    how = dict(max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
    how |= dict(return_dict_in_generate=True, output_logits=True)
    return model.generate(ids, attention_mask=mask, past_key_values=cache, **how)


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest entry of `expected`."""
    return float((actual - expected).abs().max() / expected.abs().max())


def is_our_refusal(error: Exception) -> bool:
    """Return whether an error comes from a check of this package."""
    file = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    is_ours = any((ROOT / part) in file.parents for part in ("optimized", "reference"))
    return isinstance(error, ValueError | TypeError) and is_ours and " must " in str(error)


def eviction_error(stock, model, ragged: bool) -> float:
    """Return how logits differ between entries evicted here and masked in the stock model.

    Heads keep equally many entries, or different numbers if `ragged`.
    """
    ids, mask = prompts()
    prompt = models.prefill(model, ids[:, :TOKENS], mask[:, :TOKENS])
    draw, pasts, kept = torch.Generator().manual_seed(2), {}, []
    for index, layer in enumerate(prompt.cache.layers):
        if not isinstance(layer, EvictionLayer | WindowLayer):
            continue
        keys = layer.keys
        assert keys is not None
        visible = mask[:, None, :TOKENS].bool().expand(-1, keys.shape[1], -1)
        if isinstance(layer, EvictionLayer):
            chance = torch.rand(visible.shape, generator=draw) * visible
            least = 0.5 if ragged else chance.sort().values[..., -KEPT, None]
            visible = chance >= least
            kept.append(visible)
        pasts[index] = VisibleEntries(visible)
    prompt.cache.evict(kept)
    ours = logits_after(model, prompt.cache, ids, mask, QUESTION)
    last = VisibleEntries(kept[-1])  # layers without keys of their own attend to these
    masked, config = deepcopy(stock), stock.get_decoder().config
    masked.set_attn_implementation("oracle")
    layers = tuple(pasts.get(n, last) for n in range(config.num_hidden_layers))
    turns = Turn(TOKENS), Turn(TOKENS + QUESTION, layers)
    return relative_difference(
        ours, logits_of_turns(masked, config, ids, mask, turns)[:, -QUESTION:]
    )


def rounding_error(stock, ids: Tensor, mask: Tensor, plain) -> float:
    """Return the difference of a stock model's logits between two calls and one."""
    cache, first = DynamicCache(config=stock.get_decoder().config), slice(TOKENS - 1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        stock(
            input_ids=ids[:, first],
            attention_mask=mask[:, first],
            position_ids=positions[:, first],
            past_key_values=cache,
        )
    twice = answer(stock, ids, mask, cache)
    return relative_difference(torch.stack(twice.logits), torch.stack(plain.logits))


def refusing_systems(kind: str) -> dict[str, str]:
    """Return the systems that refuse an architecture, with their messages; check all others.

    Raises:
        AssertionError: a system computes a wrong result.
        Exception: a system raises an error that is not a check of this package.
    """
    if kind in LEFT_OUT:
        return {NOT_RUN: LEFT_OUT[kind]}
    stock = build(kind)
    model, refused = deepcopy(stock), {}
    ids, mask = prompts()
    try:
        models.attach(model)
    except Exception as error:
        if not is_our_refusal(error):
            raise
        answer(stock, ids, mask)  # the stock model can answer
        return {EVERY: str(error)}
    for padded in (False, True):
        flags = mask if padded else torch.ones_like(mask)
        for stop in (TOKENS, TOKENS + QUESTION):
            inputs = ids[:, :stop], flags[:, :stop]
            plain = answer(stock, *inputs)
            for system, options in SYSTEMS.items():
                behind = "" if stop == TOKENS else BEHIND
                if {system, system + behind} & {*refused}:
                    continue
                try:
                    cache = models.compressed(
                        model, system, ids[:, :TOKENS], flags[:, :TOKENS], **options
                    )
                    out = answer(model, *inputs, cache)
                except Exception as error:
                    if not is_our_refusal(error):
                        raise
                    refused[system + behind] = str(error)
                    continue
                far = relative_difference(torch.stack(out.logits), torch.stack(plain.logits))
                assert out.sequences.shape == plain.sequences.shape, (kind, system)
                assert far == far < torch.inf, (kind, system)
                if system == "full":
                    near = far <= CLOSE or far <= min(
                        2 * rounding_error(stock, *inputs, plain), LOOSE
                    )
                    assert near, (kind, padded, stop, far)
                    assert torch.equal(out.sequences, plain.sequences)
                else:
                    assert far > CLOSE, f"{kind}: {system} leaves no trace"
    if kind not in CHUNKED and not {"full", "full" + BEHIND} & {*refused}:
        for ragged in (False, True):
            far = eviction_error(stock, model, ragged)
            assert far <= CLOSE, (kind, "ragged" if ragged else "dense", far)
    return refused


def load_verdicts() -> dict:
    """Return the table: the verdict on every architecture, and the version of `transformers`."""
    return json.loads(TABLE.read_text())


REASONS = {
    "blocks in `layers`": "no blocks in `layers` that attend in `self_attn`, as Llama's are named",
    "latent attention": "multi-head latent attention, whose rows are never stored in codes",
    "be a decoder alone": "an encoder-decoder, or a part of one",
    "layer that sees the whole text": "a window or a state in every layer",
    "layers that cache keys and values": "a cache of another kind, with an index or summaries",
    "attention interface": "attention outside the interface of `transformers`",
    "only to earlier tokens": "a mask made for images in every call",
    "keys in every layer": "some layers attend to the keys of another",
    "carry its states": "states that begin anew where several tokens are read",
    "from its keys and a mask": "a mask that adds numbers of its own to the products",
    "as wide as its keys": "values of another width than keys",
    "pass one mask": "attention that takes several masks",
    "run with caches": "attention that takes its cache apart, adds a bias, or has its own",
}
"""A common part of the messages of a group, and its wording on the page."""


def reason(sentence: str) -> str:
    """Return the page's wording of the reason in a message."""
    return next(wording for part, wording in REASONS.items() if part in sentence)


def summary(verdict: dict[str, str]) -> str:
    """Return what the page says of an architecture."""
    if not verdict:
        return RIGHT
    if NOT_RUN in verdict:
        return f"not run: {verdict[NOT_RUN]}"
    why = "; ".join(sorted({reason(sentence) for sentence in verdict.values()}))
    but = [LABELS.get(name, name) for name in verdict if BEHIND not in name]
    if EVERY in verdict or len(but) == len(verdict) == len(SYSTEMS):
        return why
    but += ["a question behind the prompt"] if len(but) < len(verdict) else []
    return f"{RIGHT} but for {', '.join(but)}: {why}"


def page_section(table: dict) -> str:
    """Return the generated section of the page."""
    groups: dict[str, list[str]] = {RIGHT: []}
    for kind, verdict in table["verdicts"].items():
        groups.setdefault(summary(verdict), []).append(kind)
    rows = sorted(groups.items(), key=lambda row: (row[0] != RIGHT, -len(row[1])))
    lines = "\n".join(
        f"| {why} | {len(kinds)} | {', '.join(f'`{kind}`' for kind in sorted(kinds))} |"
        for why, kinds in rows
    )
    return f"transformers {table['transformers']}:\n\n| | | model types |\n|---|---|---|\n{lines}\n"


def page(text: str, part: str) -> str:
    """Return the page with another section between its markers."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + part + END + rest.partition(END)[2]


def main(kinds: list[str]) -> None:
    """Run the given architectures, and write the verdicts to the table and the page."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(kinds, pool.map(refusing_systems, kinds), strict=True))
    verdicts = (load_verdicts()["verdicts"] if TABLE.exists() else {}) | found
    every = {kind: verdicts[kind] for kind in KINDS if kind in verdicts}
    written = {"transformers": transformers.__version__, "verdicts": every}
    TABLE.write_text(json.dumps(written, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), page_section(written)))


if __name__ == "__main__":
    main(sys.argv[1:] or [*KINDS])

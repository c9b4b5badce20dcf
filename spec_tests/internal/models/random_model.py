"""Small language models with random weights, and prompts for them."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import settings
from torch import Tensor

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
models = pytest.importorskip("optimized.models")

TOKENS, PADDING, VOCABULARY = 24, 5, 61
WINDOW = 7
TURNS = ["sliding_attention", "full_attention"]
MOE = dict(num_experts_per_tok=2, experts_implementation="eager", num_local_experts=4)
LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8)
LINEAR |= dict(linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"])
LATENT = dict(kv_lora_rank=12, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8)
LATENT |= dict(v_head_dim=6, num_key_value_heads=4)
GEMMA = dict(head_dim=8, query_pre_attn_scalar=11, sliding_window=WINDOW)
# Settings that differ from `configuration`; a name may be a model type and a word. Grouped queries;
# another scale; a window, bounded logits and another scale; a window and sinks; a recurrent state;
# layers that reuse another layer's keys; one latent row for all heads. A thorough run takes more.
QUICK: dict[str, dict] = {
    "llama": {},
    "granite": dict(attention_multiplier=0.25),
    "gemma2": GEMMA,
    "gpt_oss": MOE | dict(head_dim=8, sliding_window=WINDOW),
    "lfm2": dict(layer_types=["conv", "full_attention"]),
    "gemma4_text": dict(num_hidden_layers=4, num_kv_shared_layers=2, layer_types=TURNS * 2)
    | dict(sliding_window=WINDOW, head_dim=8, global_head_dim=8, hidden_size_per_layer_input=8)
    | dict(vocab_size_per_layer_input=VOCABULARY),
    "minicpm3": LATENT,
}
ARCHITECTURES: dict[str, dict] = QUICK | {
    "qwen3": dict(head_dim=16),
    "gemma3_text": GEMMA | dict(layer_types=TURNS),
    "qwen2 windowed": dict(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "qwen3_5_text": LINEAR | dict(head_dim=8),
}
thorough = settings.get_current_profile_name() == "thorough"
CHOSEN = tuple(ARCHITECTURES if thorough else QUICK)
KEYLESS = {"num_kv_shared_layers", "kv_lora_rank"}
"""Settings of models with layers without keys of their own, or with latent rows."""
KEYED = [kind for kind in CHOSEN if not KEYLESS & {*ARCHITECTURES[kind]}]


def cross(kinds: Sequence[str], first: Sequence, second: Sequence) -> list[tuple]:
    """Return cases of a kind and two values: every combination for the first kind.

    For each further kind, each value of `first` is combined with one value of `second`, in turn. In
    a thorough run there are all combinations.
    """
    every = [
        (kind, a, b) for kind in (kinds if thorough else kinds[:1]) for a in first for b in second
    ]
    turns = [] if thorough else enumerate(kinds[1:])
    return every + [
        (kind, a, second[(turn + index) % len(second)])
        for turn, kind in turns
        for index, a in enumerate(first)
    ]


def configuration(kind: str, **overrides):
    """Return a configuration with two layers, four query heads and two key heads."""
    usual = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=None, eos_token_id=None)
    usual |= dict(hidden_size=32, intermediate_size=48, max_position_embeddings=2048)
    usual |= dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    chosen = usual | ARCHITECTURES.get(kind, {}) | overrides
    return transformers.AutoConfig.for_model(kind.split()[0], **chosen)


def full_attention_layers(kind: str) -> dict[int, int]:
    """Return, for each layer that sees the whole text, the number of the keyed layer it uses."""
    config = configuration(kind)
    count = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * count
    layers = [n for n, name in enumerate(kinds) if name in ("full_attention", "hybrid")]
    keyed = count - (getattr(config, "num_kv_shared_layers", None) or 0)
    last = sum(layer < keyed for layer in layers) - 1
    return {layer: min(n, last) for n, layer in enumerate(layers)}


def count_keyed_layers(kind: str) -> int:
    """Return how many layers have keys of the whole text."""
    return max(full_attention_layers(kind).values()) + 1


def key_heads(kind: str) -> int:
    """Return how many rows a layer caches for each token."""
    return 1 if "kv_lora_rank" in ARCHITECTURES[kind] else 2


def with_random_weights(config, kind=transformers.AutoModelForCausalLM):
    """Return a model with random weights large enough for uneven attention."""
    draw = torch.Generator().manual_seed(0)
    model = kind.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=draw)
            weight.copy_(0.3 * noise if weight.ndim > 1 else 1 + 0.2 * noise)
    return model


def new_model(kind: str, **overrides):
    """Return a new model of `transformers` with random weights."""
    return with_random_weights(configuration(kind, **overrides))


@cache
def stock_model(kind: str):
    """Return the model before `attach`."""
    return new_model(kind)


@cache
def attached_model(kind: str):
    """Return the same model, attached."""
    return models.attach(new_model(kind))


def prompts(extra: int = 0) -> tuple[Tensor, Tensor]:
    """Return ids and mask of two prompts with `extra` further tokens; the second is padded."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(2, VOCABULARY, (2, TOKENS + 64), generator=draw)[:, : TOKENS + extra]
    mask = torch.ones_like(ids)
    mask[1, :PADDING] = 0
    return ids, mask


def read(kind: str = "llama", padded: bool = True, extra: int = 4):
    """Return the prefilled prompts, and ids and mask with `extra` further tokens."""
    ids, mask = prompts(extra)
    mask = mask if padded else torch.ones_like(mask)
    return models.prefill(attached_model(kind), ids[:, :TOKENS], mask[:, :TOKENS]), ids, mask


def weights(kind: str) -> dict[str, Tensor]:
    """Return the parameters of the model, to run it in another precision."""
    return dict(stock_model(kind).named_parameters())


def logits_after(model, cache, ids: Tensor, mask: Tensor, tokens: int) -> Tensor:
    """Return the logits of the last `tokens` tokens, with the others in the cache."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens:]
    with torch.no_grad():
        return model(
            input_ids=ids[:, -tokens:],
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
        ).logits


def generate(model, ids: Tensor, mask: Tensor, cache=None, **how) -> Tensor:
    """Return the ids after eight generated tokens."""
    torch.manual_seed(7)
    how = {"do_sample": False, **how}
    return model.generate(
        ids, attention_mask=mask, past_key_values=cache, max_new_tokens=8, min_new_tokens=8, **how
    )


TEMPLATE = "{% for m in messages %}w2 {{ m['content'] }} {% endfor %}w3"


def word_tokenizer():
    """Return a tokenizer with a word for each id, and a chat template."""
    words = {f"w{number}": number for number in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w1"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="w0", padding_side="left", chat_template=TEMPLATE
    )


def gates(kv) -> list:
    """Return a random FastKVzip gate for each layer."""
    draw = torch.Generator().manual_seed(3)

    def normal(*shape: int):
        return torch.randn(shape, generator=draw)

    return [
        kv.GateWeights(
            query=normal(2, 2, 4, 32),
            query_bias=normal(2, 2, 4),
            query_scale=normal(4),
            key=normal(2, 4, 32),
            key_scale=normal(4),
            learned=normal(2, 3, 4),
            bias=normal(2, 2),
        )
        for _ in range(2)
    ]

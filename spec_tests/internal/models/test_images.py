"""Models of text and images: inputs besides ids, and positions with several axes."""

from copy import deepcopy
from functools import cache

import pytest
import torch

from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import generate, models, transformers

VOCABULARY, IMAGE, START, END = 80, 70, 72, 73
TOKENS, QUESTION, PADDING, FIRST = 30, 4, 5, 9
GRID = 4
SIZES = dict(hidden_size=32, intermediate_size=32)
TEXT = SIZES | dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
TEXT |= dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=None, eos_token_id=None)
AXES = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1])
MIXED = AXES | dict(mrope_interleaved=True)
TILED = SIZES | dict(depth=2, num_heads=2, out_hidden_size=32, patch_size=4, spatial_merge_size=2)
TILED |= dict(temporal_patch_size=2)
BANDED = TILED | dict(window_size=8, fullatt_block_indexes=[1])
PLACED = TILED | dict(num_position_embeddings=16)
STACKED = PLACED | dict(deepstack_visual_indexes=[0])
LAYERS = SIZES | dict(num_hidden_layers=2, num_attention_heads=2, patch_size=4)
CLIP = LAYERS | dict(model_type="clip_vision_model", image_size=8)
QWEN = dict(image_token_id=IMAGE, video_token_id=IMAGE + 1)
QWEN |= dict(vision_start_token_id=START, vision_end_token_id=END)
LLAVA = dict(image_token_index=IMAGE, vision_feature_layer=-1)
LLAVA |= dict(vision_feature_select_strategy="default")


def both(text: dict, vision: dict, **others) -> dict:
    """Return the settings of a model of text and images."""
    return dict(text_config=TEXT | text, vision_config=vision) | others


CONFIGS = {
    "qwen2_5_vl": both(dict(rope_parameters=AXES), BANDED, **QWEN),
    "qwen3_vl": both(dict(rope_parameters=MIXED), STACKED, **QWEN),
    "qwen3_5": both(
        small.LINEAR | dict(rope_parameters=MIXED | dict(partial_rotary_factor=1.0)), PLACED, **QWEN
    ),
    "llava": both(dict(model_type="llama"), CLIP, **LLAVA),
}


@cache
def stock_image_model(kind: str):
    """Return a model of text and images with random weights."""
    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    return small.with_random_weights(config, transformers.AutoModelForImageTextToText)


@cache
def attached_image_model(kind: str):
    """Return a copy of the same model, attached."""
    return models.attach(deepcopy(stock_image_model(kind)))


def prompt(kind: str, images: bool, padded: bool, count: int = TOKENS):
    """Return two rows of text, with or without an image, followed by questions."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 60, (2, TOKENS + QUESTION), generator=draw)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :PADDING] = ids[1, :PADDING] = 0
    looked = {}
    if images:
        ids[:, FIRST : FIRST + GRID] = IMAGE
        if kind.startswith("qwen"):
            ids[:, FIRST - 1], ids[:, FIRST + GRID] = START, END
            looked["pixel_values"] = torch.randn(2 * 16, 3 * 2 * 4 * 4, generator=draw)
            looked["image_grid_thw"] = torch.tensor([[1, 4, 4]] * 2)
            looked["mm_token_type_ids"] = (ids == IMAGE).long()[:, :count]
        else:
            looked["pixel_values"] = torch.randn(2, 3, 8, 8, generator=draw)
    return ids[:, :count], mask[:, :count], looked


@pytest.mark.parametrize(
    ("kind", "shape", "padded"),
    small.cross([*CONFIGS], [(i, a) for i in (False, True) for a in (0, QUESTION)], [False, True]),
)
def test_a_whole_cache_continues_as_the_model_does(kind, shape, padded):
    images, extra = shape
    ids, mask, looked = prompt(kind, images, padded)
    every, flags, again = prompt(kind, images, padded, TOKENS + extra)
    expected = generate(stock_image_model(kind), every, flags, **again)
    cache = models.compressed(attached_image_model(kind), "full", ids, mask, **looked)
    # A model stores the positions of its last image only.
    models.compressed(attached_image_model(kind), "full", *prompt(kind, False, False)[:2])
    copy = deepcopy(cache)
    assert torch.equal(generate(attached_image_model(kind), every, flags, cache, **again), expected)
    if extra:  # images need not be given again
        assert torch.equal(generate(attached_image_model(kind), every, flags, copy), expected)
    for system, how in (("h2o+hubkv@layer", {"ratio": 0.5}), ("gear", {})):
        left = models.compressed(attached_image_model(kind), system, ids, mask, **how, **looked)
        assert left.nbytes < cache.nbytes
        generate(attached_image_model(kind), every, flags, left, **again)


def test_an_image_has_to_be_given_with_its_ids():
    (ids, mask, looked), model = prompt("llava", True, False), attached_image_model("llava")
    for system, how, says in (
        ("snapkv", {}, "got the model's image_token_id 70: pass the other outputs"),
        ("snapkv", looked | {"chunk": 8}, "chunk must be None with pixel_values, got 8"),
        ("kvzip", looked, "scorer must not be kvzip with pixel_values"),
        ("snapkv", {"pixel_values": [1]}, "got 'pixel_values': list"),
    ):
        with pytest.raises((ValueError, TypeError), match=says):
            models.compressed(model, system, ids, mask, ratio=0.5, **how)
    cache = models.compressed(model, "full", ids, mask, **looked)
    other = torch.cat([ids, ids[:, -3:]], 1)
    other[0, TOKENS - 1] = 2 + ids[0, -1] % 50
    with pytest.raises(ValueError, match="must begin with the tokens that the cache has seen, got"):
        generate(model, other, torch.ones_like(other), cache, **looked)
    every = torch.cat([ids, ids], 1)  # a later turn with a new image
    with pytest.raises(ValueError, match="input_ids must be text, got the model's image_token_id"):
        generate(model, every, torch.ones_like(every), cache, **looked)


def test_images_that_attend_both_ways_are_refused_and_text_is_served():
    sizes = dict(query_pre_attn_scalar=8, sliding_window=7)
    tokens = dict(image_token_index=IMAGE, boi_token_index=START, eoi_token_index=END)
    settings = both(sizes | dict(layer_types=small.TURNS), LAYERS | dict(image_size=8), **tokens)
    config = transformers.AutoConfig.for_model("gemma3", **settings, mm_tokens_per_image=GRID)
    model = small.with_random_weights(config, transformers.AutoModelForImageTextToText)
    ids, mask, looked = prompt("gemma3", True, False)
    looked["token_type_ids"] = (ids == IMAGE).long()
    with pytest.raises(ValueError, match="lets the tokens of an image see each other"):
        models.compressed(model, "full", ids, mask, **looked)
    for padded in (False, True):
        ids, mask, _ = prompt("gemma3", False, padded)
        types = torch.zeros_like(ids)
        expected = generate(deepcopy(model), ids, mask)
        cache = models.compressed(model, "full", ids, mask, token_type_ids=types)
        assert torch.equal(generate(model, ids, mask, cache, token_type_ids=types), expected)

"""Settings of a store, alone and behind `>`: its own function makes what is stored."""

import pytest
import torch

import optimized as kv
import reference
from optimized.models.attention import Softmax
from optimized.vector.quantizers.gear_cache import gear_attention
from optimized.vector.quantizers.kivi import kivi_attention
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.internal.models.random_model import models, new_model, prompts

WIDE = dict(head_dim=64)  # 128 channels, as HEX needs


def prompt_of(tokens=200):
    draw = torch.Generator().manual_seed(0)
    return torch.randint(2, 61, (1, tokens), generator=draw)


def whole(model, ids):
    """Return the keys and values of every layer, before any compression."""
    return [layer.whole for layer in models.compressed(model, "full", ids).evictable()]


@pytest.mark.parametrize(
    ("system", "settings", "made"),
    [
        ("kivi-8", {}, lambda k, v: kv.kivi_prefill(k, v, bits=8)),
        ("kivi-4", dict(group=16, residual=64), lambda k, v: kv.kivi_prefill(k, v, 4, 16, 64)),
        ("gear", dict(bits=8, rank=2), lambda k, v: kv.gear_prefill(k, v, 8, rank=2)),
        ("kivi-8", dict(value_bits=4), lambda k, v: kv.kivi_prefill(k, v, 8, value_bits=4)),
        ("gear", dict(bits=(8, 4)), lambda k, v: kv.gear_prefill(k, v, 8, value_bits=4)),
    ],
)
def test_a_quantiser_has_the_settings_that_its_own_function_takes(system, settings, made):
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    cache = models.compressed(model, system, ids, settings=settings)
    for layer, (keys, values) in zip(cache.layers, whole(model, ids[:, :-1]), strict=True):
        read = kv.gear_read if system == "gear" else kv.kivi_read
        for held, other in zip(read(layer.held), read(made(keys, values)), strict=True):
            assert_equal(held, other)


@pytest.mark.parametrize("tokens", [5, 300])
@pytest.mark.parametrize("bits", [(2, 4), (8, 3), (4, 1)])
@pytest.mark.parametrize(("group", "residual"), [(1, 4), (4, 8), (8, 32)])
def test_attention_over_the_codes_of_kivi_is_that_over_what_they_stand_for(
    tokens, bits, group, residual
):
    torch.manual_seed(0)
    queries, last = torch.randn(2, 6, 1, 16).double(), torch.randn(2, 3, 1, 16).double()
    keys, values = torch.randn(2, 2, 3, tokens, 16).double()
    sizes = dict(bits=bits[0], group=group, residual=residual, value_bits=bits[1])
    cache = kv.kivi_prefill(keys, values, **sizes)
    left, right = (torch.cat([old, last], 2) for old in reference.kivi_read(cache))
    assert_close(kivi_attention(queries, cache, last, last), kv.attention(queries, left, right))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("tokens", [0, 5, 300])
def test_attention_over_the_parts_of_gear_is_that_over_what_they_stand_for(tokens, exact):
    torch.manual_seed(0)
    queries, last = torch.randn(2, 6, 1, 16).double(), torch.randn(2, 3, 1, 16).double()
    keys, values = torch.randn(2, 2, 3, tokens + 50, 16).double()
    cache = kv.gear_prefill(keys[:, :, :tokens], values[:, :, :tokens], rank=2)
    cache = kv.gear_append(cache, keys[:, :, tokens:], values[:, :, tokens:])
    left, right = (torch.cat([old, last], 2) for old in reference.gear_read(cache, exact))
    read = gear_attention(queries, cache, last, last, exact)
    assert_close(read, kv.attention(queries, left, right))


@pytest.mark.parametrize("system", ["kivi-4", "gear", "kcvt-4"])
def test_an_infinite_key_is_refused_that_no_query_sees(system):
    layer = models.compressed(new_model("llama", **WIDE), system, prompt_of()).layers[0]
    key = torch.zeros_like(torch.nn.functional.pad(layer.whole[0], (0, 0, 1, 0)))
    layer.update(key.index_fill(-1, torch.tensor(0), torch.inf), key)
    with pytest.raises(ValueError, match="keys must be finite"):
        layer.attend(key - 1, None, Softmax(0.25))


def test_a_step_over_kivi_reads_its_codes_and_stores_the_token():
    model, ids = models.attach(new_model("llama", **WIDE).double()), prompt_of(110)
    fast, slow = (models.compressed(model, "kivi-4", ids[:, :75], kv=x) for x in (kv, reference))
    for token in ids[0, 75:, None]:  # over the end of a group
        outs = [model(input_ids=token[None], past_key_values=x).logits for x in (fast, slow)]
        assert_close(*outs)
    assert fast.nbytes == slow.nbytes


@pytest.mark.parametrize(
    ("system", "settings", "config"),
    [
        ("hex-8", {}, kv.HexConfig(bits=8)),
        ("kcvt-8", {}, kv.hex_preset("KCVT-4")._replace(bits=8)),
        ("hex-4", dict(density=0.0625, heavy=0.05), kv.HexConfig(4, 0.0625, 0.05)),
        ("hex-8", dict(bits=[8, 4]), kv.HexConfig(bits=8, value_bits=4)),
        ("kcvt-4", dict(value_bits=2), kv.hex_preset("KCVT-4")._replace(value_bits=2)),
    ],
)
def test_hex_has_the_settings_of_its_configuration(system, settings, config):
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    named = models.compressed(model, system, ids, settings=settings)
    made = models.compressed(model, config, ids)
    assert named.layers[0].config == config
    assert named.nbytes == made.nbytes
    for one, other in zip(named.layers, made.layers, strict=True):
        assert_equal(kv.hex_read(one.cache), kv.hex_read(other.cache))


def test_behind_an_arrow_each_name_goes_to_the_part_that_has_it():
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    how = dict(ratio=0.5, input_ids=ids)
    settings = dict(window=8, bits=2)
    both = models.compressed(model, "snapkv>kivi-4", settings=settings, **how)
    alone = models.compressed(model, "snapkv", ids[:, :-1], ratio=0.5, settings=dict(window=8))
    for layer, kept in zip(both.layers, alone.evictable(), strict=True):
        (held,) = layer.held
        made = kv.kivi_prefill(kept.keys, kept.values, bits=2)
        for restored, other in zip(kv.kivi_read(held), kv.kivi_read(made), strict=True):
            assert_equal(restored, other)
    assert both.nbytes < models.compressed(model, "snapkv>kivi-4", **how).nbytes


@pytest.mark.parametrize("store", ["kivi-8", "gear", "hex-8", "kcvt-8"])
def test_behind_an_arrow_values_have_bits_of_their_own(store):
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()

    def restored(**settings):
        how = dict(ratio=0.5, input_ids=ids, settings=settings)
        cache = models.compressed(model, f"knorm>{store}", **how)
        read = dict(kivi=kv.kivi_read, gear=kv.gear_read).get(store[:4], kv.hex_read)
        return cache.nbytes, [read(held) for layer in cache.layers for held in layer.held]

    both, of_keys, of_values = (restored(bits=bits) for bits in ((8, 3), 8, 3))
    assert of_values[0] < both[0] < of_keys[0]
    for parts in zip(both[1], of_keys[1], of_values[1], strict=True):
        assert_equal(parts[0], (parts[1][0], parts[2][1]))


def test_a_cache_with_bits_of_values_reads_further_text():
    model, ids = models.attach(new_model("llama", **WIDE).double()), prompt_of()
    caches = [
        models.compressed(model, "hex-8", ids, settings=dict(bits=bits), kv=kv_of_layer)
        for bits, kv_of_layer in (((8, 4), kv), ((8, 4), reference), (8, kv))
    ]
    logits = [model(prompt_of(120)[:, -100:], past_key_values=x).logits for x in caches]
    assert_equal(*(x.layers[0].cache.blocks[-1].bits for x in caches[:2]))
    assert_close(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


def test_more_bits_are_more_bytes_and_come_nearer():
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    keys = whole(model, ids[:, :-1])[0][0]
    off, size = [], []
    for bits in (2, 4, 8):
        cache = models.compressed(model, "kivi-2", ids, settings=dict(bits=bits))
        size.append(cache.nbytes)
        off.append(float((kv.kivi_read(cache.layers[0].held)[0] - keys).abs().max()))
    assert size == sorted(size)
    assert off == sorted(off, reverse=True)


@pytest.mark.parametrize(
    ("system", "settings", "says"),
    [
        ("kivi-4", dict(bits=9), "settings of kivi-4: bits must be"),
        ("kivi-4", dict(bit=4), "settings of kivi-4 must be one of bits, group"),
        ("gear", dict(group=16), "settings of gear must be one of bits, block"),
        ("hex-4", dict(densty=0.1), "did you mean 'density'"),
        ("kivi-4", {}, r"got heads of 24: 8 divides them, as settings=\{'group': 8\}"),
        ("knorm>kivi-4", {}, r"got heads of 24: 8 divides them, as settings=\{'group': 8\}"),
        ("kivi-4", dict(group=12), r"group = 12 for 'kivi-4', got 32: 4 divides it"),
        ("kivi-4", dict(bits=(8, 9)), r"kivi-4: value_bits must be in \[1, 8\], got 9"),
        ("hex-4", dict(bits=(8, 4, 2)), r"of keys and of values .*, got \(8, 4, 2\)"),
        ("gear", dict(bits=(8, 4), value_bits=2), r"got \(8, 4\), beside value_bits"),
    ],
)
def test_settings_that_cannot_be_had_are_refused(system, settings, says):
    model, read = new_model("llama", head_dim=24), []
    model.register_forward_pre_hook(lambda *_: read.append("a call"))
    budget = dict(ratio=0.5) if ">" in system else {}
    with pytest.raises(ValueError, match=says):
        models.compressed(model, system, prompts()[0], settings=settings, **budget)
    assert not read, "before the prompt is read"


@pytest.mark.parametrize("system", ["kivi-4", "knorm>kivi-4"])
def test_the_layers_that_see_the_whole_text_decide_which_group_divides_their_heads(system):
    own = dict(num_kv_shared_layers=0, head_dim=32, global_head_dim=48)
    model, ids = new_model("gemma4_text", **own), prompt_of(60)
    budget = dict(ratio=0.5) if ">" in system else {}
    with pytest.raises(ValueError, match="got heads of 48: 16 divides them"):
        models.compressed(model, system, ids, **budget)
    assert models.compressed(model, system, ids, settings=dict(group=16), **budget).nbytes


def test_a_group_that_divides_the_heads_is_taken():
    model = models.attach(new_model("llama", head_dim=24))
    cache = models.compressed(model, "kivi-4", prompts()[0], settings=dict(group=8))
    assert cache.nbytes

"""Settings of a store, alone and behind `>`: its own function makes what is stored."""

import pytest
import torch

import optimized as kv
from spec_tests.accuracy import assert_equal
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
    ],
)
def test_a_quantiser_has_the_settings_that_its_own_function_takes(system, settings, made):
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    cache = models.compressed(model, system, ids, settings=settings)
    for layer, (keys, values) in zip(cache.layers, whole(model, ids[:, :-1]), strict=True):
        read = kv.gear_read if system == "gear" else kv.kivi_read
        for held, other in zip(read(layer.held), read(made(keys, values)), strict=True):
            assert_equal(held, other)


@pytest.mark.parametrize(
    ("system", "settings", "config"),
    [
        ("hex-8", {}, kv.HexConfig(bits=8)),
        ("kcvt-8", {}, kv.hex_preset("KCVT-4")._replace(bits=8)),
        ("hex-4", dict(density=0.0625, heavy=0.05), kv.HexConfig(4, 0.0625, 0.05)),
    ],
)
def test_hex_has_the_settings_of_its_configuration(system, settings, config):
    model, ids = models.attach(new_model("llama", **WIDE)), prompt_of()
    named = models.compressed(model, system, ids, settings=settings)
    made = models.compressed(model, config, ids)
    assert named.layers[0].config == config
    assert named.nbytes == made.nbytes
    for one, other in zip(named.layers, made.layers, strict=True):
        assert torch.equal(kv.hex_read(one.cache)[0], kv.hex_read(other.cache)[0])


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
    ],
)
def test_settings_that_cannot_be_had_are_refused(system, settings, says):
    model = new_model("llama", head_dim=24)
    with pytest.raises(ValueError, match=says):
        models.compressed(model, system, prompts()[0], settings=settings)


def test_a_group_that_divides_the_heads_is_taken():
    model = models.attach(new_model("llama", head_dim=24))
    cache = models.compressed(model, "kivi-4", prompts()[0], settings=dict(group=8))
    assert cache.nbytes

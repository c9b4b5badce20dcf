"""HubKV and GraphKV over the scores of kvpress: they keep what the specification keeps.

kvpress requires an older transformers than the plug-in, so that these tests run in their own
environment; the nightly workflow has the command. Elsewhere nothing here runs.
"""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

kvpress = pytest.importorskip("kvpress")

from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, MistralConfig  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

import reference  # noqa: E402
from optimized import GraphSettings, HubSettings, Scored  # noqa: E402
from optimized.presses import GraphKVPress, HubKVPress  # noqa: E402
from spec_tests.accuracy import assert_equal  # noqa: E402

LENGTH, WIDTH, HEADS, GROUP = 80, 8, 2, 4
GRAPH: dict[str, Any] = dict(count=3, length=3000)
# A press, and how many tokens it always keeps at the start and at the end of a prompt.
PRESSES = {
    "cap": (kvpress.CapPress(), 4, 0),
    "compactor": (kvpress.CompactorPress(), 8, 4),
    "critical": (kvpress.CriticalKVPress(kvpress.SnapKVPress(window_size=4)), 0, 4),
    "cur": (kvpress.CURPress(), 4, 0),
    "expected attention": (kvpress.ExpectedAttentionPress(), 4, 0),
    "keydiff": (kvpress.KeyDiffPress(), 0, 0),
    "knorm": (kvpress.KnormPress(), 0, 0),
    "lag": (kvpress.LagKVPress(lag_size=16), 4, 28),
    "lag, short": (kvpress.LagKVPress(), 4, 0),
    "leverage": (kvpress.LeverageScorePress(), 0, 0),
    "non-causal": (kvpress.NonCausalAttnPress(), 0, 0),
    "observed": (kvpress.ObservedAttentionPress(), 0, 0),
    "pyramid": (kvpress.PyramidKVPress(window_size=4, beta=4), 0, 4),
    "random": (kvpress.RandomPress(seed=3), 0, 0),
    "snapkv": (kvpress.SnapKVPress(window_size=4), 0, 4),
    "streaming": (kvpress.StreamingLLMPress(), 4, 0),
    "tova": (kvpress.TOVAPress(), 0, 1),
    "kvzip": (kvpress.KVzipPress(), 4, 0),
    "kvzip, chunks": (kvpress.KVzipPress(n_sink=0, chunk_size=50), 0, 0),
    "fastkvzip": (kvpress.FastKVzipPress(), 4, 1),
}
AFTERWARDS = ("kvzip", "kvzip, chunks", "fastkvzip")
UNMARKED = ("critical", "streaming", *AFTERWARDS)
"""Presses that mark more than the ends of a prompt, or nothing."""
KINDS: dict[str, dict[str, Any]] = {
    "head": dict(scope="head"),
    "layer": dict(scope="layer", sinks=0),
    "model": {},
    "settings": dict(scope="head", gamma=0.8, tau=1.0, power=1.0),
    "graph": {},
    "graph of queries": dict(kind="qk", strength=0.5, signal="enhance"),
}


def new_model(kind: Any = LlamaConfig, layers: int = 2, **settings: Any) -> Any:
    """Return a model of random weights, the same at every call."""
    torch.manual_seed(0)
    config = kind(
        vocab_size=200, hidden_size=32, intermediate_size=32, num_hidden_layers=layers,
        num_attention_heads=HEADS * GROUP, num_key_value_heads=HEADS, head_dim=WIDTH,
        initializer_range=0.3, **settings,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


def ids_of(rows: int = 2) -> Tensor:
    """Return the ids of prompts; a word that stands twice would have two keys of one norm."""
    order = torch.rand(rows, 199, generator=torch.Generator().manual_seed(1)).argsort()
    return 1 + order[:, :LENGTH]


def read_under(model, press, ids: Tensor) -> Any:
    """Return the cache of a prompt that was read under a press."""
    cache: Any = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=ids, past_key_values=cache)
    return cache


def whole_cache(model, ids: Tensor) -> Any:
    """Return the cache of a prompt that was read without a press."""
    return read_under(model, nullcontext, ids)


def kept_entries(model, press, ids: Tensor) -> Tensor:
    """Return the mask of entries that a press keeps (layers, rows, heads, tokens), and check it."""
    sets, whole = [], whole_cache(model, ids)
    for layer, whole_layer, pressed in zip(
        model.model.layers, whole.layers, read_under(model, press, ids).layers, strict=True
    ):
        same = (whole_layer.keys[..., None, :] == pressed.keys[..., None, :, :]).all(-1).any(-1)
        assert_equal(pressed.keys, whole_layer.keys[same].view_as(pressed.keys))
        assert_equal(pressed.values, whole_layer.values[same].view_as(pressed.values))
        gone = getattr(layer.self_attn, "masked_key_indices", None)
        if gone is not None:
            assert bool(same.all())
            same[gone] = False
        sets.append(same)
    return torch.stack(sets)


@pytest.fixture
def recorded(monkeypatch):
    """The scores that presses give layer by layer, and queries of a model at its attention."""
    scores: list[Tensor] = []
    queries: list[Tensor] = []
    rotate = modeling_llama.apply_rotary_pos_emb

    def rotating(*given: Any) -> Any:
        queries.append(rotate(*given)[0])
        return rotate(*given)

    for kind in (HubKVPress, GraphKVPress):
        read = kind.scored
        monkeypatch.setattr(
            kind, "scored", lambda self, raw, read=read: scores.append(raw) or read(self, raw)
        )
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotating)
    words = SimpleNamespace(
        chat_template=None,
        encode=lambda text, **_: torch.ones(1, len(text.split()), dtype=torch.long),
    )
    tokenizers = SimpleNamespace(from_pretrained=lambda _: words)
    monkeypatch.setattr(kvpress.presses.kvzip_press, "AutoTokenizer", tokenizers)
    return scores, queries


@pytest.mark.parametrize("name", PRESSES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_follows_from_the_scores_of_a_press_beside_its_marks(name, kind, recorded):
    (base, first, last), model, ids = PRESSES[name], new_model(), ids_of()
    settings, graph = KINDS[kind], kind.startswith("graph")
    scope = settings.get("scope", "head" if graph else "model")
    if (name == "pyramid" and scope == "model") or (name in AFTERWARDS and "queries" in kind):
        pytest.skip("it is refused")
    if name == "observed" and scope != "head":
        pytest.skip("it needs eager attention, which kvpress does not mask")
    model.set_attn_implementation("eager" if name == "observed" else "sdpa")
    if name in AFTERWARDS:  # of one row
        ids = ids[:1]
    if name == "fastkvzip":
        torch.manual_seed(0)
        gate = kvpress.presses.fastkvzip_press.FastKVzipGate
        base.gates = [gate(0, 32, HEADS, GROUP, torch.float32) for _ in range(2)]
    base.compression_ratio = ratio = 0.5
    press = GraphKVPress(base, **GRAPH, **settings) if graph else HubKVPress(base, **settings)
    scores, queries = recorded
    found = kept_entries(model, press, ids)
    layers = []
    for raw, layer in zip(scores, whole_cache(model, ids).layers, strict=True):
        protected = torch.zeros_like(raw, dtype=torch.bool)
        protected[..., :first] = protected[..., LENGTH - last :] = True
        if name == "critical":
            protected |= raw == torch.finfo(raw.dtype).max
        if name not in UNMARKED:
            least = raw[0, 0]
            marks = (raw == least).flatten(0, 1).all(0) & (least >= raw.amax())
            assert_equal(marks, protected[0, 0])
        raw = raw.masked_fill(protected, 0)
        raw = raw if bool((raw >= 0).all()) else reference.shift_scores(raw)
        layers.append((layer.keys, layer.values, Scored(raw, protected)))
    if graph:
        refinement = GraphSettings(GRAPH["count"], **settings)
        select = partial(reference.graphkv_select, refinement=refinement, length=GRAPH["length"])
    else:
        fields = {field: x for field, x in settings.items() if field in HubSettings._fields}
        rest = {name: x for name, x in settings.items() if name not in fields}
        select = partial(reference.hubkv_select, refinement=HubSettings(**fields), **rest)
    if scope == "model":
        keys, values, scored = zip(*layers, strict=True)
        both = Scored(*map(torch.stack, zip(*scored, strict=True)))
        assert_equal(found, select(torch.stack(keys), torch.stack(values), both, ratio=ratio))
        return
    for index, (layer, kept) in enumerate(zip(layers, found, strict=True)):
        budget: dict[str, Any] = dict(ratio=ratio)
        if name == "pyramid":
            keep = base.get_layer_budget(model.model.layers[index].self_attn, LENGTH)
            budget = dict(keep=keep * (HEADS if scope == "layer" else 1))
        if "queries" in kind:
            budget["queries"] = queries[index]
        assert_equal(kept, select(*layer, **budget))


@pytest.mark.parametrize("scope", ["head", "layer", "model"])
def test_the_model_attends_to_what_is_kept_and_to_nothing_else(scope):
    model, ids, next_id = new_model(layers=1), ids_of(), torch.tensor([[5], [6]])
    press = HubKVPress(kvpress.SnapKVPress(0.5, window_size=3), scope=scope)
    (kept,) = kept_entries(model, press, ids)
    seen = torch.cat([kept, kept.new_ones(2, HEADS, 1)], -1).repeat_interleave(GROUP, 1)
    where = dict(position_ids=torch.tensor([[LENGTH]]))
    cache = read_under(model, press, ids)
    with torch.no_grad():
        found = model(next_id, past_key_values=cache, **where).logits
        whole = whole_cache(new_model(layers=1), ids)
        mask = seen[..., None, :]
        wanted = new_model(layers=1)(next_id, attention_mask=mask, past_key_values=whole, **where)
    torch.testing.assert_close(found, wanted.logits)


def test_heads_of_one_length_are_cut_out_and_others_are_masked():
    base = kvpress.SnapKVPress(0.75, window_size=3)
    pyramid = kvpress.PyramidKVPress(0.5, window_size=4, beta=4)
    for press, size in (
        (HubKVPress(base, scope="head"), 20),
        (GraphKVPress(base, **GRAPH), 20),
        (HubKVPress(base, scope="layer"), LENGTH),
        (HubKVPress(base), LENGTH),
        (GraphKVPress(pyramid, **GRAPH), LENGTH),
    ):
        cache = read_under(new_model(), press, ids_of())
        assert [layer.keys.shape[2] for layer in cache.layers] == [size, size]


class Own(kvpress.ScorerPress):
    """A custom press that keeps its first token."""

    def score(self, module, hidden_states, keys, values, attentions, kwargs) -> Tensor:
        """Return the norms of values as scores."""
        del module, hidden_states, keys, attentions, kwargs
        return values.norm(dim=-1).index_fill(-1, torch.zeros(1, dtype=torch.long), torch.inf)


def test_a_press_of_ones_own_says_what_it_keeps():
    with pytest.raises(ValueError, match="ends must say how many tokens a Own keeps"):
        HubKVPress(Own(0.5))
    press = HubKVPress(Own(0.9), scope="head", sinks=0, recent=0, ends=(1, 0))
    assert bool(kept_entries(new_model(), press, ids_of())[..., 0].all())


KNORM = kvpress.KnormPress()


@pytest.mark.parametrize(
    ("construct", "error", "message"),
    [
        (partial(HubKVPress, KNORM, gama=0.5), TypeError, "'gama'"),
        (partial(GraphKVPress, KNORM), TypeError, "'count'"),
        (partial(HubKVPress, kvpress.AdaKVPress(KNORM)), TypeError, "must be a ScorerPress"),
        (partial(HubKVPress, kvpress.PyramidKVPress()), ValueError, "scope must be 'head'"),
        (partial(HubKVPress, kvpress.KVzipPress(layerwise=True)), ValueError, "got 'model'"),
        (partial(GraphKVPress, kvpress.KVzipPress(), count=3, kind="qq"), ValueError, "no queries"),
    ],
)
def test_what_cannot_be_is_refused_when_a_press_is_made(construct, error, message):
    with pytest.raises(error, match=message):
        construct()


def test_what_kvpress_cannot_store_or_score_is_refused(monkeypatch):
    model, base = new_model(), kvpress.KnormPress(0.5)
    ids, mask = ids_of(), torch.ones(2, LENGTH)
    mask[0, :5] = 0
    with (
        torch.no_grad(),
        HubKVPress(base)(model),
        pytest.raises(ValueError, match=r"attention_mask must hide no token .* got 5 hidden"),
    ):
        model.model(input_ids=ids, attention_mask=mask, past_key_values=DynamicCache())
    windowed = new_model(MistralConfig, sliding_window=70)
    for press in (HubKVPress(base), GraphKVPress(base, count=2)):
        with pytest.raises(ValueError, match="got 20 hidden, by padding or by a window"):
            read_under(windowed, press, ids)
    with pytest.raises(ValueError, match="ratio must leave the 4 protected entries of a pool"):
        read_under(model, HubKVPress(kvpress.KnormPress(0.99), scope="head"), ids[:, :24])
    for press in (HubKVPress(base), HubKVPress(kvpress.FastKVzipPress(0.5), scope="head")):
        monkeypatch.setattr(press.press, "post_init_from_model", lambda _: None)
        with pytest.raises(ValueError, match="press must not be inside another press"):
            read_under(model, kvpress.ComposedPress([press]), ids)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="model must not attend by 'eager'"):
        read_under(model, HubKVPress(base), ids)
    cache = read_under(model, HubKVPress(base, scope="head"), ids)
    assert cache.layers[0].keys.shape[2] == LENGTH // 2

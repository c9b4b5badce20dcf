"""HubKV and GraphKV over the scores of kvpress: they keep what the plug-in keeps.

kvpress requires an older transformers than the plug-in, so that these tests run in their own
environment; the nightly workflow has the command. Elsewhere nothing here runs.
"""

from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor

kvpress = pytest.importorskip("kvpress")

from transformers import DynamicCache, LlamaForCausalLM  # noqa: E402
from transformers.cache_utils import CacheLayerMixin  # noqa: E402

# The older transformers has one more abstract method, which the plug-in does not need.
vars(CacheLayerMixin)["get_max_cache_shape"].__isabstractmethod__ = False

import reference  # noqa: E402
from optimized import GraphSettings, HubSettings, Scored  # noqa: E402
from optimized.models.fastkvzip_gates import load_gates  # noqa: E402
from optimized.presses import GraphKVPress, HubKVPress  # noqa: E402
from optimized.tiny import BYTES  # noqa: E402
from spec_tests.accuracy import assert_equal  # noqa: E402
from spec_tests.internal.models.oracle import assert_logits  # noqa: E402
from spec_tests.internal.models.random_model import (  # noqa: E402
    TOKENS,
    WINDOW,
    attached_model,
    models,
    new_model,
    prompts,
    stock_model,
)
from spec_tests.internal.models.test_oracle import turns_after_eviction  # noqa: E402

LENGTH = 88
GRAPH: dict[str, Any] = dict(count=3, length=3000)
HUB: dict[str, Any] = dict(gamma=0.8, tau=1.0, power=1.0)
# A press and its settings, and the settings of our scorer.
SAME = {
    "knorm": (kvpress.KnormPress, {}, {}),
    "snapkv": (kvpress.SnapKVPress, {"window_size": 3}, {"window": 3}),
    "expected_attention": (kvpress.ExpectedAttentionPress, {}, {}),
}
ANY = {
    "cap": kvpress.CapPress(),
    "compactor": kvpress.CompactorPress(),
    "critical": kvpress.CriticalKVPress(kvpress.SnapKVPress(window_size=4)),
    "cur": kvpress.CURPress(),
    "expected attention": kvpress.ExpectedAttentionPress(),
    "keydiff": kvpress.KeyDiffPress(),
    "knorm": kvpress.KnormPress(),
    "lag": kvpress.LagKVPress(lag_size=16),
    "lag, short": kvpress.LagKVPress(),
    "leverage": kvpress.LeverageScorePress(),
    "non-causal": kvpress.NonCausalAttnPress(),
    "observed": kvpress.ObservedAttentionPress(),
    "pyramid": kvpress.PyramidKVPress(window_size=4, beta=4),
    "random": kvpress.RandomPress(seed=3),
    "snapkv": kvpress.SnapKVPress(window_size=4),
    "streaming": kvpress.StreamingLLMPress(),
    "tova": kvpress.TOVAPress(),
}
SURE = {"compactor": (8, 4), "lag": (4, 20), "pyramid": (0, 4), "snapkv": (0, 4), "tova": (0, 1)}
SURE |= dict.fromkeys(("cap", "cur", "expected attention", "lag, short", "streaming"), (4, 0))
SURE |= {"critical": (0, 4)}


def ids_of(rows: int = 2, tokens: int = LENGTH) -> Tensor:
    """Return ids of prompts without padding."""
    return prompts(LENGTH - TOKENS)[0][:rows, :tokens]


def read_under(model, press, ids: Tensor) -> Any:
    """Return the cache of a prompt that was read under a press."""
    cache: Any = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=ids, past_key_values=cache)
    return cache


def kept_entries(model, press, ids: Tensor) -> Tensor:
    """Return the mask of entries that a press keeps (layers, rows, heads, tokens), and check it."""
    whole: Any = DynamicCache()
    with torch.no_grad():
        model.model(input_ids=ids, past_key_values=whole)
    sets = []
    for layer, every, some in zip(
        model.model.layers, whole.layers, read_under(model, press, ids).layers, strict=True
    ):
        same = (every.keys[..., None, :] == some.keys[..., None, :, :]).all(-1).any(-1)
        assert_equal(some.keys, every.keys[same].view_as(some.keys))
        assert_equal(some.values, every.values[same].view_as(some.values))
        gone = getattr(layer.self_attn, "masked_key_indices", None)
        if gone is not None:
            assert bool(same.all())
            same[gone] = False
        sets.append(same)
    return torch.stack(sets)


def plugin_entries(model, name: str, ids: Tensor, monkeypatch, **how: Any) -> Tensor:
    """Return the mask of entries that the plug-in keeps."""
    sets: list[Tensor] = []
    monkeypatch.setattr(models.EvictionCache, "evict", lambda _, one, *__: sets.append(one))
    models.compressed(model, name, ids, **how)
    return sets[0]


def record_scores(press, monkeypatch) -> list[Tensor]:
    """Return a list that collects the scores of a press, layer by layer."""
    scores: list[Tensor] = []
    score = press.score

    def listening(*given: Any) -> Tensor:
        scores.append(score(*given))
        return scores[-1].clone()

    monkeypatch.setattr(press, "score", listening)
    return scores


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@pytest.mark.parametrize("ratio", [0.3, 0.75, 0.9])
def test_hubkv_keeps_what_the_plug_in_keeps(name, scope, ratio, monkeypatch):
    kind, theirs, settings = SAME[name]
    found = kept_entries(
        stock_model("llama"), HubKVPress(kind(ratio, **theirs), scope=scope), ids_of()
    )
    how: dict[str, Any] = dict(ratio=ratio, settings=settings, refined=HubSettings())
    wanted = plugin_entries(
        attached_model("llama"), f"{name}@{scope}", ids_of(), monkeypatch, **how
    )
    assert_equal(found, wanted)


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("ratio", [0.3, 0.75, 0.9])
def test_graphkv_keeps_what_the_plug_in_keeps(name, ratio, monkeypatch):
    kind, theirs, settings = SAME[name]
    found = kept_entries(
        stock_model("llama"), GraphKVPress(kind(ratio, **theirs), **GRAPH), ids_of()
    )
    refined = GraphSettings(GRAPH["count"], adaptive=False)
    how: dict[str, Any] = dict(ratio=ratio, settings=settings, refined=refined)
    assert_equal(found, plugin_entries(attached_model("llama"), name, ids_of(), monkeypatch, **how))


@pytest.mark.parametrize("name", SAME)
def test_settings_are_the_specifications(name, monkeypatch):
    kind, theirs, settings = SAME[name]
    press = HubKVPress(kind(0.75, **theirs), scope="head", **HUB)
    how: dict[str, Any] = dict(ratio=0.75, settings=settings, refined=HubSettings(**HUB))
    wanted = plugin_entries(attached_model("llama"), name, ids_of(), monkeypatch, **how)
    assert_equal(kept_entries(stock_model("llama"), press, ids_of()), wanted)
    graph: dict[str, Any] = dict(strength=0.5, fraction=0.5, per_head=True, signal="enhance")
    press = GraphKVPress(kind(0.75, **theirs), **GRAPH, **graph)
    how["refined"] = GraphSettings(GRAPH["count"], **graph)
    wanted = plugin_entries(attached_model("llama"), name, ids_of(), monkeypatch, **how)
    assert_equal(kept_entries(stock_model("llama"), press, ids_of()), wanted)


def test_a_press_has_the_keywords_of_the_specification_and_its_defaults():
    hub, graph = signature(HubKVPress).parameters, signature(GraphKVPress).parameters
    assert list(hub) == ["press", "scope", "sinks", "recent", *HubSettings._fields, "ends"]
    assert list(graph) == ["press", "length", *GraphSettings._fields[:-1], "ends"]
    asked = signature(reference.hubkv_select).parameters
    assert all(hub[name].default == asked[name].default for name in ("scope", "sinks", "recent"))
    assert all(hub[name].default == one for name, one in HubSettings()._asdict().items())
    assert graph["count"].default is graph["count"].empty


@pytest.fixture(scope="module")
def shipped():
    return [LlamaForCausalLM.from_pretrained(BYTES).eval() for _ in range(2)]


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("rows", [1, 3])
def test_on_the_shipped_model_too(shipped, name, rows, monkeypatch):
    theirs, own = shipped
    kind, told, settings = SAME[name]
    ids = torch.randint(97, 123, (rows, 200), generator=torch.Generator().manual_seed(2))
    how: dict[str, Any] = dict(ratio=0.8, settings=settings, refined=HubSettings())
    for scope in ("head", "layer", "model"):
        press = HubKVPress(kind(0.8, **told), scope=scope)
        wanted = plugin_entries(own, f"{name}@{scope}", ids, monkeypatch, **how)
        assert_equal(kept_entries(theirs, press, ids), wanted)


@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@pytest.mark.parametrize("chunk", [2048, 50])
def test_over_kvzip_the_plug_in_that_is_asked_as_kvpress_asks(shipped, scope, chunk, monkeypatch):
    theirs, own = shipped
    ids = torch.randint(97, 123, (1, 160), generator=torch.Generator().manual_seed(2))
    press = kvpress.KVzipPress(0.7, n_sink=0, chunk_size=chunk)
    pairs: list[tuple[Tensor, Tensor]] = []
    prepare = press.prepare
    monkeypatch.setattr(
        press, "prepare", lambda *of: pairs.__setitem__(slice(None), prepare(*of)) or pairs
    )
    found = kept_entries(theirs, HubKVPress(press, scope=scope), ids)
    graph = kept_entries(theirs, GraphKVPress(press, **GRAPH), ids)

    def prompt(index: int, part: Tensor) -> Tensor:
        return pairs[index][1][0, : -len(part)]

    settings = dict(prompt=prompt, chunk=chunk, sinks=0, recent=0)
    how: dict[str, Any] = dict(ratio=0.7, settings=settings, refined=HubSettings())
    assert_equal(found, plugin_entries(own, f"kvzip@{scope}", ids, monkeypatch, **how))
    how["refined"] = GraphSettings(GRAPH["count"])
    assert_equal(graph, plugin_entries(own, "kvzip@head", ids, monkeypatch, **how))
    assert "compress_post" not in vars(press)


@pytest.mark.parametrize("scope", ["head", "layer", "model"])
def test_over_fastkvzip_with_the_gates_of_the_shipped_model(shipped, scope, monkeypatch):
    theirs, own = shipped
    ids = torch.randint(97, 123, (1, 160), generator=torch.Generator().manual_seed(2))
    press = kvpress.FastKVzipPress(0.7)
    press.gates = [gate_of(one) for one in load_gates(BYTES, 4) or ()]
    with torch.no_grad():
        found = kept_entries(theirs, HubKVPress(press, scope=scope), ids)
    how: dict[str, Any] = dict(ratio=0.7, refined=HubSettings())
    assert_equal(found, plugin_entries(own, f"fastkvzip@{scope}", ids, monkeypatch, **how))


def gate_of(own) -> Any:
    """Return a gate of kvpress with our weights."""
    heads, group, width, hidden = own.query.shape
    learned = own.learned.shape[1]
    module = kvpress.presses.fastkvzip_press.FastKVzipGate(
        0, hidden, heads, group, torch.float32, width, learned
    )
    state = {
        "q_proj.weight": own.query.reshape(-1, hidden),
        "q_proj.bias": own.query_bias.reshape(-1),
        "k_proj.weight": own.key.reshape(-1, hidden),
        "q_norm.weight": own.query_scale,
        "k_norm.weight": own.key_scale,
        "k_base": own.learned[:, None],
        "b": own.bias[:, None],
    }
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("paper", ["hubkv", "graphkv"])
def test_every_press_that_scores_is_refined_by_what_it_says_beside_its_marks(
    name, paper, monkeypatch
):
    base, model = ANY[name], new_model("llama")
    if name == "observed":
        model.set_attn_implementation("eager")
    base.compression_ratio = 0.5
    hub, graph = HubKVPress(base, scope="head"), GraphKVPress(base, **GRAPH, kind="qk")
    press = hub if paper == "hubkv" else graph
    said = record_scores(base, monkeypatch)
    found = kept_entries(model, press, ids_of())
    first, last = SURE.get(name, (0, 0))
    asked = Attention(ids_of())
    budget: dict[str, Any] = dict(ratio=0.5)
    for place, (scores, sets) in enumerate(zip(said, found, strict=True)):
        protected = torch.zeros_like(scores, dtype=torch.bool)
        protected[..., :first] = protected[..., LENGTH - last :] = True
        if name == "critical":
            protected |= scores == torch.finfo(scores.dtype).max
        raw = scores.masked_fill(protected, 0)
        raw = raw if bool((raw >= 0).all()) else reference.shift_scores(raw)
        if name == "pyramid":
            budget = dict(keep=base.get_layer_budget(model.model.layers[place].self_attn, LENGTH))
        layer = asked.keys[place], asked.keys[place], Scored(raw, protected)
        if paper == "hubkv":
            wanted = reference.hubkv_select(*layer, scope="head", **budget)
        else:
            settings = GraphSettings(GRAPH["count"], kind="qk")
            how: dict[str, Any] = dict(length=GRAPH["length"], queries=asked.queries[place])
            wanted = reference.graphkv_select(*layer, settings, **how, **budget)
        assert_equal(sets, wanted)


class Attention:
    """The queries and keys of each layer, at the input of its attention."""

    def __init__(self, ids: Tensor) -> None:
        self.queries: list[Tensor] = []
        self.keys: list[Tensor] = []
        models.prefill(models.attach(new_model("llama")), ids, watch=[self.watch])

    def watch(self, step) -> None:
        """Store the queries and keys of one layer."""
        self.queries.append(step.queries)
        self.keys.append(step.keys)


@pytest.mark.parametrize("name", sorted(ANY.keys() - {"critical"}))
def test_what_a_press_marks_is_what_is_protected(name, monkeypatch):
    base, model = ANY[name], new_model("llama")
    if name == "observed":
        model.set_attn_implementation("eager")
    base.compression_ratio = 0.5
    said = record_scores(base, monkeypatch)
    read_under(model, HubKVPress(base, scope="head"), ids_of())
    first, last = SURE.get(name, (0, 0))
    for scores in said:
        least = scores[0, 0]
        marks = (scores == least).flatten(0, 1).all(0) & (least >= scores.amax())
        if name == "streaming":  # its ratio also marks recent tokens
            marks[first:] = False
        assert marks.nonzero()[:, 0].tolist() == [*range(first), *range(LENGTH - last, LENGTH)]


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
def test_the_model_attends_to_what_is_kept_and_to_nothing_else(kind, scope):
    ids, stops = prompts(4)[0], (25, 26, 27, 28)
    press = HubKVPress(kvpress.SnapKVPress(0.5, window_size=3), scope=scope)
    model = stock_model(kind)
    turns = turns_after_eviction(kind, kept_entries(model, press, ids[:, :TOKENS]), stops)
    cache, logits = read_under(model, press, ids[:, :TOKENS]), []
    for stop in stops:
        place = torch.arange(stop - 1, stop)[None]
        with torch.no_grad():
            logits.append(model(ids[:, place[0]], past_key_values=cache, position_ids=place).logits)
    assert_logits(torch.cat(logits, 1), kind, ids, torch.ones_like(ids), 4, turns)


def test_heads_of_one_length_are_cut_out_and_others_are_masked():
    model, base = new_model("llama"), kvpress.SnapKVPress(0.75, window_size=3)
    sizes = {
        scope: [layer.keys.shape[2] for layer in read_under(model, press, ids_of()).layers]
        for scope, press in {
            "head": HubKVPress(base, scope="head"),
            "layer": HubKVPress(base, scope="layer"),
            "model": HubKVPress(base),
            "graph": GraphKVPress(base, **GRAPH),
        }.items()
    }
    assert sizes == {"head": [22, 22], "graph": [22, 22], "layer": [88, 88], "model": [88, 88]}
    pyramid = kvpress.PyramidKVPress(0.5, window_size=4, beta=4)
    cache = read_under(model, GraphKVPress(pyramid, **GRAPH), ids_of())
    assert [layer.keys.shape[2] for layer in cache.layers] == [88, 88]


def test_a_prompt_no_longer_than_what_is_protected_stays_whole():
    model = new_model("llama")
    for press in (
        HubKVPress(kvpress.SnapKVPress(0.5, window_size=LENGTH)),
        GraphKVPress(kvpress.ExpectedAttentionPress(0.5, n_sink=LENGTH), **GRAPH),
        HubKVPress(kvpress.KnormPress(0.0)),
    ):
        assert bool(kept_entries(model, press, ids_of()).all())


def test_ten_of_a_hundred_are_kept_at_nine_tenths():
    model, ids = new_model("llama"), prompts(76)[0]
    press = kvpress.KnormPress(0.9)
    assert read_under(model, press, ids[:, :80]).layers[0].keys.shape[2] == 7
    ours = HubKVPress(press, scope="head")
    assert read_under(model, ours, ids[:, :80]).layers[0].keys.shape[2] == 8


class WithSentinels(HubKVPress):
    """A mistake: the press's marks stay in the scores, and protect tokens instead of a mask."""

    def scored(self, scores: Tensor) -> Scored:
        """Return scores without protected entries."""
        raw = scores - scores.amin().clamp(max=0)
        return Scored(raw, torch.zeros_like(raw, dtype=torch.bool))


class WithOnes(HubKVPress):
    """A mistake: it marks protected entries by a score of 1, as the paper prints."""

    def scored(self, scores: Tensor) -> Scored:
        """Return scores with 1 at protected entries."""
        said = super().scored(scores)
        return Scored(said.scores.masked_fill(said.protected, 1), said.protected & False)


class InBinary(HubKVPress):
    """A mistake: it rounds the number of kept entries like kvpress."""

    def budget(self, layer) -> dict[str, Any]:
        """Return a budget rounded in binary."""
        tokens = layer.keys.shape[2]
        return dict(keep=int(tokens * (1 - self.compression_ratio)))


class Unshielded(HubKVPress):
    """A mistake: it ignores the ends that a press keeps."""

    def ends(self, tokens: int) -> tuple[int, int]:
        """Return no protected tokens."""
        del tokens
        return 0, 0


class ShiftedOnce(HubKVPress):
    """A mistake: it shifts the negative scores of all heads by one number."""

    def scored(self, scores: Tensor) -> Scored:
        """Return scores shifted by their overall minimum."""
        return Scored(scores - scores.amin(), scores > torch.inf)


LIES = {
    WithSentinels: ("snapkv", 0.75, "layer"),
    WithOnes: ("expected_attention", 0.75, "head"),
    InBinary: ("knorm", 0.9, "head"),
    Unshielded: ("expected_attention", 0.75, "head"),
    ShiftedOnce: ("knorm", 0.75, "layer"),
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_keeps_something_else(lie, monkeypatch):
    name, ratio, scope = LIES[lie]
    kind, theirs, settings = SAME[name]
    ids, model = prompts(76)[0][:, :80], stock_model("llama")
    how: dict[str, Any] = dict(ratio=ratio, settings=settings, refined=HubSettings())
    wanted = plugin_entries(attached_model("llama"), f"{name}@{scope}", ids, monkeypatch, **how)
    own = dict(sinks=0) if name == "expected_attention" else {}  # the press protects its own sinks
    press = kind(ratio, **theirs)
    assert_equal(kept_entries(model, HubKVPress(press, scope=scope, **own), ids), wanted)
    assert not torch.equal(kept_entries(model, lie(press, scope=scope, **own), ids), wanted)


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
    assert bool(kept_entries(new_model("llama"), press, ids_of())[..., 0].all())


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda: HubKVPress(kvpress.KnormPress(), gamma=2), ValueError, "refinement.gamma must be"),
        (lambda: HubKVPress(kvpress.KnormPress(), scope="all"), ValueError, "scope must be one of"),
        (lambda: HubKVPress(kvpress.KnormPress(), sinks=-1), ValueError, "sinks must be"),
        (lambda: HubKVPress(kvpress.KnormPress(), gama=0.5), TypeError, "'gama'"),
        (lambda: GraphKVPress(kvpress.KnormPress()), TypeError, "'count'"),
        (lambda: GraphKVPress(kvpress.KnormPress(), 8), TypeError, "positional"),
        (
            lambda: GraphKVPress(kvpress.KnormPress(), count=3, adaptive=True),
            TypeError,
            "'adaptive'",
        ),
        (
            lambda: HubKVPress(kvpress.AdaKVPress(kvpress.KnormPress())),
            TypeError,
            "press must be a ScorerPress",
        ),
        (lambda: HubKVPress(kvpress.RestoreKVPress()), TypeError, "press must be a ScorerPress"),
        (
            lambda: HubKVPress(kvpress.PyramidKVPress()),
            ValueError,
            "scope must be 'head' or 'layer' over a PyramidKVPress",
        ),
        (
            lambda: HubKVPress(kvpress.KVzipPress(layerwise=True)),
            ValueError,
            "scope must be 'layer' where the press is layerwise, got 'model'",
        ),
        (
            lambda: GraphKVPress(kvpress.KVzipPress(), count=3, kind="qq"),
            ValueError,
            "kind must compare keys or values over a KVzipPress",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_a_press_is_made(made, error, said):
    with pytest.raises(error, match=said):
        made()


def test_what_kvpress_cannot_store_or_score_is_refused(monkeypatch):
    model, base = new_model("llama"), kvpress.KnormPress(0.5)
    ids, mask = prompts()
    with (
        torch.no_grad(),
        HubKVPress(base)(model),
        pytest.raises(ValueError, match=r"attention_mask must hide no token .* got 5 hidden"),
    ):
        model.model(input_ids=ids, attention_mask=mask, past_key_values=DynamicCache())
    hidden = 2 * (TOKENS - WINDOW)  # in two rows
    for press in (HubKVPress(base), GraphKVPress(base, count=2)):
        with pytest.raises(ValueError, match=f"got {hidden} hidden, by padding or by a window"):
            read_under(new_model("gemma2"), press, ids)
    with pytest.raises(ValueError, match="ratio must leave the 4 protected entries of a pool"):
        read_under(model, HubKVPress(kvpress.KnormPress(0.99), scope="head"), ids)
    for press in (HubKVPress(base), HubKVPress(kvpress.FastKVzipPress(0.5), scope="head")):
        monkeypatch.setattr(press.press, "post_init_from_model", lambda _: None)
        with pytest.raises(ValueError, match="press must not be inside another press"):
            read_under(model, kvpress.ComposedPress([press]), ids)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="model must not attend by 'eager'"):
        read_under(model, HubKVPress(base), ids)
    assert (
        read_under(model, HubKVPress(base, scope="head"), ids).layers[0].keys.shape[2]
        == TOKENS // 2
    )


def test_a_press_that_failed_leaves_nothing_behind(monkeypatch):
    model, base = new_model("llama"), kvpress.KnormPress(0.5)
    press = HubKVPress(base)
    with monkeypatch.context() as patch:
        patch.setattr(model.model.layers[1], "forward", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read_under(model, press, ids_of())
    assert press.layers == []
    assert not model.model._forward_hooks
    assert_equal(
        kept_entries(model, press, ids_of()), kept_entries(model, HubKVPress(base), ids_of())
    )

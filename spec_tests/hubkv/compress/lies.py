"""Lies about HubKV as a whole."""

from spec_tests.mutants.make import lies

lie = lies("hubkv/compress")

# of `hubkv_compress`: `hubkv_select` has no store
DEFAULTS = """    scope: Scope = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: Whole = 4,
    recent: Whole | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store"""

lie(
    "no_sinks_of_its_own",
    "sinks are left to the scorer",
    "(mine | (position < sinks))",
    "mine",
    "vector:the-first-real-token-and-the-last-are-marked",
)
lie(
    "power_of_its_own",
    "the gate squares the ratio whatever the settings say",
    """shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        valid=valid,
""",
    """shielded, keep=keep, ratio=ratio, scope=scope,
        refinement=refinement._replace(power=2.0), valid=valid,
""",
    "test_what_is_kept_ranks_first_by_the_refined_scores",
)
lie(
    "padded_sinks",
    "sinks are counted from the start of the padding",
    "(position < sinks)",
    "(position + row.place[-1].start < sinks)",
    "vector:the-first-real-token-is-the-sink",
)
lie(
    "budget_gives_way",
    "the budget grows where the window does not fit",
    "shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)",
    "axes = {'head': (), 'layer': (-2,), 'model': (0, -2)}[scope]\n"
    "    heads = int(torch.tensor([keys.shape[:-1][axis] for axis in axes]).prod())\n"
    "    keep = max(keep, heads * (sinks + recent)) if recent and store is None else keep\n"
    "    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)",
    "test_the_window_gives_way_and_says_so",
)
lie(
    "head_by_head",
    "every head is a pool of its own unless told otherwise",
    DEFAULTS,
    DEFAULTS.replace('"model"', '"head"'),
    "test_layers_compete_with_each_other_by_default",
)
lie(
    "always_padded",
    "without padding it says that all tokens are real, which only append mode takes",
    "shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)",
    "real = scored.scores[..., 0, :] >= 0 if valid is None else valid\n"
    "    storable(keys, values, real, store)\n"
    "    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)",
    "test_in_hex_the_ends_need_no_budget",
)

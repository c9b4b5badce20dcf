"""Lies about CAKE's budgets."""

from spec_tests.mutants.make import lies

lie = lies("scorers/cake_budgets")

lie(
    "cake_remainder_lost",
    "what truncation and clipping leave over is lost",
    "while left:",
    "while left < 0:",
    "test_exact_budgets_add_up_to_all_there_is",
)
lie(
    "cake_unclipped",
    "a layer may get more than there is",
    "int(lengths[row])\n        shares = [max",
    "2**20\n        shares = [max",
    "test_budgets_hold_the_window_and_no_more_than_there_is",
)
lie(
    "cake_last_first",
    "the remainder goes to the last layers",
    "enumerate(below)",
    "enumerate(below[::-1])",
    "vector:what-truncation-leaves-goes-to-the-first",
)
lie(
    "cake_clairvoyant",
    "a layer gets its final share at once",
    "divided(wishes[: step + 1], (keep - window) * layers, shares)",
    "divided(wishes, (keep - window) * layers, shares[-1:] * layers)[: step + 1]",
    "test_every_step_of_an_exact_cascade_shares_the_whole_budget",
)
lie(
    "cake_resurrected",
    "the last step shares out as if nothing had been evicted",
    "shares = [*shares, max(0, length - window)]",
    "shares = [*(shares if step + 1 < layers else step * [length]), max(0, length - window)]",
    "vector:what-is-gone-does-not-come-back",
)
lie(
    "cake_nothing_lost",
    "what a deal overfills is given on",
    "_adjusted\n            shares = divided(wishes, ",
    "_shared\n            shares = divided(wishes, ",
    "vector:what-a-deal-overfills-is-lost",
)
lie(
    "cake_always_evicts",
    "a prompt of a window more than the budget is evicted from",
    "if exact or length > keep + window:\n            divided",
    "if True:\n            divided",
    "test_a_prompt_of_a_window_more_than_the_budget_is_kept_whole",
)
lie(
    "cake_cascade_spends_all",
    "what a layer cannot take back goes to another",
    "_adjusted\n                shares = divided(wishes[",
    "_shared\n                shares = divided(wishes[",
    "vector:the-authors-cascade-ends-a-place-short",
)
lie(
    "cake_coarse_parts",
    "preferences are counted in 64 parts",
    "ldexp(wish, 24 - exponent)",
    "ldexp(wish, 6 - exponent)",
    "vector:a-thousandth-of-a-preference-counts",
)

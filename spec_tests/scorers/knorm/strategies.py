"""KNorm on a whole prompt; its inputs are derived from its signature."""

SCORED = dict(knorm=lambda impl, keys, valid, **_: impl.knorm(keys, valid, shift=True))

"""Names of the paper's systems."""

from hypothesis import strategies as st

INPUTS = dict(hex_preset=dict(name=st.sampled_from(["HEX-3", "Table4-4-H2O-EO"])))

GOOD = dict(hex_preset=dict(name="HEX-3"))

"""The paper's settings: HEX §4.2 to §4.4."""

import pytest

import reference
from reference.hex.presets import PRESETS


@pytest.mark.spec("HEX-4.2b")
def test_the_defaults_are_the_papers(impl):
    config = impl.hex_preset("HEX-3")
    assert config == reference.HexConfig()
    assert (config.bits, config.block, config.recent, config.mode) == (3, 96, 8, "append")
    assert (config.density, config.heavy) == (0.03125, 0.02)
    assert impl.hex_preset("HEX-4") == config._replace(bits=4)
    assert impl.hex_preset("LongBench-4").density == 0.046875


@pytest.mark.spec("HEX-Tab4")
def test_table_4_has_ten_rows_of_settings(impl):
    rows = [impl.hex_preset(name) for name in PRESETS if name.startswith("Table4")]
    settings = [(c.bits, 100 * c.density, 100 * c.heavy, c.recent) for c in rows]
    assert settings == [
        (3, 3.125, 2, 8), (3, 3.125, 0, 0), (3, 0, 2, 8), (3, 0, 0, 0),
        (4, 4.6875, 2, 8), (4, 4.6875, 0, 0), (4, 7.8125, 0, 0), (4, 0, 2, 8), (4, 0, 5, 16),
        (4, 0, 0, 0),
    ]  # fmt: skip

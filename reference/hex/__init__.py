"""HEX: expander masks, heavy hitters and coarse quantisation of the key-value cache."""

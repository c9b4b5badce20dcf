"""HEX without loops."""

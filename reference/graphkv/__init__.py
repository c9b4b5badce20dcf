"""GraphKV: decay of importance scores along a similarity graph of keys."""

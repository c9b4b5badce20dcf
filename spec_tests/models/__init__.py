"""Laws, one file per file of the reference."""

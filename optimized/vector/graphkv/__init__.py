"""GraphKV's graphs, signals and refinement, without loops over sources, rounds or graphs."""

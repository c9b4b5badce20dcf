"""Base importance scores: what HubKV and GraphKV refine, each as its own authors compute it."""

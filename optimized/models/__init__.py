"""Language models of `transformers`, and a small one that is shipped."""

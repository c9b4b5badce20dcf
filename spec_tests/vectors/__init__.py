"""The archive of test vectors, for programs without Python: `python -m spec_tests.vectors OUT`."""

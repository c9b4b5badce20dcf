"""The module under test: the functions of `hubkv_numpy`, called with tensors."""

import hubkv_numpy

from spec_tests.numpy_adapter import adapted

kv = adapted(hubkv_numpy)

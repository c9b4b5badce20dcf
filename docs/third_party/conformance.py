"""What the suite is pointed at: the module's functions, among tensors."""

import hubkv_numpy

from spec_tests.numpy_adapter import adapted

kv = adapted(hubkv_numpy)

"""`torch.compile` makes one graph of a call, its contract included."""

from copy import deepcopy

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_equal
from spec_tests.inputs import GOOD

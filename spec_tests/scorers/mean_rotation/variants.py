"""Other ways to average rotations."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("mean_rotation")
def by_diagonals(frequencies, start, future=512):
    """Average cosines and sines, and put them on diagonals of blocks."""
    at = torch.as_tensor(start).double()[..., None] + torch.arange(future)
    angles = at[..., None] * frequencies.double()
    c, s = angles.cos().mean(-2).diag_embed(), angles.sin().mean(-2).diag_embed()
    mean = torch.cat([torch.cat([c, -s], -1), torch.cat([s, c], -1)], -2)
    return mean.to(torch.promote_types(frequencies.dtype, torch.float32))


@register_variant("mean_rotation", "values")
@among_tensors
def by_complex_numbers(frequencies, start, future=512):
    """Average complex exponentials, and use their real and imaginary parts."""
    at = np.asarray(start)[..., None] + np.arange(future)
    z = np.exp(1j * at[..., None] * frequencies.astype(np.float64)).mean(-2)
    eye = np.eye(len(frequencies))
    c, s = z.real[..., None] * eye, z.imag[..., None] * eye
    dtype = np.promote_types(frequencies.dtype, np.float32)
    return np.concatenate([np.concatenate([c, -s], -1), np.concatenate([s, c], -1)], -2).astype(
        dtype
    )

"""The ChaCha20 block function as one GPU kernel (Pallas on Triton). Imported on a GPU only."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import triton

from dpmcmc.curator.noise.cipher import CONSTANTS, double_round


def chacha20_kernel(key, counters, interpret: bool = False):
    """The words of `cipher.chacha20`.

    XLA would start several kernels for each of the ten double rounds.
    """
    flat = counters.reshape(-1, 4)
    block = min(128, 1 << (len(flat) - 1).bit_length())
    flat = jnp.pad(flat, ((0, -len(flat) % block), (0, 0)))

    def kernel(constants_ref, key_ref, counters_ref, out_ref):
        row = [
            jnp.broadcast_to(ref[i], (block,))
            for ref in (constants_ref, key_ref)
            for i in range(ref.shape[0])
        ]
        start = (*row, *(counters_ref[:, i] for i in range(4)))
        mixed = lax.fori_loop(
            np.int32(0), np.int32(10), lambda _, words: double_round(words), start
        )
        for i in range(16):
            out_ref[:, i] = mixed[i] + start[i]

    zero = np.int32(0)
    whole = [pallas.BlockSpec((size,), lambda i: (zero,)) for size in (4, 8)]
    blocks = pallas.pallas_call(
        kernel,
        grid=(len(flat) // block,),
        in_specs=[*whole, pallas.BlockSpec((block, 4), lambda i: (i, zero))],
        out_specs=pallas.BlockSpec((block, 16), lambda i: (i, zero)),
        out_shape=jax.ShapeDtypeStruct((len(flat), 16), jnp.uint32),
        compiler_params=triton.CompilerParams(num_warps=1),
        interpret=interpret,
    )(jnp.asarray(CONSTANTS), key, flat)
    return blocks[: math.prod(counters.shape[:-1])].reshape(*counters.shape[:-1], 16)

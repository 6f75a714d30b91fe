"""Compilation without optimisation: a simulation takes less time than to optimise it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function for arguments of these shapes."""
    return jax.jit(function).lower(*arguments).compile(compiler_options=OPTIONS)

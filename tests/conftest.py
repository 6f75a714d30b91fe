"""Compiled programs are cached for the session: many tests run the same small ones."""

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.getbasetemp() / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

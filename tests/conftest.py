"""Compiled programs are cached for the session: many tests run the same small ones. Hypothesis
tries the same examples always.
"""

import gc
import os

import hypothesis
import jax
import pytest

# No deadline either: a busy machine is no fault of the code.
hypothesis.settings.register_profile("dpmcmc", deadline=None, derandomize=True)
hypothesis.settings.load_profile("dpmcmc")

# Traced programs are many small objects that stay: looking through them as often as Python does
# took an eighth of the time.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    own = tmp_path_factory.getbasetemp()
    # Workers compile the same programs
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    jax.config.update("jax_compilation_cache_dir", str(shared / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def quick_compilation(request):
    """For programs that run for a moment only (not in slow tests), and whose numbers are not looked
    at to the last digit.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update(
        "jax_disable_most_optimizations", request.node.get_closest_marker("slow") is None
    )
    yield
    jax.config.update("jax_disable_most_optimizations", before)

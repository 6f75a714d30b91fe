"""Who makes a pass over rows that do not fit memory: this process, or the workers of a cluster."""

from dpmcmc.engines.partitions import Partial, Partitions, add, hidden, loaded, pass_over, sum_over
from dpmcmc.engines.stream import Stream, engine_of

__all__ = [
    "Partial",
    "Partitions",
    "Stream",
    "add",
    "engine_of",
    "hidden",
    "loaded",
    "pass_over",
    "sum_over",
]

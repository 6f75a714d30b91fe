"""What to doubt about a run, in words: told from public settings and from what was released, as any reader could tell it."""

from dpmcmc.doubts.draws import UNHEARD, UNRELIABLE, of_draws, of_start, of_survey
from dpmcmc.doubts.model import of_bounds, of_gradients, of_parts, of_positions, of_settings, of_values

__all__ = [
    "UNHEARD",
    "UNRELIABLE",
    "of_bounds",
    "of_draws",
    "of_gradients",
    "of_parts",
    "of_positions",
    "of_settings",
    "of_start",
    "of_survey",
    "of_values",
]

"""Findings about a run: from public settings and from what was released, so that any reader could
make them.
"""

from dpmcmc.diagnostics.chains import FREE, PAID, UNCONVERGED, Limits, of_chains
from dpmcmc.diagnostics.draws import of_draws
from dpmcmc.diagnostics.model import (
    of_bounds,
    of_gradients,
    of_parts,
    of_positions,
    of_settings,
    of_values,
)
from dpmcmc.diagnostics.prior import prior_widths
from dpmcmc.diagnostics.survey import of_start, of_survey
from dpmcmc.diagnostics.whitened import of_whitened

__all__ = [
    "FREE",
    "PAID",
    "UNCONVERGED",
    "Limits",
    "of_bounds",
    "of_chains",
    "of_draws",
    "of_gradients",
    "of_parts",
    "of_positions",
    "of_settings",
    "of_start",
    "of_survey",
    "of_values",
    "of_whitened",
    "prior_widths",
]

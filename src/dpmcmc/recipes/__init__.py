"""Settings from public facts, and what to expect of them: one file for each recipe.

recipe = dpmcmc.recipes.noise_aware_for(curator)
result = dpmcmc.sample(rng_key, recipe.sampler, curator, position, **recipe.options)
"""

from dpmcmc.recipes import forecast
from dpmcmc.recipes.budgets import gaussian_mu, part_of

# What the command line needs besides the public names
from dpmcmc.recipes.choice import ByHand as ByHand
from dpmcmc.recipes.choice import as_typed as as_typed
from dpmcmc.recipes.choice import choose as choose
from dpmcmc.recipes.choice import draws_worth as draws_worth
from dpmcmc.recipes.choice import expected_widening as expected_widening
from dpmcmc.recipes.choice import instead as instead
from dpmcmc.recipes.choice import is_about_the_worst as is_about_the_worst
from dpmcmc.recipes.choice import most_draws as most_draws
from dpmcmc.recipes.choice import name_of as name_of
from dpmcmc.recipes.clip_shift import clip_shift
from dpmcmc.recipes.counting import Counted, Counting, counting_for
from dpmcmc.recipes.hope import is_few as is_few
from dpmcmc.recipes.hope import why_hopeless as why_hopeless
from dpmcmc.recipes.langevin import ATTAINED, STIFFNESS, langevin, langevin_for, step_size
from dpmcmc.recipes.noise_aware import noise_aware, noise_aware_for
from dpmcmc.recipes.recipe import COUNT_SHARE, Recipe, SamplerName
from dpmcmc.recipes.simulated.recipe import SIMULATED, Expected, simulated, simulated_for
from dpmcmc.recipes.start import private_start, start_plan
from dpmcmc.recipes.walks import (
    BIT_NOISE,
    RATIO_NOISE,
    Moves,
    effective_draws,
    moves,
    noise_multiplier,
    walk,
    walk_after_start,
)
from dpmcmc.recipes.whitened import Preview, Previewed
from dpmcmc.recipes.whitened import is_whitened as is_whitened
from dpmcmc.recipes.whitened import worth_left as worth_left

__all__ = [
    "ATTAINED",
    "BIT_NOISE",
    "COUNT_SHARE",
    "RATIO_NOISE",
    "SIMULATED",
    "STIFFNESS",
    "Counted",
    "Counting",
    "Expected",
    "Moves",
    "Preview",
    "Previewed",
    "Recipe",
    "SamplerName",
    "clip_shift",
    "counting_for",
    "effective_draws",
    "forecast",
    "gaussian_mu",
    "langevin",
    "langevin_for",
    "moves",
    "noise_aware",
    "noise_aware_for",
    "noise_multiplier",
    "part_of",
    "private_start",
    "simulated",
    "simulated_for",
    "start_plan",
    "step_size",
    "walk",
    "walk_after_start",
]

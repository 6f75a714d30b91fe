"""Settings from public facts, and what to expect of them: one file a recipe.

recipe = dpmcmc.recipes.noise_aware_for(curator)
result = dpmcmc.sample(rng_key, recipe.sampler, curator, position, **recipe.options)
"""

from dpmcmc.recipes import forecast
from dpmcmc.recipes.budgets import gaussian_mu, multiplier, part_of
from dpmcmc.recipes.choice import (
    ByHand,
    as_typed,
    choose,
    draws_worth,
    expected_widening,
    is_about_the_worst,
    most_draws,
    name_of,
)
from dpmcmc.recipes.clip_shift import clip_shift
from dpmcmc.recipes.counting import Counted, Counting, counting_for
from dpmcmc.recipes.hope import FEWEST_DRAWS, MAX_WIDENING, is_few, why_hopeless
from dpmcmc.recipes.langevin import (
    ATTAINED,
    STIFFNESS,
    langevin,
    langevin_for,
    langevin_step,
    langevin_steps,
    step_size,
)
from dpmcmc.recipes.noise_aware import noise_aware, noise_aware_for, widening, widening_for
from dpmcmc.recipes.recipe import COUNT_SHARE, Recipe, SamplerName
from dpmcmc.recipes.start import private_start, start_plan, start_queries
from dpmcmc.recipes.walks import (
    BIT_NOISE,
    LENGTH,
    RATIO_NOISE,
    effective_draws,
    moves,
    noise_multiplier,
    walk,
    walk_after_start,
    walk_query,
)

__all__ = [
    "ATTAINED",
    "BIT_NOISE",
    "COUNT_SHARE",
    "FEWEST_DRAWS",
    "LENGTH",
    "MAX_WIDENING",
    "RATIO_NOISE",
    "STIFFNESS",
    "ByHand",
    "Counted",
    "Counting",
    "Recipe",
    "SamplerName",
    "as_typed",
    "choose",
    "clip_shift",
    "counting_for",
    "draws_worth",
    "effective_draws",
    "expected_widening",
    "forecast",
    "gaussian_mu",
    "is_about_the_worst",
    "is_few",
    "langevin",
    "langevin_for",
    "langevin_step",
    "langevin_steps",
    "most_draws",
    "moves",
    "multiplier",
    "name_of",
    "noise_aware",
    "noise_aware_for",
    "noise_multiplier",
    "part_of",
    "private_start",
    "start_plan",
    "start_queries",
    "step_size",
    "walk",
    "walk_after_start",
    "walk_query",
    "why_hopeless",
    "widening",
    "widening_for",
]

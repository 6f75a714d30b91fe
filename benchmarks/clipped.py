"""What a clip costs where no bound is proved: the recipe of docs/extend.md on regressions, beside
NUTS on the same rows.

    python benchmarks/clipped.py linear|poisson|unknown|robust [--rows N] [--epsilon E] [--quantile
    Q]

The clip is what a share Q of made-up rows stays below. `unknown` is a linear regression whose noise
is a parameter, `robust` the same by `models.robust_linear`, which has a proved bound and starts at
zero. For each parameter: how far the private mean is from NUTS', and how wide the private posterior
is, both in NUTS' standard deviations.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import dpmcmc

NOISE, COEFFICIENTS = 0.125, np.array([0.1, 0.4, -0.2])
OF_NORMAL = 0.871  # the scale of Huber's law, over the standard deviation of normal noise
# Of the coefficients, from public knowledge: not what the rows were made with
GUESS = np.array([0.0, 0.3, -0.3])


def program(kind, x, y):
    coefficients = numpyro.sample("coefficients", dist.Normal(0.0, 1.0).expand([3]))
    predictor = coefficients[0] + x @ coefficients[1:]
    noise = (
        numpyro.sample("noise", dist.HalfNormal(1.0)) if kind in ("unknown", "robust") else NOISE
    )
    law = dist.Poisson(jnp.exp(predictor)) if kind == "poisson" else dist.Normal(predictor, noise)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", law, obs=y)


def made_up(kind, num_rows, seed):
    generator = np.random.default_rng(seed)
    x = np.clip(generator.normal(0, 0.4, (num_rows, 2)), -1, 1)
    predictor = COEFFICIENTS[0] + x @ COEFFICIENTS[1:]
    y = (
        generator.poisson(np.exp(predictor))
        if kind == "poisson"
        else generator.normal(predictor, NOISE)
    )
    return np.float32(x), np.float32(y)


def largest(values, quantile):
    return float(
        np.quantile(np.linalg.norm(np.asarray(values).reshape(len(values), -1), axis=1), quantile)
    )


def private(kind, rows, epsilon, quantile):
    def of_rows(x, y):
        return program(kind, x, y)

    model, invented = dpmcmc.models.from_numpyro(of_rows, rows), made_up(kind, 2000, 2)
    guess = np.append(GUESS, np.log(NOISE)) if kind == "unknown" else GUESS
    clip, curvature = (
        largest(jax.vmap(derivative(model.log_likelihood), (None, 0))(guess, invented), quantile)
        for derivative in (jax.grad, jax.hessian)
    )
    budget = dpmcmc.Budget(epsilon, 1e-6)
    recipe = dpmcmc.recipes.langevin(
        model, len(rows[1]), budget, clip=clip, hessian_bound=curvature
    )
    curator = dpmcmc.Curator(rows, model, budget)
    return dpmcmc.sample(jax.random.key(5), recipe.sampler, curator, guess, **recipe.options), clip


def robust(rows, epsilon):
    model = dpmcmc.models.robust_linear(2, radius=2**0.5, response_bound=1.0, intercept=True)

    def unravel(position):
        found = model.unravel(position)
        return {
            "coefficients": jnp.append(found["intercept"], found["coefficients"]),
            "noise": found["noise_scale"] / OF_NORMAL,
        }

    budget = dpmcmc.Budget(epsilon, 1e-6)
    recipe = dpmcmc.recipes.langevin(model, len(rows[1]), budget)
    curator = dpmcmc.Curator(rows, model._replace(unravel=unravel), budget)
    return dpmcmc.sample(
        jax.random.key(5), recipe.sampler, curator, np.zeros(4), **recipe.options
    ), model.lipschitz


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["linear", "poisson", "unknown", "robust"])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--quantile", type=float, default=0.99)
    given = parser.parse_args()
    rows = made_up(given.kind, given.rows, 1)
    is_robust = given.kind == "robust"
    posterior, clip = (
        robust(rows, given.epsilon)
        if is_robust
        else private(given.kind, rows, given.epsilon, given.quantile)
    )
    chains = numpyro.infer.MCMC(
        numpyro.infer.NUTS(program), num_warmup=500, num_samples=4000, progress_bar=False
    )
    chains.run(jax.random.key(0), given.kind, *rows)
    print(dpmcmc.summary(posterior))
    print(f"clip {clip:.3g}")
    for name, reference in chains.get_samples().items():
        draws = np.asarray(posterior.posterior[name], float).reshape(-1, *reference.shape[1:])
        mean, sd = (
            np.mean(np.asarray(reference, float), axis=0),
            np.std(np.asarray(reference, float), axis=0),
        )
        errors, widths = (
            ((draws.mean(0) - mean) / sd).round(2).tolist(),
            (draws.std(0) / sd).round(2).tolist(),
        )
        print(f"{name}: means off by {errors} sd, {widths} times as wide")


if __name__ == "__main__":
    main()

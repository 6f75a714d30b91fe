"""The demo's posterior without privacy, by BlackJAX's NUTS on the full table: prints the numbers
that `dpmcmc.demo` ships.
"""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from dpmcmc import demo

NUM_CHAINS, NUM_DRAWS, NUM_WARMUP = 4, 2000, 500


def main() -> None:
    rows = jax.tree.map(jnp.asarray, demo.read_rows())
    model = demo.make_model()

    def log_density(position):
        return jax.vmap(model.log_likelihood, (None, 0))(position, rows).sum() + model.log_prior(
            position
        )

    key_warmup, key_draws = jax.random.split(jax.random.key(0))
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = adaptation.run(key_warmup, jnp.zeros(model.dimension), NUM_WARMUP)
    kernel = blackjax.nuts(log_density, **parameters).step

    def chain(rng_key):
        def step(state, key):
            state, _ = kernel(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(rng_key, NUM_DRAWS))[1]

    positions = jax.jit(jax.vmap(chain))(jax.random.split(key_draws, NUM_CHAINS))
    named = jax.vmap(jax.vmap(model.unravel))(positions)
    for name, values in named.items():
        spread = np.asarray(values).mean(axis=1).std(ddof=1)
        print(
            f'    "{name}": Reference({values.mean():.4f}, {values.std():.5f}),  # chains differ '
            f"by {spread:.5f}"
        )


if __name__ == "__main__":
    main()

"""Privacy of single releases: their exact laws and bounds. No ledger, no composition rule.

`gaussian` has the exact trade-off of Gaussian noise; `bits` that of accept bits, and `minibatch`
that of accept bits on a random batch; `sampled` has Renyi divergences of Gaussian noise on random
batches, `profiles` delta(epsilon) of the worst pairs of tables, and `radial` both of radial noise;
`renyi`, `pld` and `recursion`
convert or compose: Renyi divergences, privacy-loss distributions, and the exact recursion for
accept bits.
"""

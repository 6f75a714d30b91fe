"""Queries -> (epsilon, delta) -> number of steps, and the privacy statement. Never touches a row.

`costs` says what one query reveals, from the laws of `bits`, `minibatch`, `sampled` and `gaussian`;
`accountants` adds a ledger up, by closed forms, Renyi divergences (`renyi`), privacy-loss
distributions (`profiles`, `pld`) or the `recursion` for accept bits; `calibrate` turns that round,
with one search (`search`); `filters` are for queries chosen on the way; `papers` has the papers'
own bounds; `statement` writes down what was promised, and `verify` computes it again.
"""

"""From queries to (epsilon, delta) and to a number of steps. Never reads a row.

In the order of the flow: `costs` bounds what one query reveals, from the laws in the folder `laws`;
`bill` turns a plan of queries into costs; `accountants` composes costs into epsilon; `calibrate`
finds how many steps a budget allows, with the search in `search`; `filters` account for queries
that are chosen during a run; `ledger` keeps durably what was granted on a table; `statement` states
what is promised, `guess` in terms of an attacker's success, and `verify` recomputes it; `papers`
has the bounds published in the papers.
"""

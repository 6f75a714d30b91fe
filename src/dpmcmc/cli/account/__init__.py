"""`dpmcmc account`: steps from a budget, or epsilon from a number of steps, one command per kind of
query.

    dpmcmc account gaussian --noise-multiplier 30 --epsilon 1 --delta 1e-6
    dpmcmc account accept-bit --test barker --range 0.04 --steps 100 --delta 1e-6 --json
    dpmcmc account compare accept-bit --test penalty --sigma 1 --range 0.03 --epsilon 1 --delta 1e-6
    dpmcmc account ledger posterior.nc

None of it needs rows. `--json` prints one object with at least steps, epsilon, delta, method and
relation. A refusal is one line on standard error; with `--json` also one object with the field
error. Exit codes: 0 answered; 1 a ledger's claim is not reproduced, or the grants on a table exceed
its budget; 2 refused (no bound exists, an argument is out of range, or a table's ledger was changed
since a curator wrote it).

Modules, in the order of the flow: `questions` (what is asked), `answers` (what accountants say),
`output` (tables and JSON), `commands` (groups and shared options), `queries` and `ledger` (the
commands).
"""

from dpmcmc.cli.account import ledger, queries
from dpmcmc.cli.account.commands import app

__all__ = ["app", "ledger", "queries"]

"""Tests of privacy costs by attack: an empirical lower bound on epsilon by a membership test.

    verdict = audit.query(MyQuery(noise_multiplier=1.0), model, first, second, [position])
    print(verdict)  # REFUTED, NOT REFUTED (which proves nothing) or NO EVIDENCE
    sys.exit(verdict.exit_status)

`first` and `second` are made-up neighbouring tables, chosen so that the row in which they differ
has the largest possible effect. The attacker knows both tables. The query is asked about each of
them many thousands of times, through curators without a budget and with a known secret, so that
clip, sum, noise, batch and coin are all tested. **Nobody pays for these answers. An audit of real
rows would be a release without any privacy.**

The attack uses one half of the answers to choose the events that distinguish the tables best, and
the other half to bound their probabilities (exact binomial intervals). The cost admits, for every
event and in both orders of the tables,

    P(event) - e^epsilon Q(event) <= delta(epsilon),

and Renyi divergences between the event's two probabilities of at most rdp(order).

Eight events are tried. Each of their sixteen probabilities is outside its bound with probability at
most `alarm` / 16, so that all that a verdict states is true except with probability `alarm`. Other
tables, other points or a better attack may refute a cost that was not refuted here. Noise made in
floating point breaks privacy through its low bits; the attack finds this only if the answers from
one table are finer, or if exact values repeat.

Modules, in the order of the flow: `neighbours` (checks of the two tables), `answers` (ask about
both), `statistics` (numbers that separate their answers), `bounds` (probabilities, and what the
cost admits of them), `verdict` (the result), `attack` (the public functions).
"""

from dpmcmc.audit.answers import collect_answers
from dpmcmc.audit.attack import compare, program, query
from dpmcmc.audit.verdict import Verdict

__all__ = ["Verdict", "collect_answers", "compare", "program", "query"]

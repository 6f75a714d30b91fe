"""The privacy statement: all of the promise in words, and a bill from which anyone can compute it
again.
"""

import dataclasses
import itertools
import json
import math
import re
from typing import Any, ClassVar

import jax
import pytest
from scipy import special

from dpmcmc import (
    Answer,
    Barker,
    Budget,
    BudgetExceeded,
    Federation,
    Neighbours,
    UnsupportedQuery,
    models,
)
from dpmcmc.accounting import statement as statements
from dpmcmc.accounting import verify
from dpmcmc.accounting.costs import Gaussian, SubsampledGaussian, to_json
from dpmcmc.accounting.statement import FederatedStatement, weakest
from dpmcmc.queries import (
    FixedBatch,
    Gradient,
    LogRatio,
    NonPrivateAccept,
    NonPrivateRatio,
    PenaltyAccept,
    PoissonBatch,
    SufficientStatistic,
)
from dpmcmc.run import execute
from tests import tiny

PENALTY_BIT = PenaltyAccept(clip=0.05, noise_multiplier=20.0, max_move=1.0)


def statement(plan, **options):
    return tiny.make_curator(**{"fixed_secret": None, **options}).grant(plan).statement()


def reproduced(statement) -> bool:
    return verify.verify(json.loads(statement.ledger_json())).is_reproduced


def test_the_text_says_everything():
    text = str(statement({tiny.RATIO: 20, tiny.BIT: 30}))
    for words in (
        "Promise:   (0.70",
        ", 1e-06)-differential privacy",
        "one row, replaced by any other (the number of rows, 40, is public)",
        "Means:     Somebody who knows every other row and thinks two values of this row equally "
        "likely guesses right at most",
        "a coin toss gives 50 %",
        f"20 {tiny.RATIO.released}",
        f"30 {tiny.BIT.released}",
        f"20 x {tiny.RATIO}",
        f"30 x {tiny.BIT}",
        "by rdp",
        "by zcdp, as a second opinion",
        "Budget:    epsilon = 1, delta = 1e-06",
        "ChaCha20, keyed by the operating system",
        "sums and noise are exact integers",
        "share one process",
        "the time a run takes is not part of the release",
        "the promise covers one row. If a person has several",
        "were chosen without looking at the rows: what is learned from them directly is not on the "
        "bill",
        "the promise is about this run alone: whatever else is released from the same rows adds",
    ):
        assert words in text, words


def test_gaussians_get_the_exact_figure_and_a_second_opinion():
    found = statement({tiny.RATIO: 20})
    assert found.method == "gaussian" and found.second_method == "pld"
    assert found.epsilon <= found.second_epsilon <= 1.1 * found.epsilon


def test_add_or_remove_does_not_tell_the_number_of_rows():
    found = statement(
        {tiny.RATIO: 20}, budget=Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE), capacity=64
    )
    assert "one row, added or removed (the number of rows is private)" in str(found)
    assert "40" not in str(found) and found.capacity is None
    # Else it would have been refused, which is told
    assert "Assumes:   the table has at most 64 rows" in str(found)
    assert "at most 64" not in str(statement({tiny.RATIO: 20}))


@pytest.mark.parametrize("neighbours", Neighbours)
def test_the_promise_in_words_is_what_a_gaussian_tells(neighbours):
    """Rounded up: with mu of the bill, the better of two tables is named with a chance of Phi(mu /
    2).
    """
    found = statement({tiny.RATIO: 20}, budget=Budget(1.0, 1e-6, neighbours), capacity=40)
    (told,) = re.findall(r"Means: .* guesses right at most (\S+) % of", str(found))
    chance = special.ndtr(math.sqrt(20) / tiny.RATIO.cost(found.unit).noise_multiplier / 2)
    assert 100 * chance <= float(told) < 100 * chance + 0.1
    assert ("the presence and the absence of this row" in str(found)) is (
        neighbours is Neighbours.ADD_OR_REMOVE_ONE
    )


def test_presence_at_some_epsilon_is_values_at_twice_as_much():
    """So of two statements with the same figures the one about presence says less about values: it
    is told there.
    """
    told = "changing its values only at 2 epsilon, with (1 + e^epsilon) delta"
    added, replaced = (
        {"budget": Budget(1.0, 1e-6, kind), "capacity": 40} for kind in reversed(Neighbours)
    )
    assert told in str(statement({tiny.RATIO: 20}, **added)) and told not in str(
        statement({tiny.RATIO: 20}, **replaced)
    )


def test_a_delta_above_one_over_n_is_noted():
    with pytest.warns(UserWarning, match="above 1/n"):
        text = str(statement({tiny.RATIO: 1}, budget=Budget(1.0, 0.03)))
    assert (
        "Note:      delta = 0.03 is above 1/n, n = 40: a release of one random row would be within "
        "the promise" in text
    )
    for small in (tiny.BUDGET, Budget(1.0, 1 / 40)):
        assert "above 1/n" not in str(statement({tiny.RATIO: 1}, budget=small))


@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_delta_for_one_random_row_is_noted_where_their_number_is_private(neighbours):
    """Whatever stands in a random place of the table is a person's with a chance of rows per person
    over capacity.
    """
    budgets = [Budget(1.0, delta, neighbours, rows_per_person=2) for delta in (0.03, 0.05)]
    small = str(statement({tiny.RATIO: 1}, budget=budgets[0], capacity=50))
    with pytest.warns(UserWarning, match="above 2/50"):
        large = str(statement({tiny.RATIO: 1}, budget=budgets[1], capacity=50))
    assert (
        "Note:      delta = 0.05 is above 2/50, the rows of a person over the capacity" in large
        and "is above" not in small
    )


@pytest.mark.parametrize("neighbours", Neighbours)
def test_what_the_promise_assumes_of_a_file_is_named(neighbours):
    """Quotes decide where a row ends: in a file that is no well-formed export one person's cell
    could make rows of others.
    """
    found = statement({tiny.RATIO: 20}, budget=Budget(1.0, 1e-6, neighbours), capacity=40)
    assert (
        "Assumes:   each row was made from one row of the holder's table. If the table was a CSV "
        "file, it is a well-formed export (RFC 4180: a cell with a quote, a delimiter or a line "
        "break stands in quotes, and quotes in it are doubled), so that no cell can make another "
        "row" in str(found)
    )


def test_several_rows_per_person():
    one = LogRatio(clip=1.0, noise_multiplier=30.0)
    found = statement({one: 20}, budget=Budget(1.0, 1e-6, rows_per_person=3), capacity=60)
    assert (
        "one person with at most 3 rows, replaced by any other (the table's capacity, 60, is "
        "public)" in str(found)
    )
    assert "Assumes:   nobody has more than 3 rows: this was declared, and is not checked" in str(
        found
    )
    assert "covers one row" not in str(found)
    # The noise is in units of the sensitivity, so it grew with the rows per person and the cost did
    # not.
    assert found.epsilon == pytest.approx(statement({one: 20}).epsilon)


def test_what_one_of_several_runs_costs_is_no_opinion_on_all_of_them():
    text = str(statement({tiny.RATIO: 1}, shared_by="gaussian-dp"))
    assert "by gaussian, for this run alone" in text and "second opinion" not in text
    assert (
        "the promise is about all that shares this budget: whatever else" in text
        and "about this run alone" not in text
    )


def test_a_fixed_secret_promises_nothing():
    found = statement({tiny.RATIO: 20}, fixed_secret=tiny.SECRET)
    assert found.epsilon == math.inf and found.second_epsilon is None
    assert "epsilon = infinity: NO PRIVACY IS PROMISED" in str(found)
    assert "the secret was fixed by the caller" in str(found) and "second opinion" not in str(found)
    assert "the promise is about" not in str(found) and "Means:" not in str(found)
    assert json.loads(found.ledger_json())["claim"] == {
        "epsilon": "inf",
        "delta": 1e-06,
        "method": "none",
    }


def test_without_a_budget_the_bill_is_computed_all_the_same():
    found = statement({tiny.RATIO: 20}, budget=None)
    assert found.epsilon == pytest.approx(statement({tiny.RATIO: 20}).epsilon)
    assert "Budget:" not in str(found) and reproduced(found)
    assert "Promise:   none was made in advance. By itself this run has (" in str(found)


def test_a_baseline_is_not_said_to_be_clipped_or_rounded():
    found = str(statement({NonPrivateRatio(): 20}, budget=None))
    assert "NO PRIVACY IS PROMISED" in found and "exact integers" not in found
    model = models.logistic(2, radius=1.0)
    assert execute._declared(model, {NonPrivateRatio(): 1, NonPrivateAccept(Barker()): 1}) == [
        f"declared of every row: {model.declared}"
    ]
    for clipped in (
        NonPrivateRatio(clip=1.0),
        NonPrivateAccept(Barker(), 1.0),
        LogRatio(1.0, 1.0),
        SufficientStatistic(1.0),
    ):
        assert "one beyond is clipped" in execute._declared(model, {clipped: 1})[0]


def test_what_is_printed_is_never_below_the_promise():
    found = statement({tiny.RATIO: 20})
    for epsilon in (3.99912, 4.0, 0.9999999, 1.00001, 0.0123451, 12344.4, 2e-9):
        text = str(dataclasses.replace(found, epsilon=epsilon))
        printed = (
            float(re.search(r"Promise:   \((\S+), ", text)[1]),
            float(re.search(r"Computed:  epsilon = (\S+) at", text)[1]),
        )
        assert (
            epsilon <= printed[0] <= epsilon * 1.001 and epsilon <= printed[1] <= epsilon * 1.00001
        )
    for delta in (1e-6, 1.0049e-6, 1.6649e-6, 0.0123451, 9.999e-10):
        text = str(dataclasses.replace(found, delta=delta, budget=(1.0, delta)))
        printed = [
            float(value) for value in re.findall(r"(?:Promise: .*, |delta = )([0-9.e-]+)", text)
        ]
        assert len(printed) == 3 and all(delta <= value <= delta * 1.01 for value in printed)


def test_a_larger_second_opinion_is_explained():
    found = dataclasses.replace(statement({tiny.RATIO: 20}), epsilon=4.0, second_epsilon=4.01)
    assert "the smaller one holds" in str(found)
    assert "the smaller one holds" not in str(dataclasses.replace(found, second_epsilon=3.9))


def test_a_run_that_asks_nothing_releases_nothing():
    assert "Released:  nothing" in str(statement({}))


def test_what_rounded_noise_lacks_is_not_forgotten_where_epsilon_is_plenty():
    """Ideal noise would cost epsilon=118 of 1000; but the rounding alone adds more than its
    hundredth of delta.
    """
    curator = tiny.make_curator(budget=Budget(1000.0, 1e-9))
    with pytest.raises(
        BudgetExceeded,
        match="total-variation error of the releases is .* in all; .* a larger epsilon does not "
        "help",
    ):
        curator.grant({tiny.RATIO: 100_000})
    assert curator.num_grants == 0


def test_a_bill_that_no_accountant_can_pay_is_infinite():
    found = statement({LogRatio(clip=1.0, noise_multiplier=0.5): 1_000}, budget=None)
    assert found.epsilon == math.inf
    assert "NO PRIVACY IS PROMISED" in str(found)


PLANS = {
    "ratios": {tiny.RATIO: 20},
    "Barker bits": {tiny.BIT: 400},
    "penalty bits": {PENALTY_BIT: 10},
    "both": {tiny.RATIO: 10, tiny.BIT: 100},
    "nothing": {},
}


def test_batches_of_a_fixed_size_reproduce_it_when_rows_are_added_or_removed():
    """Their own ledgers were refused, and before that billed for half of what a swapped row
    changes.
    """
    query = Gradient(1.0, 20.0, FixedBatch(8, 64))
    found = statement(
        {query: 20}, budget=Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE), capacity=64
    )
    assert reproduced(found)


@pytest.mark.parametrize("scheme, neighbours", itertools.product(["poisson", "fixed"], Neighbours))
def test_costs_of_the_other_relation_are_refused(scheme, neighbours):
    cost = SubsampledGaussian(scheme, 0.1, 20.0, neighbours)
    entry = {"query": "a batch", "released": "noise", "cost": to_json(cost), "count": 20}
    claim = {"epsilon": 9.0, "delta": 1e-6, "method": "rdp"}
    for promised in Neighbours:
        document = {
            "claim": claim,
            "neighbours": promised.value,
            "rows_per_person": 1,
            "entries": [entry],
        }
        if promised is neighbours:
            assert verify.verify(document).is_reproduced
        else:
            with pytest.raises(
                ValueError,
                match=f"a cost is for '{neighbours.value}', the ledger's promise for "
                f"'{promised.value}'",
            ):
                verify.verify(document)


@pytest.mark.parametrize("plan", PLANS)
def test_the_bill_reproduces_the_claim(plan):
    found = statement(PLANS[plan])
    document = json.loads(found.ledger_json())
    assert document["claim"]["epsilon"] == found.epsilon <= 1.0
    assert sum(entry["count"] for entry in document["entries"]) == sum(PLANS[plan].values())
    assert reproduced(found)
    document["claim"]["epsilon"] *= 0.99
    assert not PLANS[plan] or not verify.verify(document).is_reproduced


def test_different_queries_of_equal_cost_are_billed_for_all_their_asks():
    """A clip is not in the cost: what is asked with one clip must not hide what was asked with
    another.
    """
    wide = dataclasses.replace(tiny.RATIO, clip=2 * tiny.RATIO.clip)
    assert wide.cost(tiny.BUDGET.unit) == tiny.RATIO.cost(tiny.BUDGET.unit)
    found = statement({tiny.RATIO: 10, wide: 10})
    assert found.epsilon == statement({tiny.RATIO: 20}).epsilon > statement(
        {tiny.RATIO: 10}
    ).epsilon and reproduced(found)


@pytest.mark.parametrize("shared_by", ["gaussian-dp", "zcdp", "renyi"])
def test_a_shared_budget_is_promised_as_a_whole(shared_by):
    found = statement({tiny.RATIO: 20}, shared_by=shared_by)
    assert found.epsilon == 1.0 and found.second_epsilon < 1.0
    assert "may share this budget" in str(found) and "for this run alone" in str(found)
    assert reproduced(found)


def test_accept_bits_get_as_many_steps_as_their_best_accountant_allows():
    """Their pure epsilon is far too large for the distance from an ideal coin; that must not spoil
    the other bounds.
    """
    steps = tiny.make_curator().max_steps({}, {tiny.BIT: 1})
    assert steps * tiny.BIT.cost(tiny.BUDGET.unit).pure() > 5
    assert statement({tiny.BIT: steps}).epsilon <= 1.0


COST, ANSWER = Gaussian(50.0), Answer(0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class OwnQuery:
    """A query that somebody else has written."""

    released: ClassVar[str] = "nothing at all"
    adds: ClassVar[bool] = True
    charge: Any = COST
    found: Any = ANSWER

    def answer(self, key, model, rows, position):
        return self.found

    def cost(self, unit):
        return self.charge


def test_a_query_of_ones_own_is_marked_as_such():
    curator = tiny.make_curator(fixed_secret=None)
    statement = str(curator.grant({OwnQuery(): 3, tiny.RATIO: 2}).statement())
    assert (
        "Assumes:   OwnQuery is no query of this library: its author answers for what it costs, "
        "and for how it computes" in statement
    )
    assert "LogRatio is no query" not in statement
    assert "is no query" not in str(
        tiny.make_curator(fixed_secret=None).grant({tiny.RATIO: 2}).statement()
    )


@pytest.mark.parametrize("charge", [None, 0.1])
def test_a_query_of_ones_own_must_say_its_cost(charge):
    with pytest.raises(
        TypeError,
        match=r"OwnQuery.cost returned a \w+: it must return one of dpmcmc.accounting.costs",
    ):
        tiny.make_curator().grant({OwnQuery(charge): 1})


def test_a_query_of_ones_own_must_say_its_cost_for_the_unit():
    added = SubsampledGaussian("poisson", 0.01, 50.0, Neighbours.ADD_OR_REMOVE_ONE)
    with pytest.raises(
        ValueError,
        match=r"OwnQuery.cost\(.*\) is for add-or-remove-one: it must be for the relation of that "
        r"unit",
    ):
        tiny.make_curator().grant({OwnQuery(added): 1})


class Standing(OwnQuery):
    """It would be billed once, however often it is asked."""

    is_standing: ClassVar[bool] = True


def test_a_query_of_ones_own_is_billed_for_every_ask():
    def program(query):
        def ask_thrice(ask, key, point):
            return jax.vmap(lambda key: ask(key, query, point))(jax.random.split(key, 3))

        return ask_thrice

    assert list(
        tiny.make_curator().trace(program(OwnQuery()), jax.random.key(0), tiny.START).plan.values()
    ) == [3]
    with pytest.raises(
        UnsupportedQuery, match="Standing is a standing query, billed once for all its asks"
    ):
        tiny.make_curator().trace(program(Standing()), jax.random.key(0), tiny.START)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_query_of_ones_own_must_return_an_answer(is_shared):
    def program(ask, key, point):
        return ask(key, OwnQuery(found=1.0), point)

    curators = tiny.make_curator(fixed_secret=None), tiny.make_curator(fixed_secret=None)
    with pytest.raises(
        TypeError,
        match=r"OwnQuery.answer returned a float: it must return Answer\(value, variance\)",
    ):
        (Federation(curators) if is_shared else curators[0]).trace(
            program, jax.random.key(0), tiny.START
        )


def test_a_bill_that_no_accountant_can_state_promises_nothing_and_breaks_nothing():
    """Batches with next to no noise, without a budget: every bound gives up, and the statement says
    infinity.
    """
    batch = Gradient(1.0, 1e-3, batch=PoissonBatch(0.1))
    found = tiny.make_curator(budget=None, fixed_secret=None).grant({batch: 1000}).statement()
    assert math.isinf(found.epsilon) and "NO PRIVACY" in str(found)


FORGED = {
    "as it is": (r"$", "", True),
    "a smaller promise beside it": (
        r"Promise: +",
        "Promise:   (0.01, 1e-12)-differential privacy, which implies ",
        False,
    ),
    "another unit": (
        r"one row, replaced by any other",
        "one person with at most 1000 rows, added or removed",
        False,
    ),
    "another bill": (r"Bill: +20 x", "Bill:      2 x", False),
    "no bill": (r"  Bill: .*\n", "", False),
    "a line more": (r"  Bill: ", "  Bill:      1 x q\n  Bill: ", False),
    "another figure": (r"Computed:  epsilon = \S+", "Computed:  epsilon = 0.001", False),
    "another second figure": (r"epsilon = \S+ by pld", "epsilon = 0.001 by pld", False),
    "a smaller chance": (r"right at most \S+ %", "right at most 50.1 %", False),
    "a larger chance": (r"right at most \S+ %", "right at most 99.9 %", False),
    "a chance of what nobody means": (r"who knows every other row", "who knows nothing", False),
    "a line that nobody prints": (
        r"  Unit: ",
        "  PROMISE:   (0.01, 1e-12)-differential privacy\n  Unit: ",
        False,
    ),
    "another number": (
        r"the number of rows, 40, is public",
        "the number of rows is private",
        False,
    ),
    "another title": (r"PRIVACY STATEMENT", "PRIVACY STATEMENT: (0.01, 1e-12)", False),
}


@pytest.mark.parametrize("swap", [False, True])
def test_a_federated_statement_is_that_of_its_ledgers(swap, tmp_path):
    """Each promise with its owner's name, which has no line breaks in print."""
    owners = {"north": statement({tiny.RATIO: 20}), "so\nuth": statement({tiny.RATIO: 9})}
    found = FederatedStatement(owners)
    text = str(found)
    if swap:
        text = (
            text.replace("Owner north", "Owner ?")
            .replace("Owner so uth", "Owner north")
            .replace("Owner ?", "Owner so uth")
        )
    path = tmp_path / "attributes.json"
    path.write_text(json.dumps({verify.ATTRIBUTE: found.ledger_json(), "privacy_statement": text}))
    assert (verify.contradictions(path) == []) is not swap


def test_what_others_have_named_takes_one_line_of_a_statement(tmp_path):
    found = dataclasses.replace(
        statement({tiny.RATIO: 20}), notes=("a note\n  Promise:   (0, 0)\x1b[2K",)
    )
    found.bill[0]["query"] = "mine,\n  Promise:   (0, 0)"
    assert (
        "Note:      a note Promise: (0, 0)\\x1b[2K" in str(found)
        and str(found).count("\n  Promise:") == 1
    )
    path = tmp_path / "attributes.json"
    path.write_text(
        json.dumps({verify.ATTRIBUTE: found.ledger_json(), "privacy_statement": str(found)})
    )
    assert verify.contradictions(path) == []


@pytest.mark.parametrize("name", FORGED)
def test_a_printed_statement_is_that_of_its_ledger(name, tmp_path):
    pattern, put, is_consistent = FORGED[name]
    found = statement({tiny.RATIO: 20})
    text = re.sub(pattern, put, str(found), count=1)
    assert (text == str(found)) is (name == "as it is")
    path = tmp_path / "attributes.json"
    path.write_text(json.dumps({verify.ATTRIBUTE: found.ledger_json(), "privacy_statement": text}))
    assert (verify.contradictions(path) == []) is is_consistent


BETTER = {
    "chance": 0.501,
    "second": {"epsilon": 0.001, "method": "pld"},
    "capacity": None,
    "budget": [0.001, 1e-6],
}


@pytest.mark.parametrize("name", BETTER)
def test_a_number_that_is_better_than_its_bill_is_found_in_the_json(name):
    """Also where text and JSON were both edited, so that the one is the rendering of the other."""
    document = statement({tiny.RATIO: 20}).to_json()

    def doubts():
        ledger = json.dumps(document)
        text = str(statements.from_json(document))
        return verify.reasons_to_distrust({verify.ATTRIBUTE: ledger, verify.PRINTED: text})

    assert doubts() == []
    document["statement"][name] = BETTER[name]
    assert any(doubt.startswith(f"{name}=") for doubt in doubts())


@pytest.mark.parametrize(
    "change",
    [{"times": 1000}, {"chance": "0.5"}, {"notes": [1]}, {"second": {}}, {"budget": [1]}],
    ids=lambda change: next(iter(change)),
)
def test_a_statement_with_other_fields_is_refused(change):
    document = statement({tiny.RATIO: 20}).to_json()
    document["statement"] |= change
    (doubt,) = verify.reasons_to_distrust({verify.ATTRIBUTE: json.dumps(document)})
    assert doubt.startswith("its bill cannot be read (a ledger's")


def test_a_statement_is_the_same_after_a_way_through_json():
    found = statement({tiny.RATIO: 20, tiny.BIT: 5})
    document = json.loads(found.ledger_json())
    assert statements.from_json(document) == found
    nothing = statement({tiny.RATIO: 20}, fixed_secret=tiny.SECRET)
    assert str(statements.from_json(json.loads(nothing.ledger_json()))) == str(nothing)


def test_no_line_of_a_statement_is_printed_twice():
    lines = str(statement({tiny.RATIO: 20, tiny.BIT: 5})).splitlines()
    assert len(lines) == len(set(lines))


def test_the_sentences_stand_before_the_exact_bill():
    text = str(statement({tiny.RATIO: 20}))
    places = [text.index(word) for word in ("Promise:", "Means:", "Released:", "Assumes:", "Bill:")]
    assert places == sorted(places)


def test_of_several_owners_the_weakest_numbers_are_told():
    """As a promise they hold for the rows of every owner."""
    first = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "neighbours": "replace-one",
        "rows_per_person": 3,
        "accountant": "pld",
    }
    second = first | {"epsilon": 0.5, "delta": 1e-5, "rows_per_person": 1}
    for facts in ([first, second], [second, first]):
        assert weakest(facts) == first | {"delta": 1e-5, "rows_per_person": 1}

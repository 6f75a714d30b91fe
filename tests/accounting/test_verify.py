import json
import math

import pytest

from dpmcmc.acceptance import Barker
from dpmcmc.accounting import accountants, filters, reading, verify
from dpmcmc.accounting.costs import (
    AcceptBit,
    DPBarker,
    Gaussian,
    MinibatchBarker,
    NonPrivate,
    PoissonMixture,
    SubsampledGaussian,
    to_json,
)
from dpmcmc.types import Neighbours


def document(entries, epsilon, delta=1e-6, method="gaussian"):
    return {
        "format": reading.FORMAT,
        "claim": {"epsilon": epsilon, "delta": delta, "method": method},
        "neighbours": "replace-one",
        "rows_per_person": 1,
        "entries": [
            {"query": repr(cost), "cost": to_json(cost), "count": count} for cost, count in entries
        ],
    }


ENTRIES = [(Gaussian(50.0), 100), (Gaussian(80.0), 40)]
EPSILON = accountants.epsilon(dict(ENTRIES), 1e-6).epsilon


def test_a_true_claim_is_reproduced_and_a_smaller_one_is_not():
    assert verify.verify(document(ENTRIES, EPSILON)).is_reproduced
    assert verify.verify(document(ENTRIES, EPSILON * 1.5)).is_reproduced
    assert not verify.verify(document(ENTRIES, EPSILON * (1 - 3e-6))).is_reproduced
    # Another processor's last digits
    assert verify.verify(document(ENTRIES, EPSILON * (1 - 3e-7))).is_reproduced
    forged = document(ENTRIES, EPSILON)
    forged["entries"][0]["count"] += 1
    assert not verify.verify(forged).is_reproduced


def test_equal_costs_of_different_queries_add_up():
    twice = document([(Gaussian(50.0), 60), (Gaussian(50.0), 40), (Gaussian(80.0), 40)], EPSILON)
    assert verify.verify(twice).recomputed == EPSILON
    assert not verify.verify(document([*ENTRIES, (Gaussian(50.0), 1)], EPSILON)).is_reproduced


BATCHES = [
    SubsampledGaussian("poisson", 0.01, 1.0, Neighbours.REPLACE_ONE),
    PoissonMixture(0.01, 1.0, 2.0, Neighbours.REPLACE_ONE),
    MinibatchBarker(0.1, 1.0),
    DPBarker(1000, 100_000),
]


@pytest.mark.parametrize("cost", BATCHES, ids=lambda cost: type(cost).__name__)
def test_batches_are_no_bill_for_persons_with_several_rows(cost):
    """With 5 rows of a person in the table delta was 0.07 where the claim, of the first of these,
    was 1e-6.
    """
    spent = accountants.epsilon({cost: 100}, 1e-6)
    bill = document([(cost, 100)], spent.epsilon, method=spent.method)
    assert verify.verify(bill).is_reproduced
    with pytest.raises(
        ValueError,
        match="a cost is for persons with one row, the ledger's promise for 5 rows per person",
    ):
        verify.verify(bill | {"rows_per_person": 5})
    # Of all rows: whatever it was
    assert verify.verify(document(ENTRIES, EPSILON) | {"rows_per_person": 5}).is_reproduced


def test_infinite_claims():
    entries = [*ENTRIES, (NonPrivate("a debug value"), 1)]
    assert verify.verify(document(entries, "inf", method="none")).is_reproduced
    assert not verify.verify(document(entries, 1e9)).is_reproduced


def test_what_promises_nothing_is_reproduced_whatever_it_asked():
    """As with a fixed secret: no accountant has to find a figure for these costs."""
    verdict = verify.verify(document([(Gaussian(50.0, tv_error=0.5), 100)], "inf", method="none"))
    assert verdict.is_reproduced and verdict.recomputed == math.inf


@pytest.mark.parametrize("method", ["rdp", "zcdp", "pure", "recursion"])
def test_other_methods(method):
    entries = [(AcceptBit(Barker(), 0.2), 10)]
    epsilon = accountants.epsilon_by(method, dict(entries), 1e-6)
    assert verify.verify(document(entries, epsilon, method=method)).is_reproduced
    assert not verify.verify(document(entries, epsilon * 0.999, method=method)).is_reproduced


@pytest.mark.parametrize("method", filters.BY_NAME)
def test_claims_of_filters(method):
    steps = filters.BY_NAME[method](1.0, 1e-6).steps({Gaussian(50.0): 1})
    assert verify.verify(document([(Gaussian(50.0), steps)], 1.0, method=method)).is_reproduced
    assert not verify.verify(
        document([(Gaussian(50.0), steps + 1)], 1.0, method=method)
    ).is_reproduced


def test_files(tmp_path):
    import h5netcdf

    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(document(ENTRIES, EPSILON)))
    assert verify.verify(verify.read(path)).is_reproduced
    for where in ("posterior", "/"):
        path = tmp_path / f"posterior{where.strip('/')}.nc"
        with h5netcdf.File(path, "w") as file:
            group = file.create_group("posterior")
            (group if where == "posterior" else file).attrs[verify.ATTRIBUTE] = json.dumps(
                document(ENTRIES, EPSILON)
            )
        assert verify.verify(verify.read(path)).claimed == EPSILON
    with h5netcdf.File(tmp_path / "empty.nc", "w") as file:
        file.create_group("posterior")
    with pytest.raises(ValueError, match="no ledger"):
        verify.read(tmp_path / "empty.nc")


SMALLER = json.dumps(document([(Gaussian(50.0), 1)], 0.1))


@pytest.mark.parametrize("group", ["/", "warmup_posterior", "posterior/deeper"])
@pytest.mark.parametrize("other", [SMALLER, "not even JSON"])
def test_a_second_ledger_in_the_file_must_be_the_same(tmp_path, group, other):
    import h5netcdf

    for ledger, told in (
        (other, ["it holds two ledgers"]),
        (json.dumps(document(ENTRIES, EPSILON), indent=1), []),
    ):
        path = tmp_path / "posterior.nc"
        with h5netcdf.File(path, "w") as file:
            file.create_group("posterior").attrs[verify.ATTRIBUTE] = json.dumps(
                document(ENTRIES, EPSILON)
            )
            (file if group == "/" else file.create_group(group)).attrs[verify.ATTRIBUTE] = ledger
        assert verify.contradictions(path) == told


def test_groups_without_a_ledger_may_say_what_they_like(tmp_path):
    import h5py

    with h5py.File(tmp_path / "posterior.nc", "w") as file:
        file.create_group("posterior").attrs[verify.ATTRIBUTE] = json.dumps(
            document(ENTRIES, EPSILON)
        )
        file.create_group("sample_stats").attrs.update({"delta": 0.8, "note": b"\xff"})
        file.attrs["note"] = b"\xff"
    assert verify.contradictions(tmp_path / "posterior.nc") == []
    with h5py.File(tmp_path / "posterior.nc", "a") as file:
        file["sample_stats"].attrs[verify.ATTRIBUTE] = ["one", "two"]
    assert "it holds two ledgers" in verify.contradictions(tmp_path / "posterior.nc")


@pytest.mark.parametrize("number", ["many", 1.5, [3, 4]])
def test_an_odd_number_of_draws_is_refused(tmp_path, number):
    import h5netcdf

    with h5netcdf.File(tmp_path / "posterior.nc", "w") as file:
        group = file.create_group("posterior")
        group.attrs.update(
            {verify.ATTRIBUTE: json.dumps(document(ENTRIES, EPSILON)), reading.NUM_DRAWS: number}
        )
    with pytest.raises(ValueError, match="'num_draws' of posterior.nc must be a whole number"):
        verify.contradictions(tmp_path / "posterior.nc")


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(ValueError, match="too long to be one"):
        reading.parsed('{"count": ' + "9" * 5000 + "}")


@pytest.mark.parametrize(
    "change", [{"format": "other"}, {"claim": {"epsilon": -1, "delta": 1e-6, "method": "gaussian"}}]
)
def test_what_is_no_ledger_is_refused(tmp_path, change):
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(document(ENTRIES, EPSILON) | change))
    with pytest.raises(ValueError, match=r"format|epsilon"):
        verify.verify(verify.read(path))


@pytest.mark.parametrize("count", [-1, 1.5, True, None])
def test_odd_counts_are_refused(count):
    forged = document(ENTRIES, EPSILON)
    forged["entries"][0]["count"] = count
    with pytest.raises(ValueError, match="count"):
        verify.verify(forged)


BATCH = {
    "kind": "subsampled-gaussian",
    "scheme": "poisson",
    "rate": 0.01,
    "noise_multiplier": 2.5,
    "neighbours": "replace-one",
}
BROKEN = {
    "entries null": {"entries": None},
    "entries an object": {"entries": {"a": 1}},
    "an entry that is a text": {"entries": ["x"]},
    "no claim": {"claim": None},
    "a list for a claim": {"claim": [1]},
    "epsilon null": {"claim": {"epsilon": None, "delta": 1e-6, "method": "gaussian"}},
    "epsilon a text": {"claim": {"epsilon": "1", "delta": 1e-6, "method": "gaussian"}},
    "delta above 1": {"claim": {"epsilon": 1, "delta": 1.5, "method": "zcdp-filter"}},
    "delta null": {"claim": {"epsilon": 1, "delta": None, "method": "gaussian"}},
    "method a list": {"claim": {"epsilon": 1, "delta": 1e-6, "method": ["gaussian"]}},
    "a relation nobody knows": {"neighbours": "banana"},
    "a list for a relation": {"neighbours": [1]},
    "rows per person": {"rows_per_person": -5},
    "no rows per person": {"rows_per_person": None},
    "too many": {"entries": [{"cost": to_json(Gaussian(50.0)), "count": 10**400}]},
    "queries that are taken back": {
        "entries": [{"cost": to_json(Gaussian(50.0)), "count": count} for count in (100, -60)]
    },
    "another relation's batches": {
        "neighbours": "add-or-remove-one",
        "entries": [{"cost": BATCH, "count": 1}],
    },
    **{
        f"cost {number}": {"entries": [{"cost": cost, "count": 1}]}
        for number, cost in enumerate(
            [
                None,
                {"kind": "barker"},
                {"kind": ["gaussian"]},
                {"kind": "gaussian"},
                {"kind": "gaussian", "noise_multiplier": "30"},
                {"kind": "gaussian", "noise_multiplier": None},
                {"kind": "gaussian", "noise_multiplier": True},
                {"kind": "gaussian", "noise_multiplier": 30.0, "colour": 1},
                {"kind": "accept-bit", "test": "barker", "range": 0.04},
                {"kind": "accept-bit", "test": to_json(Gaussian(1.0)), "range": 0.04},
                {"kind": "dp-barker", "batch": 100.5, "rows": 1000},
                {"kind": "dp-barker", "batch": "100", "rows": 1000},
                {**BATCH, "neighbours": "banana"},
            ]
        )
    },
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_ledger_is_refused_and_not_called_unproved(change):
    """Exit code 1 is for claims that are not reproduced; and whatever can be read must be of the
    promise's own relation.
    """
    assert verify.verify(document(ENTRIES, EPSILON)).is_reproduced
    with pytest.raises(ValueError):
        verify.verify(document(ENTRIES, EPSILON) | change)


def test_a_batch_of_the_ledgers_own_relation_is_verified():
    ledger = document([], 5.0, method="pld") | {"entries": [{"cost": BATCH, "count": 10}]}
    assert verify.verify(ledger).is_reproduced


def test_infinity_is_not_a_number_to_hide_behind():
    assert math.isinf(verify.verify(document(ENTRIES, "inf", method="none")).claimed)
    with pytest.raises(ValueError, match="epsilon"):
        verify.verify(document(ENTRIES, "nan"))


@pytest.mark.parametrize("place", ["ledger", "claim", "entry", "method"])
def test_nothing_that_is_said_is_passed_over(place):
    forged = document(ENTRIES, EPSILON)
    part = {
        "ledger": forged,
        "claim": forged["claim"],
        "entry": forged["entries"][0],
        "method": {},
    }[place]
    part["times"] = 1000
    forged["claim"]["method"] = "bogus" if place == "method" else "gaussian"
    with pytest.raises(ValueError, match="and no others|method must be one of"):
        verify.verify(forged if place != "method" else forged | {"entries": []})


def test_a_ledger_is_not_hidden_in_another(tmp_path):
    """What wraps a ledger is the attributes of a posterior: it makes no claim of its own, or the
    same.
    """
    path, inner = tmp_path / "attributes.json", document(ENTRIES, EPSILON)
    same = {
        "epsilon": EPSILON,
        "delta": 1e-6,
        "neighbours": "replace-one",
        "rows_per_person": 1,
        "accountant": "gaussian",
    }
    for says, is_consistent in (
        ({}, True),
        (same, True),
        (same | {"epsilon": 0.01}, False),
        ({"rows_per_person": 2}, False),
    ):
        path.write_text(json.dumps({verify.ATTRIBUTE: inner, **says}))
        assert verify.verify(verify.read(path)).is_reproduced
        assert (verify.contradictions(path) == []) == is_consistent
    for says, is_consistent in (("inf", True), (1.0, False)):
        path.write_text(
            json.dumps({verify.ATTRIBUTE: document([], "inf", method="none"), "epsilon": says})
        )
        assert (verify.contradictions(path) == []) == is_consistent
    path.write_text(json.dumps(document(ENTRIES, 0.01) | {verify.ATTRIBUTE: inner}))
    with pytest.raises(ValueError, match="a ledger within a ledger"):
        verify.read(path)
    federated = {"format": reading.FEDERATED_FORMAT, "owners": {"a": inner}}
    for change, words in (
        ({"claim": {"epsilon": 0.001}}, "and no others"),
        ({"owners": {"": inner}}, "has no name"),
    ):
        path.write_text(json.dumps(federated | change))
        with pytest.raises(ValueError, match=words):
            verify.read(path)


def test_a_claim_that_distances_break_is_not_reproduced():
    far = [(Gaussian(30.0, tv_error=1e-6), 100)]
    assert verify.verify(document([(Gaussian(30.0, tv_error=1e-12), 100)], 5.0)).is_reproduced
    assert not verify.verify(document(far, 5.0)).is_reproduced
    assert verify.verify(document(far, "inf")).is_reproduced  # it promises nothing
    assert verify.verify(document([(AcceptBit(Barker(), 0.1), 10)], "inf")).is_reproduced


def test_nothing_is_said_twice(tmp_path):
    """Of two bills under one name, one would be verified and another one read."""
    text = json.dumps(document(ENTRIES, EPSILON))
    path = tmp_path / "ledger.json"
    path.write_text(text)
    assert verify.verify(verify.read(path)).is_reproduced
    path.write_text(text[:-1] + ', "entries": []}')
    with pytest.raises(ValueError, match="names something twice"):
        verify.read(path)

"""The ledger: on disk before a grant is given out, and only for the table and the promise it was
opened with.
"""

import hashlib
import json
import math
import os
import re
import stat
import threading
import time

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from dpmcmc import Budget, BudgetExceeded, Federation, Neighbours, PrivacyRefusal, UnsupportedQuery
from dpmcmc.accounting import filters, ledger
from dpmcmc.accounting.bill import Entry, from_json
from dpmcmc.accounting.ledger import Ledger, audit
from dpmcmc.cli import main
from dpmcmc.curator.grants import granted_of
from dpmcmc.queries import Gradient, LogRatio, PoissonBatch
from tests import tiny

pytestmark = pytest.mark.usefixtures("quick_compilation")

PLAN = {tiny.RATIO: 20}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.ledger"


def curator(path, **options):
    return tiny.make_curator(ledger=path, **options)


def kept(path):
    """The grants in the file."""
    return [from_json(grant["bill"]) for grant in json.loads(path.read_text())["grants"]]


def rewritten(path, facts=None, bills=lambda bills: bills):
    """Write the file again with other facts or bills, and with the digests that fit them: anybody
    can who means to.
    """
    kept = json.loads(path.read_text())
    document = ledger._document(
        {**kept["facts"], **(facts or {})}, bills([grant["bill"] for grant in kept["grants"]])
    )
    path.write_text(json.dumps(document))


def test_a_grant_is_on_disk_before_it_is_given_out(path):
    curator(path).grant(PLAN)
    assert kept(path) == [
        (Entry(repr(tiny.RATIO), tiny.RATIO.released, tiny.RATIO.cost(tiny.BUDGET.unit), 20),)
    ]
    with pytest.raises(BudgetExceeded, match="has given its one grant and is closed"):
        curator(path).grant(PLAN)


def test_a_grant_that_cannot_be_written_is_not_given(path, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    owner = curator(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            owner.grant(PLAN)
    assert owner._account.ledger.grants == [] and not path.exists()
    owner.grant(PLAN)
    assert len(kept(path)) == 1


ADD_OR_REMOVE = Budget(1.0, 1e-6, Neighbours.ADD_OR_REMOVE_ONE)
CHANGES = {
    "n": ({"rows": tiny.ROWS[1:]}, "capacity=40, now it is 39"),
    "budget": ({"budget": Budget(2.0, 1e-6)}, r"budget=\[1.0, 1e-06\], now it is \[2.0, 1e-06\]"),
    "relation": (
        {"budget": ADD_OR_REMOVE, "capacity": 40},
        "neighbours=replace-one, now it is add-or-remove-one",
    ),
    "rows per person": (
        {"budget": Budget(1.0, 1e-6, rows_per_person=2), "capacity": 40},
        "rows_per_person=1, now it is 2",
    ),
    "no promise": ({"budget": None}, "budget=.*, now it is None"),
    "filter": ({"shared_by": "zcdp"}, "shared_by=None, now it is zcdp"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_table_or_promise_is_refused(change, path):
    options, words = CHANGES[change]
    curator(path).grant(PLAN)
    before = path.read_bytes()
    with pytest.raises(
        BudgetExceeded,
        match=f"was opened with {words}: a promise does not change .* would be a second budget",
    ):
        curator(path, **options)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 10_000,
        '{"format": "other", "facts": {}, "grants": []}',
        '{"format": ["dpmcmc-grants-3"]}',
    ],
)
def test_another_file_is_refused(text, path):
    path.write_text(text)
    with pytest.raises(
        ValueError,
        match=r"table\.ledger is not a ledger that a curator keeps: .* name another file",
    ):
        curator(path)
    assert path.read_text() == text


def test_a_missing_folder_is_refused_at_the_door(tmp_path):
    with pytest.raises(ValueError, match="its folder does not exist; make it first"):
        curator(tmp_path / "missing" / "table.ledger")


def test_what_is_left_is_not_told_from_a_ledger_that_others_have_spent_from(path):
    first, second = curator(path, shared_by="zcdp"), curator(path, shared_by="zcdp")
    first.grant(PLAN)
    for question in (
        lambda: second.check({query: 10**6 for query in PLAN}),
        lambda: second.max_steps({}, PLAN),
    ):
        with pytest.raises(BudgetExceeded, match="somebody else has spent"):
            question()


def test_threads_of_one_curator_do_not_take_each_other_for_somebody_else(path, monkeypatch):
    """While one has written its grant, and not yet noted it, the others wait."""
    shared, sync, written = curator(path, shared_by="zcdp"), ledger._sync_folder, threading.Event()

    def slowly(folder):
        written.set()
        time.sleep(0.3)
        sync(folder)

    monkeypatch.setattr(ledger, "_sync_folder", slowly)
    thread = threading.Thread(target=shared.grant, args=(PLAN,))
    thread.start()
    assert written.wait(10)
    shared.check(PLAN)
    thread.join()
    assert shared.num_grants == 1


@pytest.mark.parametrize(
    "change", [lambda path, old: path.unlink(), lambda path, old: path.write_text(old)]
)
def test_a_ledger_that_lost_grants_is_to_be_brought_back(change, path):
    shared = curator(path, shared_by="zcdp")
    shared.grant(PLAN)
    old = path.read_text()
    shared.grant(PLAN)
    change(path, old)
    for question in (lambda: shared.check(PLAN), lambda: shared.grant(PLAN)):
        with pytest.raises(
            BudgetExceeded, match="no longer has all that was spent: bring it back from a copy"
        ):
            question()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_to_a_ledger_is_that_ledger(is_there, path, tmp_path):
    link = tmp_path / "link.ledger"
    link.symlink_to(path)
    first, second = (
        curator(path if is_there else link, shared_by="zcdp"),
        curator(link, shared_by="zcdp"),
    )
    first.grant(PLAN)
    with pytest.raises(BudgetExceeded, match="somebody else has spent"):
        second.grant(PLAN)
    curator(link, shared_by="zcdp").grant(PLAN)
    assert link.is_symlink() and len(kept(path)) == 2
    assert not (tmp_path / "link.ledger.lock").exists()


def test_the_folder_is_synced_with_the_file(path, monkeypatch):
    """Or a power cut could bring back the ledger without the grant."""
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: synced.append(stat.S_ISDIR(os.fstat(number).st_mode)) or fsync(number),
    )
    curator(path).grant(PLAN)
    assert synced == [False, True]


def test_the_owners_of_a_federation_cannot_be_changed():
    federation = Federation([tiny.make_curator()])
    with pytest.raises(TypeError):
        federation.owners["1"] = tiny.make_curator()


def test_a_ledger_with_two_names_is_refused(path, tmp_path):
    """A file is replaced under one name: under the other it would be spent again."""
    curator(path, shared_by="zcdp").grant(PLAN)
    os.link(path, tmp_path / "second.ledger")
    for name in (path, tmp_path / "second.ledger"):
        with pytest.raises(ValueError, match="has a second name"):
            curator(name, shared_by="zcdp")


@pytest.mark.parametrize("shared_by", [None, "gaussian-dp", "zcdp"])
def test_a_negative_count_pays_for_nothing(shared_by):
    """Equal costs are added: 1000 asks less 999 of another query were billed as one."""
    free = tiny.make_curator(shared_by=shared_by)
    plan = {LogRatio(1.0, 5.0): 1000, LogRatio(2.0, 5.0): -999}
    for refuse in (free.grant, free.check, lambda plan: free.max_steps({}, plan)):
        with pytest.raises(ValueError, match="-999 is less than never"):
            refuse(plan)
    assert free._account.ledger.grants == []


def test_the_bill_of_a_program_cannot_be_changed():
    free = tiny.make_curator()
    traced = free.trace(
        lambda ask, key: ask(key, tiny.RATIO, tiny.START, tiny.START).value, jax.random.key(0)
    )
    with pytest.raises(TypeError):
        traced.plan[tiny.RATIO] = 0


def test_of_two_that_hold_the_same_ledger_one_is_refused(path):
    first, second = curator(path, shared_by="zcdp"), curator(path, shared_by="zcdp")
    first.grant(PLAN)
    with pytest.raises(
        BudgetExceeded, match=r"somebody else has spent .*: create the curator again"
    ):
        second.grant(PLAN)
    assert len(kept(path)) == 1
    first.grant(PLAN)
    assert len(kept(path)) == 2


def test_of_two_that_saw_the_same_ledger_one_writes(path):
    """The second has looked at the file before the first wrote to it, as two processes at once
    may."""
    first, second = Ledger.open({}, path), Ledger.open({}, path)
    first.record(())
    with pytest.raises(BudgetExceeded, match="somebody else has spent"):
        second.record(())
    assert kept(path) == [()] and second.grants == []


@pytest.mark.skipif(os.name != "posix", reason="file locks of POSIX")
def test_a_grant_waits_for_who_is_writing(path):
    import fcntl

    thread = threading.Thread(target=Ledger.open({}, path).record, args=((),))
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.2)
        assert not path.exists()
    thread.join()
    assert kept(path) == [()]


def test_a_delta_that_rounded_noise_uses_up_is_refused():
    """By the ideal law of the noise alone it would fit."""
    owner = tiny.make_curator(budget=Budget(1.0, 1e-30), fixed_secret=None)
    owner.check({LogRatio(0.01, 1e6): 1})
    with pytest.raises(BudgetExceeded):
        owner.check({LogRatio(0.01, 1e6): 1000})


# -- budgets shared by several grants -------------------------------------------------------------


def test_counts_of_numpy_are_added_up_as_they_are():
    """200 + 100 of its bytes are 44."""
    plan = {LogRatio(1.0, 500.0): np.uint8(200), LogRatio(2.0, 500.0): np.uint8(100)}
    grant = tiny.make_curator(fixed_secret=None).grant(plan)
    plain = tiny.make_curator(fixed_secret=None).grant(
        {query: int(count) for query, count in plan.items()}
    )
    assert (
        grant.statement().epsilon == plain.statement().epsilon
        and granted_of(grant).left == granted_of(plain).left
    )
    assert all(type(count) is int for count in granted_of(grant).left.values())


@pytest.mark.parametrize("shared_by", [None, "zcdp"])
def test_of_several_threads_one_has_the_budget(shared_by, path):
    """Each had seen it unspent before the first had written its grant down."""
    curator = tiny.make_curator(shared_by=shared_by, ledger=path)
    plan = {tiny.RATIO: curator.max_steps({}, {tiny.RATIO: 1})}
    together, granted, refused = threading.Barrier(4), [], []

    def go():
        together.wait()
        try:
            granted.append(curator.grant(plan))
        except BudgetExceeded as refusal:
            refused.append(refusal)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), len(refused)) == (1, 3)
    assert len(tiny.make_curator(shared_by=shared_by, ledger=path)._account.ledger.grants) == 1


@pytest.mark.parametrize("shared_by", ["gaussian-dp", "zcdp", "renyi"])
def test_several_grants_share_the_budget(shared_by, path):
    owner = curator(path, shared_by=shared_by)
    most = owner.max_steps({}, {tiny.RATIO: 1})
    half = most // 2
    owner.grant({tiny.RATIO: half})
    with pytest.raises(
        BudgetExceeded, match=r"this costs .* of .* is left \(budget: epsilon=1, delta=1e-06\)"
    ):
        owner.grant({tiny.RATIO: most - half + 1})
    assert len(owner._account.ledger.grants) == len(kept(path)) == 1
    reopened = curator(path, shared_by=shared_by)
    assert reopened.max_steps({}, {tiny.RATIO: 1}) == most - half
    reopened.grant({tiny.RATIO: most - half})
    assert reopened.max_steps({}, {tiny.RATIO: 1}) == 0


@pytest.mark.parametrize("shared_by", ["gaussian-dp", "zcdp"])
def test_what_a_start_asks_leaves_fewer_steps_of_a_shared_budget(shared_by):
    shared = tiny.make_curator(shared_by=shared_by)
    assert (
        shared.max_steps({tiny.RATIO: 5}, {tiny.RATIO: 1})
        == shared.max_steps({}, {tiny.RATIO: 1}) - 5
    )


def test_a_run_that_no_longer_fits_is_told_what_is_left(path):
    owner = curator(path, shared_by="zcdp")
    owner.grant({tiny.RATIO: owner.max_steps({}, {tiny.RATIO: 1})})
    words = (
        r"what is left of the budget of epsilon=1, delta=\S+, \S+ of 0.0243 of rho \(zCDP\), "
        "allows 0 steps of 2 chains"
    )
    for num_steps in (None, 1):
        with pytest.raises(BudgetExceeded, match=words):
            tiny.run(curator(path, shared_by="zcdp"), num_steps=num_steps)
    with pytest.raises(BudgetExceeded, match=f"owner 1 with {words}"):
        tiny.run(Federation([curator(path, shared_by="zcdp")]), num_steps=None)


def test_sharing_costs_little_when_all_is_gaussian(path):
    alone = curator(None).max_steps({}, {tiny.RATIO: 1})
    assert (
        alone - 1 <= curator(path, shared_by="gaussian-dp").max_steps({}, {tiny.RATIO: 1}) <= alone
    )


def test_accept_bits_are_refused_under_gaussian_dp_and_shared_under_zcdp(path):
    owner = curator(path, shared_by="gaussian-dp")
    with pytest.raises(UnsupportedQuery, match="cannot sum up AcceptBit: have it shared by zcdp"):
        owner.grant({tiny.BIT: 1})
    assert owner._account.ledger.grants == [] and not path.exists()
    owner.grant({tiny.RATIO: 1})
    mixed = curator(None, shared_by="zcdp")
    mixed.grant({tiny.BIT: 100})
    mixed.grant({tiny.RATIO: 1})
    assert len(mixed._account.ledger.grants) == 2


def test_queries_of_different_noise_share_too():
    owner = curator(None, shared_by="gaussian-dp")
    quiet, loud = (
        LogRatio(clip=1.0, noise_multiplier=60.0),
        LogRatio(clip=1.0, noise_multiplier=30.0),
    )
    most = owner.max_steps({}, {loud: 1})
    owner.grant({loud: most - 1})
    # One of the loud is four of the quiet, and there is a rest
    assert owner.max_steps({}, {quiet: 1}) in (4, 5, 6, 7)


def test_the_filter_does_not_count_what_the_accountant_does_not():
    with pytest.raises(ValueError, match="shared_by='best' must be None or one of"):
        tiny.make_curator(shared_by="best")


# -- what it adds up to ---------------------------------------------------------------------------


def called(path):
    """What `dpmcmc account ledger` answers: its exit code and the answer."""
    result = CliRunner().invoke(main, ["account", "ledger", str(path), "--json"])
    assert result.exit_code < 2, result.output
    assert CliRunner().invoke(main, ["account", "ledger", str(path)]).exit_code == result.exit_code
    return result.exit_code, json.loads(result.output)


@pytest.mark.parametrize("shared_by", [None, *filters.NAMES])
def test_the_spends_are_added_up_against_the_budget(shared_by, path):
    owner = curator(path, shared_by=shared_by)
    for _ in range(1 if shared_by is None else 2):
        owner.grant(PLAN)
    code, answer = called(path)
    assert code == 0 and answer["is_within_budget"] and answer["budget_epsilon"] == 1
    assert answer["steps"] == 20 * answer["grants"] == 20 * len(kept(path))
    assert answer["method"] == filters.NAMES.get(shared_by, "gaussian")
    assert (answer["epsilon"] < 1) == (shared_by is None) == ("left" not in answer)
    assert shared_by is None or re.match(r"\d+\.\d% of the budget \(\S+ of \S+ ", answer["left"])
    for more in (100, 10**6):
        rewritten(
            path,
            bills=lambda bills, more=more: [
                [entry | {"count": more} for entry in bill] for bill in bills
            ],
        )
        code, answer = called(path)
        assert code == 1 and not answer["is_within_budget"]


def test_the_spends_are_told_with_their_unit(path):
    tiny.make_curator(budget=Budget(1.0, 1e-6, rows_per_person=3), capacity=60, ledger=path).grant(
        PLAN
    )
    _, answer = called(path)
    assert (answer["relation"], answer["rows_per_person"]) == ("replace-one", 3)


def test_without_a_promise_nothing_is_over(path):
    curator(path, budget=None).grant(PLAN)
    assert called(path)[1]["epsilon"] == "inf"


def test_several_grants_have_a_figure_only_where_they_share(path):
    """A curator gives one grant from a budget that is not shared: costs that were chosen on the way
    are not those of a plan.
    """
    curator(path).grant(PLAN)
    assert called(path)[0] == 0
    rewritten(path, bills=lambda bills: 2 * bills)
    code, answer = called(path)
    assert code == 1 and answer["epsilon"] == "inf" and answer["grants"] == 2


def test_a_budget_too_small_for_any_spend_is_told(path):
    curator(path, shared_by="zcdp").grant({})
    rewritten(path, {"budget": [1e-5, 1e-6]}, lambda bills: [])
    code, answer = called(path)
    assert code == 0 and answer["left"].startswith("0.0% of the budget")


@pytest.mark.parametrize(
    "budget",
    [{}, 0, [1], [1, "x"], [0, 1e-6], [1, -1], [math.nan, 1e-6], [math.inf, 1e-6]],
    ids=str,
)
def test_a_budget_that_is_none_is_not_taken_for_no_promise(path, budget):
    curator(path).grant(PLAN)
    rewritten(path, {"budget": budget})
    result = CliRunner().invoke(main, ["account", "ledger", str(path)])
    assert result.exit_code == 2 and "must be null or two numbers" in result.output


def test_a_ledger_holds_numbers_and_no_rows(path):
    rows = np.full(40, 0.123456, np.float32)
    curator(path, rows=rows).grant(PLAN)
    assert "0.1234" not in path.read_text()


def test_spends_of_batches_are_not_those_of_persons_with_several_rows(path):
    """Nobody can have made them: a curator refuses such queries."""
    curator(path).grant({Gradient(1.0, 30.0, PoissonBatch(0.01)): 5})
    assert audit(path).is_within
    rewritten(path, {"rows_per_person": 5})
    with pytest.raises(ValueError, match="a cost is for persons with one row"):
        audit(path)


def test_grants_that_are_told_twice_are_refused(path):
    curator(path).grant(PLAN)
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "grants": []}')
    with pytest.raises(ValueError, match="is not a ledger that a curator keeps"):
        audit(path)


# -- a file that was changed ----------------------------------------------------------------------


def without(count):
    return lambda kept: kept | {"grants": kept["grants"][:count]}


def shortened_by_hand(kept):
    """The last grant taken out, and the head put right as far as one can without a hash."""
    last = kept["grants"][0]["digest"]
    return kept | {"grants": kept["grants"][:1], "head": {"grants": 1, "digest": last}}


def edited(*path, to):
    def change(kept):
        inner = kept
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = to
        return kept

    return change


NOISE = ("grants", 0, "bill", 0, "cost", "noise_multiplier")
CHANGED = {
    "no grants": without(0),
    "no grants and no head": lambda kept: {**without(0)(kept), "head": {"grants": 0, "digest": ""}},
    "one grant less": without(1),
    "one grant less, in the head too": shortened_by_hand,
    "the first grant gone": lambda kept: kept | {"grants": kept["grants"][1:]},
    "another order": lambda kept: kept | {"grants": kept["grants"][::-1]},
    "a grant twice": lambda kept: kept | {"grants": kept["grants"] + kept["grants"][-1:]},
    "more noise": edited(*NOISE, to=3e6),
    "fewer asks": edited("grants", 1, "bill", 0, "count", to=1),
    "a whole number as a float": edited("grants", 1, "bill", 0, "count", to=20.0),
    "a larger budget": edited("facts", "budget", to=[8.0, 1e-6]),
    "another filter": edited("facts", "shared_by", to="renyi"),
    "another digest": edited("grants", 0, "digest", to="0" * 64),
    "a field more": edited("grants", 0, "bill", 0, "note", to="x"),
    "no digests": lambda kept: kept | {"grants": [grant["bill"] for grant in kept["grants"]]},
    "no head": lambda kept: {name: part for name, part in kept.items() if name != "head"},
    "another ledger's head": lambda kept: (
        kept | {"head": ledger._document(kept["facts"], [])["head"]}
    ),
    "facts that are none": edited("facts", to=[]),
    "grants that are none": edited("grants", to={"bill": 1}),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_ledger_that_was_changed_is_refused(name, path):
    """No fresh budget for a file with fewer spends in it; and whoever has the ledger open notices
    as well.
    """
    owner = curator(path, shared_by="zcdp")
    owner.grant(PLAN)
    owner.grant(PLAN)
    path.write_text(json.dumps(CHANGED[name](json.loads(path.read_text()))))
    changed = path.read_bytes()
    for use in (
        lambda: curator(path, shared_by="zcdp"),
        lambda: owner.grant(PLAN),
        lambda: audit(path),
    ):
        with pytest.raises(
            PrivacyRefusal, match="is not as a curator wrote it: .* Bring the latest copy back"
        ):
            use()
    result = CliRunner().invoke(main, ["account", "ledger", str(path)])
    assert result.exit_code == 2 and "is not as a curator wrote it" in result.output
    assert path.read_bytes() == changed


def test_a_ledger_is_known_however_its_json_is_written(path):
    owner = curator(path, shared_by="zcdp")
    owner.grant(PLAN)
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(kept.items()))))
    owner.grant(PLAN)
    assert called(path)[1]["grants"] == 2


def test_digests_are_what_the_documentation_says(path):
    """Computed anew, from the text of the docs alone."""

    def digest(value):
        return hashlib.sha256(
            json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    owner = curator(path, shared_by="zcdp")
    owner.grant(PLAN)
    owner.grant(PLAN)
    kept = json.loads(path.read_text())
    last = digest([kept["format"], kept["facts"]])
    for grant in kept["grants"]:
        last = digest([kept["facts"], grant["bill"], last])
        assert grant["digest"] == last
    assert kept["head"] == {"grants": 2, "digest": digest(["head", 2, last])}


def test_a_ledger_of_another_version_is_refused(path):
    """One without digests could have been changed in any way."""
    curator(path).grant(PLAN)
    kept = json.loads(path.read_text())
    grants = [grant["bill"] for grant in kept["grants"]]
    path.write_text(
        json.dumps({"format": "dpmcmc-grants-2", "facts": kept["facts"], "grants": grants})
    )
    for use in (curator, audit):
        with pytest.raises(
            PrivacyRefusal,
            match="written by another version of dpmcmc.*: go on with the version that wrote it",
        ):
            use(path)


@pytest.mark.parametrize("end", [".draft", ".lock", ".DRAFT"])
def test_a_ledger_with_the_name_of_a_draft_is_refused(end, tmp_path):
    """A grant from spent.json is first written to spent.json.draft, and erased the grants of a
    ledger of that name.
    """
    with pytest.raises(ValueError, match="other ledgers' drafts and locks"):
        tiny.make_curator(ledger=tmp_path / f"spent.json{end}")


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(ValueError, match="is no file: name one, or a new one"):
        tiny.make_curator(ledger=tmp_path)

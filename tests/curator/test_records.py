"""What was compiled, what it costs and what was granted cannot be taken apart by what anybody may
do with the objects.
"""

import copy
import pickle
from types import MappingProxyType

import jax
import numpy as np
import pytest

from dpmcmc import Federation, PrivacyRefusal
from dpmcmc.curator.records import Handle
from tests import tiny

KEY = jax.random.key(0)
OWNERS = {
    "alone": tiny.make_curator,
    "together": lambda: Federation([tiny.make_curator(fixed_secret=None) for _ in range(2)]),
}


def asks_once(ask, key):
    return ask(key, tiny.RATIO, tiny.START, tiny.START + 1).value


def replaced(handle):
    return handle._replace(plan={})


def overwritten(handle):
    handle.plan = {}
    return handle


def emptied(handle):
    handle.plan.clear()
    return handle


def put_together(handle):
    return type(handle)({}, handle)


def with_another_bill(handle):
    """A subclass whose bill is empty, and which says that it is the one that was compiled."""

    class Free(type(handle)):
        plan = MappingProxyType({})
        check = lambda self, plan: None  # noqa: E731
        __hash__ = lambda self: hash(handle)  # noqa: E731
        __eq__ = lambda self, other: True  # noqa: E731

    return Free()


WAYS = [
    *(replaced, overwritten, emptied, put_together, with_another_bill, copy.copy, copy.deepcopy),
    lambda handle: pickle.loads(pickle.dumps(handle)),
    lambda handle: type(handle)(),
    lambda handle: object.__new__(type(handle)),
]
IMPOSSIBLE = (AttributeError, TypeError, PrivacyRefusal)


@pytest.fixture(params=OWNERS)
def owner(request):
    return OWNERS[request.param]()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", ["executable", "traced"])
def test_a_program_does_not_run_without_its_bill(owner, way, stage):
    """The grant is spent: whatever is made of a program, it gives no further answer."""
    traced = owner.trace(asks_once, KEY)
    executable, grant = traced.compile(), owner.grant(traced.plan)
    assert np.isfinite(grant.run(executable, KEY))
    with pytest.raises(IMPOSSIBLE):
        grant.run(way(executable) if stage == "executable" else way(traced).compile(), KEY)
    assert executable.plan == traced.plan == {tiny.RATIO: 1}


@pytest.mark.parametrize("way", [way for way in WAYS if way is not with_another_bill])
def test_a_grant_is_not_made_of_another(owner, way):
    traced = owner.trace(asks_once, KEY)
    executable, grant = traced.compile(), owner.grant(traced.plan)
    with pytest.raises(IMPOSSIBLE):
        made = way(grant)
        for _ in range(2):
            made.run(executable, KEY)
    assert np.isfinite(grant.run(executable, KEY))


def test_a_grant_that_passes_for_another_one_is_that_one(owner):
    """Equal in the eyes of a dictionary: its record is the other's, and what it runs is taken off
    there.
    """
    traced = owner.trace(asks_once, KEY)
    executable, grant = traced.compile(), owner.grant(traced.plan)
    with pytest.raises(PrivacyRefusal):
        for _ in range(2):
            with_another_bill(grant).run(executable, KEY)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_curator_is_not_copied(copied):
    """What is left of its budget would be there twice."""
    with pytest.raises(
        PrivacyRefusal, match="a curator cannot be pickled or copied: .* share a ledger="
    ):
        copied(tiny.make_curator())


@pytest.mark.parametrize("name", ["owners", "model"])
def test_a_federation_keeps_its_owners(name):
    """Noise for the units of those that were there when a program was traced is not enough for
    others.
    """
    federation = Federation([tiny.make_curator()])
    with pytest.raises(AttributeError):
        setattr(federation, name, getattr(Federation([tiny.make_curator()]), name))


def test_a_refusal_says_where_to_get_one():
    curator = tiny.make_curator()
    grant = curator.grant({tiny.RATIO: 1})
    for no_program in (None, Handle(), grant, asks_once):
        with pytest.raises(
            PrivacyRefusal,
            match=r"is not a program that a curator has compiled \(curator.trace\(program",
        ):
            grant.run(no_program, KEY)
    with pytest.raises(
        PrivacyRefusal,
        match=r"is not a grant that a curator has given out \(curator.grant\(plan\)\)",
    ):
        copy.copy(grant).statement()

import json
import math
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest

from dpmcmc.acceptance import Barker, LazyBarker, Penalty
from dpmcmc.accounting import accountants, calibrate
from dpmcmc.accounting.costs import (
    ZCDP,
    AcceptBit,
    DPBarker,
    Gaussian,
    MinibatchBarker,
    NonPrivate,
    PoissonMixture,
    Pure,
    Radial,
    SubsampledGaussian,
    from_json,
    to_json,
)
from dpmcmc.errors import UnsupportedQuery
from dpmcmc.types import Neighbours

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_OR_REMOVE_ONE
COSTS = [
    Gaussian(1 / 3),
    Gaussian(7.0, 1e-15),
    AcceptBit(Barker(), 0.1 + 0.2),
    AcceptBit(LazyBarker(0.3), 0.04),
    AcceptBit(Penalty(math.pi), 0.5, 1e-12),
    Pure(0.7),
    Pure(0.0),
    Radial(0.1 + 0.2, 1),
    Radial(1.0, 7, 1e-13),
    ZCDP(0.01),
    SubsampledGaussian("poisson", 0.01, 1.1, ADD),
    SubsampledGaussian("poisson", 0.01, 1.1, REPLACE),
    SubsampledGaussian("fixed", 0.01, 1.1, REPLACE),
    SubsampledGaussian("fixed", 0.01, 1.1, ADD),
    PoissonMixture(1.5e-3, 1.0, 0.97, REPLACE),
    PoissonMixture(1.5e-3, 1.0, 0.97, ADD),
    MinibatchBarker(0.02, 1.0),
    DPBarker(1000, 100_000),
    DPBarker(1000, 100_000, "paper"),
    NonPrivate("no noise"),
]


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_json_round_trip_is_exact(cost):
    assert from_json(json.loads(json.dumps(to_json(cost)))) == cost
    assert hash(cost) == hash(from_json(to_json(cost)))


@pytest.mark.parametrize("sigma", [np.float32(0.1), np.uint8(16), True, 2], ids=repr)
def test_numbers_of_a_test_are_plain(sigma):
    """A square of uint8(16) is 0, and JSON knows neither NumPy's numbers nor what is billed for
    `true`.
    """
    cost = AcceptBit(Penalty(sigma), 0.1)
    assert cost == from_json(json.loads(json.dumps(to_json(cost))))
    assert cost.rdp([2.0])[0] == AcceptBit(Penalty(float(sigma)), 0.1).rdp([2.0])[0]
    for strange in ("1", None, np.ones(1)):
        with pytest.raises(TypeError, match=r"plain number: give float\("):
            Penalty(strange)
        with pytest.raises(TypeError, match=r"plain number: give float\("):
            LazyBarker(strange)
    for far in (math.inf, math.nan, 10**400):
        with pytest.raises(ValueError, match="must be finite"):
            Penalty(far)


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_every_cost_answers_every_accountant(cost):
    orders = np.array([1.02, 2.0, 3.5, 20.0, 900.0])
    values = cost.rdp(orders)
    assert values.shape == orders.shape and np.all(values >= 0) and not np.any(np.isnan(values))
    assert np.all(np.diff(values[np.isfinite(values)]) >= -1e-12)  # divergences grow with the order
    rho = cost.rho()
    assert rho is None or np.all(values <= rho * orders * (1 + 1e-9))
    pure = cost.pure()
    assert pure is None or np.all(values <= pure * (1 + 1e-9))


@pytest.mark.parametrize("bound, first", [("paper", 200.0), ("tight", 251.0 + 1 / 3.996)])
def test_a_batch_bounds_orders_up_to_a_limit(bound, first):
    """The paper's bound ends at b / 5, the tight one where (a - 1) 4 (b - 1) / b^2 is 1."""
    values = DPBarker(1000, 100_000, bound).base_rdp(np.array([first - 1, first, first + 1, 1e4]))
    assert np.isfinite(values[0]) and np.all(np.isposinf(values[1:]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(-1.0),
        lambda: Gaussian(math.inf),
        lambda: Gaussian(math.nan),
        lambda: Gaussian(1e-200),
        lambda: Gaussian(1e200),
        lambda: AcceptBit(Barker(), 1e-200),
        lambda: AcceptBit(Penalty(math.inf), 0.04),
        lambda: AcceptBit(Penalty(1e-200), 0.04),
        lambda: Pure(1e200),
        lambda: SubsampledGaussian("poisson", 1e-300, 1.0, ADD),
        lambda: PoissonMixture(1e6, 1.0, 1.0, ADD),
        lambda: PoissonMixture(1e-300, 1.0, 1.0, ADD),
        lambda: MinibatchBarker(3.0, 1e300),
        lambda: MinibatchBarker(-0.02, 1.0),
        lambda: Gaussian(1.0, 1.5),
        lambda: Gaussian(1.0, -1e-9),
        lambda: AcceptBit(Barker(), 0.0),
        lambda: Pure(-0.1),
        lambda: ZCDP(math.inf),
        lambda: SubsampledGaussian("stratified", 0.1, 1.0, ADD),
        lambda: SubsampledGaussian("poisson", 0.0, 1.0, ADD),
        lambda: SubsampledGaussian("poisson", 1.1, 1.0, ADD),
        lambda: SubsampledGaussian("poisson", 0.1, 1.0, "replace-one"),
        lambda: PoissonMixture(0.1, 1.0, 0.0, ADD),
        lambda: MinibatchBarker(0.1, 0.0),
        lambda: DPBarker(5, 100),
        lambda: DPBarker(200, 100),
        lambda: DPBarker(6.5, 100),
        lambda: DPBarker(6, 100.5),
        lambda: DPBarker(20, 100, "loose"),
        lambda: from_json({"kind": "laplace", "scale": 1.0}),
        lambda: from_json({"kind": "gaussian", "noise_multiplier": 1.0, "free": True}),
    ],
)
def test_what_is_out_of_range_is_refused(make):
    with pytest.raises(ValueError, match="must|a field kind|has the fields"):
        make()


@pytest.mark.parametrize(
    "cost",
    [
        *(
            kind(size)
            for kind in (Gaussian, partial(AcceptBit, Barker()), partial(AcceptBit, Penalty(1.0)))
            for size in (1e-50, 1e50)
        ),
        *(AcceptBit(Penalty(sigma), 0.04) for sigma in (1e-50, 1e50)),
        *(kind(size) for kind in (Pure, ZCDP) for size in (0.0, 1e-50, 1e50)),
        *(
            SubsampledGaussian(scheme, 1e-12, z, REPLACE)
            for scheme in ("poisson", "fixed")
            for z in (1e-50, 1.0, 1e50)
        ),
        *(
            SubsampledGaussian("poisson", 1.0, z, relation)
            for relation in (ADD, REPLACE)
            for z in (1e-50, 1.0, 1e50)
        ),
        *(
            PoissonMixture(1e-12, weight, std, REPLACE)
            for weight, std in ((1e50, 1e-50), (1.0, 1.0), (1e-50, 1e50))
        ),
        *(
            MinibatchBarker(bound, ratio)
            for bound, ratio in ((1e-50, 1e-50), (1e-50, 1e50), (1e50, 1e-50), (1e50, 1e50))
        ),
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_have_an_answer(cost):
    """Or are refused in words: no other error, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ask in (
            lambda: accountants.epsilons({cost: 3}, 1e-6),
            lambda: calibrate.steps({cost: 1}, 1.0, 1e-6),
        ):
            try:
                ask()
            except UnsupportedQuery as refusal:
                assert isinstance(cost, PoissonMixture) and any(
                    words in str(refusal) for words in ("pld", "no grid resolves them")
                )


def test_numbers_are_plain():
    cost = Gaussian(np.float32(2.0))
    assert type(cost.noise_multiplier) is float
    assert json.dumps(to_json(cost))


def test_lazy_barker_has_its_own_zcdp_bound():
    assert AcceptBit(LazyBarker(0.1), 0.04).rho() < 0.4 * AcceptBit(Barker(), 0.04).rho()
    assert AcceptBit(LazyBarker(0.1), 1e-8).rho() < 0.4 * AcceptBit(Barker(), 1e-8).rho()
    assert AcceptBit(Barker(), 0.04).rho() == pytest.approx(0.04**2 / 8, rel=1e-3)


def test_no_accountant_imports_jax():
    code = (
        "import sys, dpmcmc.cli, dpmcmc.accounting.laws.pld, dpmcmc.accounting.laws.recursion, "
        "dpmcmc.accounting.verify\n"
        "import dpmcmc.accounting.calibrate\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('jax', 'jaxlib', "
        "'dp_accounting', 'arviz')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "cost, orders",
    [
        # Where it is largest, which is between two orders
        (AcceptBit(LazyBarker(0.05), 2.0), np.geomspace(6.5, 6.8, 100)),
        (MinibatchBarker(0.02, 1.0, rounding=0.1), np.geomspace(1.001, 30.0, 20)),
    ],
    ids=["lazy", "rounded"],
)
def test_rho_is_the_rate_of_every_order(cost, orders):
    assert np.max(cost.rdp(orders) / orders) <= cost.rho()


def test_rounding_is_added_to_the_losses_of_minibatch_bits():
    exact, rounded = MinibatchBarker(0.02, 1.0), MinibatchBarker(0.02, 1.0, rounding=0.1)
    assert rounded.pure() == pytest.approx(exact.pure() + 0.1)
    assert np.all(rounded.rdp([2.0, 1e4]) > exact.rdp([2.0, 1e4]))


def test_numbers_of_rows_are_written_as_whole_numbers():
    """NumPy's integers, and floats that are whole, can be read again: a ledger with a batch of 20.0
    rows would be refused.
    """
    for cost in (DPBarker(np.int64(20), np.int32(100)), DPBarker(20.0, 100.0)):
        assert from_json(json.loads(json.dumps(to_json(cost)))) == cost

"""One command for each kind of query."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any

import typer

from dpmcmc.cli.account.commands import Protected, command
from dpmcmc.cli.account.questions import Question

Test = enum.StrEnum(
    "Test",
    {
        "barker": "barker",
        "lazy_barker": "lazy-barker",
        "penalty": "penalty",
        "metropolis": "metropolis",
    },
)


BitMethod = enum.StrEnum("BitMethod", ["best", "rdp", "exact"])


Scheme = enum.StrEnum("Scheme", ["poisson", "fixed"])


BatchMethod = enum.StrEnum("BatchMethod", ["pld", "rdp"])


MinibatchMethod = enum.StrEnum("MinibatchMethod", ["best", "rdp", "pure"])


Bound = enum.StrEnum("Bound", ["tight", "paper"])


Conversion = enum.StrEnum("Conversion", ["best", "paper"])


MAX_LEAPFROG = 10**6 - 2


@command("gaussian", is_labelled=True)
def gaussian(
    noise_multiplier: Annotated[
        float, typer.Option(help="Z: standard deviation of the noise / sensitivity.")
    ],
) -> Question:
    """Queries answered with Gaussian noise: exact."""
    from dpmcmc.accounting.costs import Gaussian

    return Question({Gaussian(noise_multiplier): 1}, "gaussian")


@command("radial", is_labelled=True)
def radial(
    size: Annotated[float, typer.Option(help="E: sensitivity / scale of the noise.")],
    dimension: Annotated[int, typer.Option(help="D: entries of the vector.")],
) -> Question:
    """Vectors with radial noise, of density exp(-E |z| / sensitivity): nearly exact."""
    from dpmcmc.accounting.costs import Radial

    return Question({Radial(size, dimension): 1}, None)


@command("accept-bit", is_labelled=True)
def accept_bit(
    test: Annotated[
        Test, typer.Option(help="The acceptance test whose bit is released; metropolis is refused.")
    ],
    range: Annotated[
        float,
        typer.Option("--range", help="DELTA: how far one unit of privacy moves the log-ratio."),
    ],
    kappa: Annotated[
        float | None, typer.Option(help="Lazy Barker: the probability that the rows are read.")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Penalty: standard deviation of the noise on the ratio.")
    ] = None,
    method: Annotated[
        BitMethod,
        typer.Option(
            help="best: the better of rdp and pure. exact: the recursion, about 12 % more steps; "
            "slow."
        ),
    ] = BitMethod.best,
) -> Question:
    """Accept bits: the coin is tossed where the rows are, and only its side is released."""
    from dpmcmc.accounting.costs import AcceptBit

    methods = {BitMethod.best: None, BitMethod.rdp: "rdp", BitMethod.exact: "recursion"}
    return Question({AcceptBit(_acceptance_test(test, kappa, sigma), range): 1}, methods[method])


def _acceptance_test(test: Test, kappa: float | None, sigma: float | None) -> Any:
    from dpmcmc import acceptance

    for option, value, wanted in (
        ("--sigma", sigma, Test.penalty),
        ("--kappa", kappa, Test.lazy_barker),
    ):
        if value is not None and test is not wanted:
            raise ValueError(
                f"the {test.value} test takes no {option}: leave it out, or name the "
                f"{wanted.value} test"
            )
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{option} {value} must be a number")
    if test is Test.penalty:
        if sigma is None:
            raise ValueError("the penalty test needs --sigma, the standard deviation of its noise")
        return acceptance.Penalty(sigma)
    if test is Test.lazy_barker:
        if kappa is None:
            raise ValueError(
                "the lazy Barker test needs --kappa, the probability that the rows are read"
            )
        return acceptance.LazyBarker(kappa)
    return acceptance.Barker() if test is Test.barker else acceptance.Metropolis()


@command("subsampled-gaussian")
def subsampled_gaussian(
    scheme: Annotated[Scheme, typer.Option(help="How a batch is drawn.")],
    rate: Annotated[
        float, typer.Option(help="Q: the chance of a row to be in the batch, or batch size / rows.")
    ],
    noise_multiplier: Annotated[
        float, typer.Option(help="Z: standard deviation / full sensitivity for the relation.")
    ],
    neighbours: Protected,
    method: Annotated[
        BatchMethod, typer.Option(help="pld: nearly exact; rdp: Renyi divergences.")
    ] = BatchMethod.pld,
) -> Question:
    """Gaussian queries on random batches."""
    from dpmcmc.accounting.costs import SubsampledGaussian

    return Question(
        {SubsampledGaussian(scheme.value, rate, noise_multiplier, neighbours.neighbours): 1},
        method.value,
    )


@command("poisson-mixture")
def poisson_mixture(
    rate: Annotated[float, typer.Option(help="Q: the mean number of times a row is drawn.")],
    weight: Annotated[float, typer.Option(help="W: how far one draw can move the sum.")],
    std: Annotated[float, typer.Option(help="S: standard deviation of the noise.")],
    neighbours: Protected,
) -> Question:
    """Noisy sums over rows drawn a Poisson number of times each."""
    from dpmcmc.accounting.costs import PoissonMixture

    return Question({PoissonMixture(rate, weight, std, neighbours.neighbours): 1}, "pld")


@command("minibatch-barker")
def minibatch_barker(
    row_bound: Annotated[
        float, typer.Option(help="cM: the public bound of one row's energy difference.")
    ],
    ratio: Annotated[
        float,
        typer.Option(
            help="X = n cM / lambda: n rows, lambda the constant part of the mean batch size."
        ),
    ],
    method: Annotated[
        MinibatchMethod,
        typer.Option(
            help="best: the better of rdp and pure. pure: from the proved losses alone, by their "
            "sum or their range."
        ),
    ] = MinibatchMethod.best,
) -> Question:
    """Accept bits of Barker's test on a minibatch; one row is replaced."""
    from dpmcmc.accounting.costs import ZCDP, MinibatchBarker
    from dpmcmc.accounting.laws.minibatch import loss_range

    per_step = {MinibatchBarker(row_bound, ratio): 1}
    if method is MinibatchMethod.pure:
        by_range = Question({ZCDP(loss_range(row_bound, ratio) ** 2 / 8): 1}, "zcdp")
        return Question(per_step, "pure", otherwise=by_range)
    return Question(per_step, "rdp" if method is MinibatchMethod.rdp else None)


@command("dp-barker")
def dp_barker(
    batch: Annotated[int, typer.Option(help="B: rows in a batch, drawn without replacement.")],
    rows: Annotated[int, typer.Option(help="N: rows in the table.")],
    bound: Annotated[
        Bound, typer.Option(help="The exact Renyi divergence of a batch, or the papers' bound.")
    ] = Bound.tight,
    conversion: Annotated[
        Conversion, typer.Option(help="From Renyi divergence to epsilon.")
    ] = Conversion.best,
) -> Question:
    """DP Barker on minibatches, noise variance 2; one row is replaced."""
    from dpmcmc.accounting.costs import DPBarker

    return Question(
        {DPBarker(batch, rows, bound.value): 1},
        "rdp" if conversion is Conversion.best else "rdp-paper",
    )


@command("hmc", is_labelled=True)
def hmc(
    ratio_multiplier: Annotated[
        float, typer.Option(help="Z1: noise / sensitivity of the log-likelihood ratio.")
    ],
    gradient_multiplier: Annotated[
        float, typer.Option(help="Z2: noise / sensitivity of one gradient.")
    ],
    leapfrog: Annotated[int, typer.Option(help="L: leapfrog steps in a trajectory.")],
    no_reuse: Annotated[
        bool, typer.Option("--no-reuse", help="Ask for the first gradient of every trajectory.")
    ] = False,
) -> Question:
    """DP-HMC: per step a noisy ratio and L noisy gradients, and one gradient at the start (without
    reuse: L + 1 per step).
    """
    from dpmcmc.accounting.calibrate import combined
    from dpmcmc.accounting.costs import Gaussian

    if not 1 <= leapfrog <= MAX_LEAPFROG:
        raise ValueError(f"leapfrog must be at least 1 and at most {MAX_LEAPFROG}")
    gradient = Gaussian(gradient_multiplier)
    per_step = combined({Gaussian(ratio_multiplier): 1}, {gradient: leapfrog + int(no_reuse)})
    return Question(per_step, "gaussian", {} if no_reuse else {gradient: 1})

"""Refusals. Each names a public fact and what to do instead, before any budget is spent.

Two come later: `RunFailed`, and the refusal of a curator that is asked for more than its grant or
whose rows were withdrawn.
"""


class PrivacyRefusal(Exception):
    """The request cannot be answered within what was promised.

    All refusals below are of this class.

    Example:
        >>> from dpmcmc import BudgetExceeded, PrivacyRefusal
        >>> issubclass(BudgetExceeded, PrivacyRefusal)
        True
    """


class BudgetExceeded(PrivacyRefusal):
    """The request costs more than the budget, or asks for more than was granted.

    Example:
        >>> import numpy as np
        >>> import dpmcmc
        >>> rows = np.zeros(100, np.float32)
        >>> budget = dpmcmc.Budget(epsilon=1.0, delta=1e-6)
        >>> curator = dpmcmc.Curator(rows, dpmcmc.models.binomial(), budget)
        >>> try:
        ...     curator.check({dpmcmc.queries.Gradient(clip=1.0, noise_multiplier=1.0): 1})
        ... except dpmcmc.BudgetExceeded:
        ...     print("use more noise, or ask less often")
        use more noise, or ask less often
    """


class UnboundedQueries(PrivacyRefusal):
    """The number of queries cannot be read off the program, or one key would serve several.

    Example:
        >>> from dpmcmc import UnboundedQueries
        >>> raise UnboundedQueries("a loop of unknown length asks")
        Traceback (most recent call last):
        ...
        dpmcmc.errors.UnboundedQueries: a loop of unknown length asks
    """


class UnsupportedQuery(PrivacyRefusal):
    """There is no bound on what the query reveals, in the way it is used.

    Example:
        >>> from dpmcmc import UnsupportedQuery
        >>> raise UnsupportedQuery("this query has no cost under add-or-remove-one")
        Traceback (most recent call last):
        ...
        dpmcmc.errors.UnsupportedQuery: this query has no cost under add-or-remove-one
    """


class RunFailed(Exception):
    """A run ended with an error after its grant was spent, or its draws could not be written.

    Attributes:
        posterior: The draws of the blocks that were finished, as an ArviZ InferenceData; None if
            there are none.

    Example:
        >>> from dpmcmc import RunFailed
        >>> try:
        ...     raise RunFailed("the disk is full", posterior=None)
        ... except RunFailed as failure:
        ...     print(failure, failure.posterior)
        the disk is full None
    """

    def __init__(self, message: str, posterior: object) -> None:
        super().__init__(message)
        self.posterior = posterior


def in_brief(error: Exception) -> str:
    """The kind of an error and the first line of its message.

    Messages of JAX and NetCDF can have several pages.
    """
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

"""Refusals. Each names a public fact and the way out, and is raised before any budget is spent.

Two come later: `RunFailed`, and what a curator raises that is asked for more than its grant or
whose rows were withdrawn.
"""


class PrivacyRefusal(Exception):
    """The request cannot be answered within what was promised."""


class BudgetExceeded(PrivacyRefusal):
    """The request costs more than the budget, or asks more than was granted."""


class UnboundedQueries(PrivacyRefusal):
    """The number of queries cannot be read off the program, or one key would serve several."""


class UnsupportedQuery(PrivacyRefusal):
    """The query has no bound on what it reveals in the way it is used."""


class RunFailed(Exception):
    """A run broke off after its grant was spent, or its draws could not be written.

    `posterior` holds the draws of the blocks that were finished; None if there are none.
    """

    def __init__(self, message: str, posterior: object) -> None:
        super().__init__(message)
        self.posterior = posterior


def in_brief(error: Exception) -> str:
    """What kind of error it is, and the first line of its message: those of JAX and NetCDF go on
    for pages.
    """
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

"""Refusals. Each names a public fact and the way out, and is raised before any budget is spent."""


class PrivacyRefusal(Exception):
    """The request cannot be answered within what was promised."""


class BudgetExceeded(PrivacyRefusal):
    """The request costs more than the budget, or asks more than was granted."""


class UnboundedQueries(PrivacyRefusal):
    """The number of queries cannot be read off the program, or one key would serve several of them."""


class UnsupportedQuery(PrivacyRefusal):
    """The query has no bound on what it reveals in the way it is used."""


class RunFailed(Exception):
    """A run broke off after its grant was spent. `posterior` holds the draws of the blocks that were finished."""

    def __init__(self, message: str, posterior: object) -> None:
        super().__init__(message)
        self.posterior = posterior

"""The command line. Each command lives in its own file; nothing heavy is imported before a command runs."""

from __future__ import annotations

import typer

from dpmcmc import cli_account, cli_run

main = typer.Typer(no_args_is_help=True, add_completion=False, help="Differentially private Markov chain Monte Carlo.")
main.add_typer(cli_account.app, name="account")
main.command("run", no_args_is_help=True)(cli_run.run)


@main.callback()
def _commands() -> None:
    """Differentially private Markov chain Monte Carlo."""


if __name__ == "__main__":
    main()

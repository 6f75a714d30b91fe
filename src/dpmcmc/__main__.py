"""`python -m dpmcmc` is the command `dpmcmc`."""

from dpmcmc.cli import main

main()

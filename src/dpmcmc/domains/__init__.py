"""The public set of a model's rows, and how far rows of it can move a sum."""

from dpmcmc.domains.bounds import Limits, RowSet
from dpmcmc.domains.sets import CONSTANT, INTERVAL, Ball, Corners, Domain

__all__ = ["CONSTANT", "INTERVAL", "Ball", "Corners", "Domain", "Limits", "RowSet"]

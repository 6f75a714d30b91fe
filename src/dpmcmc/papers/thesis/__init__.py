"""Figures of the thesis on private Metropolis-Hastings."""

"""Differentially private Markov chain Monte Carlo that people can use."""

"""Figures of the DP-HMC paper."""

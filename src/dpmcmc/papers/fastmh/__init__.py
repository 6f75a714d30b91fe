"""Figures of the DP-Fast MH paper."""

"""Figures for what the penalty paper proves."""

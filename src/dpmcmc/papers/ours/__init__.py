"""Figures of our own."""

"""Answers -> chain. Each sampler is a pair of pure functions that may only ask."""

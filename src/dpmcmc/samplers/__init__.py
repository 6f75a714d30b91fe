"""From answers to a chain. Each sampler is a pair of pure functions that learn about rows only by
asking queries.
"""

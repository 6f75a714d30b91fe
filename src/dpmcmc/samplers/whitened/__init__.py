"""The posterior of a regression in whitened coordinates: few noisy sums, and exact draws."""

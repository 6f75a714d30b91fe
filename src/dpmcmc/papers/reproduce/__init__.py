"""The frame of `dpmcmc reproduce`: figures are made of cells, which are computed side by side, kept
as files, and shown on one page.
"""

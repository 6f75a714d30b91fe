"""The papers' experiments with the samplers, costs and corrections of this package.

    dpmcmc reproduce list
    dpmcmc reproduce T6.1 H1 --quick

`reproduce` is the frame: cells that are computed side by side and kept, a page of all figures. Each
paper has a folder, with one file a figure or family of figures, its numbers at the top. All rows
are simulated or public, so that nothing has to be protected: chains run on curators without a
budget, and the steps that a budget would allow are counted. `comparison` does that for any
samplers, `metrics` measures how far draws are from the exact posterior.
"""

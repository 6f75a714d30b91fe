"""The papers' experiments with the samplers, costs and corrections of this package: one file for
each published figure.

    python -m dpmcmc.papers.accounting           # steps that a budget allows, by the papers'
                                                 # bounds and by ours
    python -m dpmcmc.papers.hmc_comparison       # DP-HMC, penalty, SGLD and SGNHT at equal budgets
    python -m dpmcmc.papers.thesis_comparison    # Metropolis-Hastings on eight posteriors,
                                                 # tempered or not
    python -m dpmcmc.papers.fast_mh_comparison   # what reading few rows costs and gains
    python -m dpmcmc.papers.clipping             # what clipped log-ratios do to the posterior

All rows are simulated, so that nothing has to be protected: chains run on curators without a
budget, and the steps that a budget would allow are counted. `comparison` does that for any
samplers, `metrics` measures how far draws are from the exact posterior.
"""

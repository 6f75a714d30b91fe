"""Rows -> ratio -> clip -> exact sum -> noise or coin. The only place where rows are touched.

In the order of the flow:

    owner, federation   hold the rows, grant runs and run them; several owners are a federation
    checks              refuse rows, models and points, by public facts only
    placement           where the rows lie: pieces, slots, devices
    processes           one table on the devices of several processes
    account, records    the bill of an owner, and what was granted, where user code cannot
                        change it
    programs/           the `asked` operation; one interpreter of traces, which counts the asks and
                        then answers them; tracing and compiling; side effects
    sums/               row -> clip -> integer -> exact sum: of any model, of one with a linear
                        predictor, and by GPU kernels
    noise/              the cipher, the secret stream, integer noise, coins
    queries/            what may be asked; authors of further ones use `dpmcmc.queries`
"""

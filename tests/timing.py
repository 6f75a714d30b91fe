"""How long something takes, on a machine that also does other things."""

import time


def quickest(*calls):
    """Processor seconds of the quickest of some calls: one of them may have been the one that
    collected garbage.
    """
    seconds = []
    for call in calls:
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return min(seconds)

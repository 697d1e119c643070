"""What other programs find, a seed at a time on every core, for as long as there is time."""
import multiprocessing
import os
import time


def find(function, seeds, seconds):
    """function(seed) of the first seeds, in their order: all that are known after so many seconds. The others are given up."""
    found, until = [], time.monotonic() + seconds
    with multiprocessing.Pool(initializer=os.nice, initargs=(5,)) as pool:  # whose processes are ended, whatever they do
        results = pool.imap(function, range(seeds))
        while len(found) < seeds:
            try:
                found.append(results.next(timeout=max(until - time.monotonic(), 0)))
            except multiprocessing.TimeoutError:
                break
    return found

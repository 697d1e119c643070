"""A writer of checkpoints that dies at any step of changing the store leaves every acknowledged checkpoint whole and
nothing half-visible: a sample of the points that `make chaos` tries (tests/chaos/store_crash.py)."""
import os
import sys

from harness import ROOT, Folder, main
from redis_servers import Redis

sys.path.insert(0, os.path.join(ROOT, "tests", "chaos"))
import store_crash

POINTS = 20


def tries(base, kind, points):
    tally, failures = store_crash.try_all(base, [kind], points)
    assert not failures, "\n".join(failures)
    assert tally["points"] == points <= tally["lives cut short"], tally
    return tally


def test_a_killed_writer_leaves_files_whole():
    tries(None, "kill", POINTS)


def test_a_power_cut_leaves_files_whole():
    lost = tries(None, "power", POINTS)
    assert lost["names"] and lost["contents"], f"the power cuts lost nothing: {lost}"


def test_a_killed_writer_leaves_a_redis_whole():
    with Folder() as folder, Redis(folder) as redis:
        tries(f"redis://{redis.address}?timeout_ms=60000", "kill", POINTS)


main(globals())

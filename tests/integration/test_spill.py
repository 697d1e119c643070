"""Runs that are held give up the memory of their server where another run needs it, and go on from the store when their hold is
raised, in the same bits, whatever dies meanwhile."""
import contextlib
import re

from harness import Folder, main, wait_for
from test_hold import HOLD, Held
from test_recovery import EVERY, kill


@contextlib.contextmanager
def fleet(stop=None):
    """One server, with memory for one run that trains and no held one beside it."""
    with Folder() as folder, Held(folder, 1, 0, servers=0) as runs:
        cluster = runs.cluster
        cluster.server_options = ("--memory", "1KiB")
        cluster.add_server()
        wait_for(lambda: cluster.json("servers"), "the server")
        refusal = runs.ask("submit", folder.file("spec.yaml"), status=2).stderr
        needed = re.search(r"the run takes (\d+) bytes of each parameter server", refusal)
        assert needed, refusal
        kill(cluster.servers.pop()[0])
        cluster.server_options = ("--memory", needed.group(1))
        cluster.add_server()
        wait_for(lambda: [row["address"] for row in cluster.json("servers")] == [cluster.servers[0][1]], "that server, and no other")
        if stop is None:
            runs.gate.open()
        else:
            runs.gate.stop_at(stop)
        yield runs


def is_spilled(runs, name):
    """Waits until the run is held, and no server has its blocks."""
    def holds():
        status = runs.status(name)
        return status["state"] == "held" and status["servers"] == 0 and status["message"].startswith("spilled: ") and status
    return wait_for(holds, f"{name} to be spilled")


def test_a_held_run_makes_room_and_is_loaded_again_when_its_hold_is_raised():
    with fleet() as runs:
        run = runs.submit("first", f"train.hold={HOLD}")
        runs.is_held("first", HOLD)
        runs.submit("second")
        assert is_spilled(runs, "first")["step"] == HOLD
        runs.ends("second")
        runs.set("first", f"train.hold={HOLD + EVERY}")
        runs.is_held("first", HOLD + EVERY)
        runs.set("first", "train.hold=null")
        runs.ends("first")
        server = runs.cluster.servers[0][0]
        assert server.output().count(f" parameters run_loaded run={run} ") == 2, "once, and once more"


def test_members_die_while_a_run_is_spilled():
    def coordinator(runs):
        kill(runs.cluster.coordinator)
        runs.cluster.start_coordinator()

    def server(runs):
        kill(runs.cluster.servers[0][0])
        runs.cluster.restart_server(0)

    def both(runs):
        kill(runs.cluster.coordinator)
        kill(runs.cluster.servers[0][0])
        runs.cluster.start_coordinator()
        runs.cluster.restart_server(0)
    for die in (coordinator, server, both):
        with fleet() as runs:
            runs.submit("first", f"train.hold={HOLD}")
            runs.is_held("first", HOLD)
            runs.gate.stop_at(HOLD)
            runs.submit("second")
            is_spilled(runs, "first")
            wait_for(lambda: runs.status("second")["step"] > HOLD, "steps")
            die(runs)
            is_spilled(runs, "first")
            runs.set("first", "train.hold=null")
            assert runs.status("first")["state"] == "queued"
            die(runs)
            runs.gate.open()
            runs.ends("second", "first")


def test_a_spilled_run_is_stopped_with_its_result():
    with fleet() as runs:
        runs.submit("first", f"train.hold={HOLD}")
        runs.is_held("first", HOLD)
        runs.submit("second")
        is_spilled(runs, "first")
        runs.ask("stop", "first")
        runs.ends("second")
        assert runs.clients["first"].wait() == 0
        status = runs.status("first")
        assert status["state"] == "stopped" and len(status["weights_sha256"]) == 64 and status["step"] == HOLD, status


if __name__ == "__main__":
    main(globals())

"""Parameter servers with a bound on what runs may take of their memory: runs that do not fit wait, or are refused."""
import subprocess

from gate import Gate
from harness import (PATIENCE, Cluster, Folder, assert_recovered, main, newest_step, own_address, program, start_announced,
                     wait_for, weir)
from test_recovery import Run, undisturbed, write_spec


class BoundCluster(Cluster):
    """Its servers have so much memory for runs."""

    def __init__(self, folder, memory, **more):
        self.memory = memory
        super().__init__(folder, is_patient=True, **more)

    def start_server(self, listen=None, advertise=None, coordinator=None, **process):
        server, address = start_announced(
            program("weir-server"), "--role=parameters", "--listen", listen or own_address(), "--coordinator", self.address,
            "--store", self.store, "--memory", str(self.memory), **process)
        self.processes.append(server)
        return server, address


def needed(folder):
    """What the run takes of one server: it says so where it is refused."""
    with BoundCluster(folder, 1) as cluster:
        wait_for(lambda: cluster.json("servers"), "the server")
        said = weir("submit", write_spec(folder), "--coordinator", cluster.address, status=2).stderr
        assert "has 1 for runs: more servers, or more of their --memory, are needed" in said and said.count("\n") == 1, said
        return int(said.split(" takes ")[1].split(" bytes of each parameter server")[0])


def test_a_run_waits_for_the_memory_that_another_has():
    with Folder() as folder:
        with Folder() as other:
            bytes_needed = needed(other)
        with BoundCluster(folder, 2 * bytes_needed - 1, workers=2, gate=Gate(folder)) as cluster:
            assert cluster.json("servers")[0]["memory_bytes"] == 2 * bytes_needed - 1
            run = Run(folder, cluster, stop=20, more="workers: {max: 1}\n")
            wait_for(lambda: newest_step(run.metrics) >= 10, "steps")
            second = weir("submit", folder.file("spec.yaml"), "name=second", "--coordinator", cluster.address).stdout.strip()
            status = wait_for(lambda: next((found for found in [cluster.json("status", second)] if found["message"]), None),
                              "the reason")
            address = cluster.servers[0][1]
            assert status["state"] == "queued" and status["message"] == (
                f"waiting for memory: {bytes_needed} bytes of server-1 ({address}), which has {2 * bytes_needed - 1} for runs, "
                f"of which 1 run takes {bytes_needed}"), status["message"]
            run.go()
            assert run.client.wait() == 0, run.client.output()[-2000:]
            assert_recovered(run.metrics, undisturbed())
            wait_for(lambda: cluster.json("status", second)["state"] == "done", "the second run's end")


def test_an_amount_that_is_none_is_refused():
    for text in ("much", "", "-1", "0", "8 bananas"):
        done = subprocess.run([program("weir-server"), "--memory", text], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert f"--memory: '{text}' is not an amount, as 8GB or 1.5GiB" in done.stderr


if __name__ == "__main__":
    main(globals())

"""Links between workers and servers are cut while both see the coordinator, and the run ends in the same bits.

Between the workers and the last server stands a proxy, which lets single workers have no connection."""
from gate import Gate
from harness import Cluster, Folder, main, wait_for
from proxy import Proxy
from test_recovery import Run


class Links:
    """A cluster, a run on it that stands still at step 15, and the proxy in front of the last of its servers."""

    def __init__(self, folder, servers, workers):
        self.proxy = Proxy()
        self.cluster = Cluster(folder, servers=servers - 1, workers=0, is_patient=True, gate=Gate(folder))
        self.cluster.add_server(advertise=self.proxy.address)
        self.proxy.target = self.cluster.servers[-1][1]
        for _ in range(workers):
            self.cluster.add_worker()
        self.cluster.all_join()
        self.run = Run(folder, self.cluster, stop=15)
        self.last = f"server-{servers} ({self.proxy.address})"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.run.__exit__()
        self.cluster.__exit__()
        self.proxy.close()

    def row(self, worker):
        return next((row for row in self.cluster.json("workers") if row["pid"] == worker.child.pid), None)

    def has(self, worker, **values):
        row = self.row(worker)
        return row and all(row[name] == value for name, value in values.items())

    def is_told(self, worker):
        """That this worker misses the last server, by the run's status and the worker's row."""
        row = self.row(worker)
        told = row and f"{row['id']} ({row['host']}) cannot reach {self.last}"
        return row and told in self.run.status()["message"] and f"cannot reach {self.last}" in row["message"]

    def wait_to_be_told(self, worker):
        self.run.wait(lambda: self.is_told(worker), "word of the server that is not reached")


def test_others_compute_for_a_worker_that_misses_a_server_until_it_reaches_it():
    with Folder() as folder, Links(folder, servers=2, workers=2) as links:
        run, (first, second) = links.run, links.cluster.workers
        with run.held(then=30):
            links.proxy.cut(first)
            run.wait(lambda: links.has(first, state="cut-off"), "the worker's being cut off")
            links.wait_to_be_told(first)
            run.wait(lambda: links.has(first, microbatches=0) and links.has(second, microbatches=4), "the other's having all")
        with run.held():
            links.proxy.mend()
            run.wait(lambda: " to=ready" in links.cluster.coordinator.output().partition("from=cut-off")[2],
                     "the worker's being given work")
            run.wait(lambda: " joined " in first.output().partition(" servers_reached ")[2], "its having it")
        run.end()
        assert run.incarnation() == 0, "nothing was rolled back"


def test_a_server_that_no_worker_reaches_is_done_without():
    with Folder() as folder, Links(folder, servers=2, workers=2) as links:
        run, workers = links.run, links.cluster.workers
        with run.held():
            run.wait_checkpoint(10)
            for worker in workers:
                links.proxy.cut(worker)
            run.wait(lambda: links.is_told(workers[0]) or run.incarnation(), "word of the server that is not reached")
            run.wait_step(10, incarnation=1)
            row, = run.wait(lambda: [row for row in links.cluster.json("servers") if row["address"] == links.proxy.address], "its row")
            assert row["message"].startswith("no worker reaches all servers: ") and links.last in row["message"], row
            assert row["blocks"] == 0, row
        run.end()
        assert run.incarnation() == 1


def test_a_run_whose_only_server_is_not_reached_waits_for_the_link():
    with Folder() as folder, Links(folder, servers=1, workers=1) as links:
        with links.run.held():
            links.proxy.cut(links.cluster.workers[0])
            links.wait_to_be_told(links.cluster.workers[0])
            links.proxy.mend()
        links.run.end()
        assert links.run.incarnation() == 0, "nothing was rolled back"


if __name__ == "__main__":
    main(globals())

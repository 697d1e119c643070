"""A worker whose link is too slow for the run joins it: it follows, and nobody waits for it.

Between the workers and the server stands a proxy, which gives the joiner few bytes a second. The run is longer than the
test, which cancels it: what every step said of its loss is compared with a run that nobody joined."""
import contextlib

from harness import (Cluster, Folder, Process, main, newest_step, program, read_metrics, wait_for, weir)
from proxy import Proxy

MODEL = ("lenet", "--channels", "4,8", "--hidden", "400", "--batch-norm", "--dropout", "0.25", "--seed", "3")
FOR_EVER, BYTES_A_SECOND = 1000000, 100000  # a version has 2 MB


def losses(metrics, steps):
    return [event["loss"] for event in read_metrics(metrics) if event["event"] == "step"][:steps]


def undisturbed(folder, model, steps):
    metrics = folder.file("calm.jsonl")
    weir("train", folder.small_spec(model, 4, steps, FOR_EVER), "--threads", 1, "--out", folder.file("calm"), "--metrics",
         metrics)
    return losses(metrics, steps)


def test_a_joiner_on_a_slow_link_stalls_nobody_and_is_named():
    proxy = Proxy()
    with Folder() as folder:
        folder.small_data(480, 24)
        model, metrics = folder.model(*MODEL), folder.file("metrics.jsonl")
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(Cluster(folder, workers=1, advertise=[proxy.address], is_patient=True,
                                                  options=("--follow-limit", 1)))
            proxy.target = cluster.servers[0][1]  # before the worker asks for it
            client = stack.enter_context(Process(program("weir"), "submit", folder.small_spec(model, 4, FOR_EVER, FOR_EVER), "--follow",
                                                 "--metrics", metrics, "--coordinator", cluster.address))
            wait_for(lambda: newest_step(metrics) >= 5, "step 5")
            proxy.slow_newcomers(BYTES_A_SECOND)
            joiner = cluster.add_worker()

            def row():
                return next((row for row in cluster.json("workers") if row["pid"] == joiner.child.pid), {})

            told = wait_for(lambda: (it := row()).get("state") == "following" and it, "the joiner's following")
            begin = newest_step(metrics)
            wait_for(lambda: newest_step(metrics) >= begin + 30, "steps while it follows")
            late = f"{told['id']} ({told['host']}) has not caught up with the run in "
            told = wait_for(lambda: late in cluster.json("status", "small")["message"] and
                            (it := row()).get("message", "").startswith("has not caught up") and it, "its being named")
            assert told["state"] == "following" and told["microbatches"] == 0 and "MB/s" in told["message"], told
            proxy.slow_newcomers(None)
            wait_for(lambda: (it := row()).get("state") == "ready" and it["microbatches"] > 0 and
                     late not in cluster.json("status", "small")["message"], "its share")
            last = newest_step(metrics) + 20
            wait_for(lambda: newest_step(metrics) >= last, "steps of both")
            weir("cancel", "small", "--coordinator", cluster.address)
            client.wait()
        assert losses(metrics, last) == undisturbed(folder, model, last)
    proxy.close()


if __name__ == "__main__":
    main(globals())

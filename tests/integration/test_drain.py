"""Servers that drain: the blocks of live runs move to the other servers, no step is computed twice where nobody dies, and no
bit changes, whatever dies meanwhile."""
import contextlib
import signal

from harness import Folder, main, newest_step, read_metrics, wait_for
from test_hold import HOLD, Held
from test_recovery import STEPS, kill

STOP = 20


@contextlib.contextmanager
def fleet(workers=1, servers=2, stop=STOP, is_patient=True):
    with Folder() as folder, Held(folder, workers, stop, servers, is_patient=is_patient) as runs:
        yield runs


def stands(runs, name):
    wait_for(lambda: newest_step(runs.metrics[name]) >= STOP, "the gate")


def server_row(runs, server):
    return next(row for row in runs.cluster.json("servers") if row["id"] == server)


def ids(runs):
    """The ids of the servers, in the order in which they were started."""
    rows = wait_for(lambda: len(rows := runs.cluster.json("servers")) == len(runs.cluster.servers) and rows, "all servers")
    return [next(row["id"] for row in rows if row["address"] == address) for _, address in runs.cluster.servers]


def workers_stand(runs):
    """Waits until each worker knows the version at which it is to stand."""
    def know():
        lines = [[line for line in worker.output().splitlines() if " view " in line] for worker in runs.cluster.workers]
        return all(of and not of[-1].endswith(" hold=0") for of in lines)
    wait_for(know, "views with a hold")


def test_blocks_leave_a_server_that_drains_and_no_step_is_computed_twice():
    with fleet(workers=2) as runs:
        run = runs.submit("some")
        stands(runs, "some")
        first, second = ids(runs)
        line = runs.ask("drain", second).stdout
        assert line.startswith(f"{second} (") and line.endswith(" is draining: it has blocks of 1 run\n"), line
        assert "draining: it has blocks of 1 run" in runs.ask("servers").stdout
        wait_for(lambda: f"its blocks leave {second} (" in runs.status("some")["message"], "the message")
        workers_stand(runs)
        runs.gate.open()
        assert runs.ask("drain", second, "--wait").stdout.endswith(f"{second} may be stopped\n")
        assert "drained: it may be stopped" in runs.ask("servers").stdout
        runs.cluster.servers[1][0].send(signal.SIGTERM)
        assert runs.cluster.servers[1][0].wait() == 0
        runs.ends("some")
        steps = [event["step"] for event in read_metrics(runs.metrics["some"]) if event["event"] == "step"]
        assert steps == list(range(STEPS)), "a step was computed twice"
        status = runs.status("some")
        assert (status["incarnation"], status["workers"]) == (1, 0), status
        assert f"run={run}" in runs.cluster.servers[0][0].output() and first != second


def test_a_server_that_is_ended_hands_its_blocks_over_first_where_it_may_take_the_time():
    with Folder() as folder, Held(folder, 1, STOP, 1) as runs:
        runs.cluster.server_options = ("--leave-limit", 3600)
        runs.cluster.add_server()
        runs.cluster.all_join()
        runs.submit("some")
        stands(runs, "some")
        last, (leaving, _) = ids(runs)[1], runs.cluster.servers.pop()
        leaving.send(signal.SIGTERM)
        wait_for(lambda: f"its blocks leave {last} (" in runs.status("some")["message"], "the message")
        workers_stand(runs)
        runs.gate.open()
        assert leaving.wait() == 0, leaving.output()[-2000:]
        runs.ends("some")
        steps = [event["step"] for event in read_metrics(runs.metrics["some"]) if event["event"] == "step"]
        assert steps == list(range(STEPS)), "a step was computed twice"
        assert runs.status("some")["incarnation"] == 1


def test_a_server_that_is_ended_does_not_wait_where_nobody_can_take_its_blocks_or_a_second_signal_comes():
    with Folder() as folder, Held(folder, 1, STOP, 0) as runs:
        runs.cluster.server_options = ("--leave-limit", 3600)
        runs.cluster.add_server()
        runs.submit("some")
        stands(runs, "some")
        last, (leaving, _) = ids(runs)[0], runs.cluster.servers[0]
        leaving.send(signal.SIGTERM)
        assert leaving.wait() == 0, leaving.output()[-2000:]
        assert f" asks_to_leave id={last}" in leaving.output() and " leaves_with_blocks " not in leaving.output()
        runs.cluster.restart_server(0)
        runs.cluster.add_server()
        runs.cluster.all_join()
        wait_for(lambda: (status := runs.status("some"))["state"] == "running" and status["workers"] and status["step"] > STOP,
                 "the run to stand at the gate again")  # else its blocks may leave before the second signal
        leaving = runs.cluster.servers[0][0]
        leaving.send(signal.SIGTERM)
        wait_for(lambda: " parameters drain " in leaving.output(), "the server to be drained")
        leaving.send(signal.SIGTERM)
        assert leaving.wait() == 0 and " leaves_with_blocks " in leaving.output(), leaving.output()[-2000:]
        runs.cluster.restart_server(0)
        runs.gate.open()
        runs.ends("some")


def test_new_runs_are_not_placed_on_a_server_that_drains():
    with fleet() as runs:
        second = ids(runs)[1]
        assert runs.ask("drain", second, "--wait").stdout.endswith("it may be stopped\n" + f"{second} may be stopped\n")
        kill(runs.cluster.coordinator)
        runs.cluster.start_coordinator()
        wait_for(lambda: [row["draining"] for row in runs.cluster.json("servers")].count(True) == 1 and
                 len(runs.cluster.json("servers")) == 2, "both servers")
        run = runs.submit("some")
        runs.gate.open()
        runs.ends("some")
        assert f"run={run}" not in runs.cluster.servers[1][0].output()


def test_bad_input_is_named():
    with fleet(servers=1) as runs:
        first = ids(runs)[0]
        runs.refused(f"{first} is the last server: no other one can take its blocks", "drain", first)
        runs.refused("no server 'server-of-another' is here: 'weir servers' lists those that are", "drain", "server-of-another")
        runs.refused(f"no server 'servre-1' is here; did you mean '{first}'? 'weir servers' lists", "drain", "servre-1")
        runs.refused("no worker 'wroker-1' is here; did you mean 'worker-1'? 'weir workers' lists", "drain", "wroker-1")
        runs.refused("no server 'server-", "drain", "server-\x1b[31m")
        assert not server_row(runs, first)["draining"]


def test_members_die_while_blocks_move():
    def coordinator(runs):
        kill(runs.cluster.coordinator)
        runs.cluster.start_coordinator()

    def draining(runs):
        kill(runs.cluster.servers[1][0])

    def other(runs):
        kill(runs.cluster.servers[0][0])
        runs.cluster.restart_server(0)

    def worker(runs):
        kill(runs.cluster.workers.pop(0))
        runs.cluster.add_worker()
    for die in (coordinator, draining, other, worker):
        for is_standing in (False, True):
            with fleet(workers=2, is_patient=die is not draining) as runs:  # who drains does not come back
                runs.submit("some")
                stands(runs, "some")
                second = ids(runs)[1]
                runs.ask("drain", second)
                if is_standing:
                    workers_stand(runs)
                    runs.gate.open()
                die(runs)
                runs.gate.open()
                wait_for(lambda: all(not row["draining"] or row["runs"] == 0 for row in runs.cluster.json("servers")),
                         "the blocks to leave")
                runs.ends("some")


def test_held_runs_and_runs_without_a_turn_move_too():
    with fleet(workers=0) as runs:
        runs.gate.open()
        runs.cluster.add_worker()
        runs.submit("held", f"train.hold={HOLD}")
        runs.is_held("held", HOLD)
        runs.gate.stop_at(STOP)
        runs.submit("waits")
        stands(runs, "waits")
        runs.submit("urgent", "priority=5")
        runs.has(urgent=1, waits=0)
        second = ids(runs)[1]
        runs.ask("drain", second)
        # A run that lost its worker before both servers had the version needs one to move, when the urgent one has ended.
        runs.gate.crawl(lambda: runs.status("waits")["incarnation"] == 1 and runs.status("held")["incarnation"] == 1,
                        "both to move")
        runs.gate.open()
        runs.ask("drain", second, "--wait")
        runs.is_held("held", HOLD)
        runs.set("held", "train.hold=null")
        runs.ends("urgent", "waits", "held")


if __name__ == "__main__":
    main(globals())

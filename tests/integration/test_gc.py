"""`weir gc`, with a coordinator and on the store itself: what it deletes, and what it refuses."""
import hashlib
import json
import os

from gate import Gate
from harness import Cluster, Folder, main, wait_for, weir
from test_checkpoints import block_path, blocks_in, checkpoint_before_the_last, finish, finish_with_two, refused, small_run, store_of


def test_gc_deletes_orphans_and_runs_that_are_over_and_nothing_else():
    with Folder() as folder:
        with Cluster(folder, gate=Gate(folder)) as cluster:
            at, stored = ("--coordinator", cluster.address), ("--store", store_of(folder))
            first = finish_with_two(cluster, small_run(folder, name="first"))
            second = finish(cluster, small_run(folder, name="second", steps=50))

            def orphan():
                content = os.urandom(1000)
                key = hashlib.sha256(content).hexdigest()
                os.makedirs(os.path.dirname(block_path(folder, key)), exist_ok=True)
                with open(block_path(folder, key), "wb") as file:
                    file.write(content)
                return key
            checkpoint_before_the_last(cluster, first)
            kept = blocks_in(folder)
            orphan()
            assert "deleted 1 block " in weir("gc", *at).stdout
            assert blocks_in(folder) == kept, "the orphan alone is gone"
            address = refused("a coordinator leads this store", "gc", *stored)
            assert cluster.address in address, address
            refused("no run", "gc", "third", *at)
            assert "deleted 1 run\n" in weir("gc", "first", *at).stdout
            assert [entry["run"] for entry in cluster.json("runs")] == [second]
            weir("verify", second, *at)
            refused(first, "checkpoints", first, *at)
            cluster.coordinator.child.kill()
            cluster.coordinator.wait()
        key = orphan()
        printed = weir("gc", *stored).stdout
        assert "deleted 1 block " in printed and key not in blocks_in(folder), printed
        weir("verify", second, *stored)
        with Cluster(folder, servers=0, workers=0) as cluster:  # leads at once, and knows what it did
            assert [entry["run"] for entry in cluster.json("runs")] == [second]
        weir("gc", second, *stored)
        assert blocks_in(folder) == [] and weir("runs", "--json", *stored).stdout.strip() == "[]"


def test_gc_deletes_no_run_where_one_that_is_named_is_refused():
    """Nor blocks; and where what comes later fails, it says which runs have gone."""
    with Folder() as folder:
        with Cluster(folder, gate=Gate(folder)) as cluster:
            at, stored = ("--coordinator", cluster.address), ("--store", store_of(folder))
            first, second = (finish(cluster, small_run(folder, name=name)) for name in ("first", "second"))
            cluster.gate.stop_at(20)
            paused = weir("submit", small_run(folder, name="paused"), *at).stdout.strip()
            wait_for(lambda: cluster.json("status", paused)["state"] == "running", "the run to begin")
            weir("pause", paused, *at)
            cluster.gate.open()
            wait_for(lambda: cluster.json("status", paused)["state"] == "paused", "the pause")
            weir("gc", *at)
            kept = blocks_in(folder)
            refused("no run 'nosuch' in the store", "gc", first, "second", "nosuch", *at)
            assert {entry["run"] for entry in cluster.json("runs")} == {first, second, paused}
            weir("verify", first, *at)
        refused(f"run '{paused}' is paused, not over: nothing is deleted", "gc", first, "paused", *stored)
        refused("no run 'nosuch' in the store", "gc", first, "nosuch", *stored)
        assert blocks_in(folder) == kept
        os.mkdir(folder.file("store/records/runs/cut-123456"))
        folder.file("store/records/runs/cut-123456/run", "\xff")
        error = refused(f"deleted {first}; then: store: 1 records cannot be read", "gc", first, "first", *stored)
        assert "no block is deleted" in error, error
        os.unlink(folder.file("store/records/runs/cut-123456/run"))
        assert {entry["run"] for entry in json.loads(weir("runs", "--json", *stored).stdout)} == {second, paused}


if __name__ == "__main__":
    main(globals())

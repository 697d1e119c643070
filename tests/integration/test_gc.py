"""`weir gc`, with a coordinator and on the store itself: what it deletes, and what it refuses."""
import hashlib
import json
import os
import re

from gate import Gate
from harness import Cluster, Folder, main, weir
from test_checkpoints import (CHECKPOINTS, block_path, blocks_in, checkpoint_before_the_last, finish, finish_with_two, refused, small_run,
                              store_of)


def gc_deletes(folder, run, *at):
    """How many blocks go with the run. `weir gc` prints them, and their bytes."""
    def sizes():
        return {key: os.path.getsize(block_path(folder, key)) for key in blocks_in(folder)}
    before = sizes()
    printed, left = weir("gc", run, *at).stdout, sizes()
    gone = [size for key, size in before.items() if key not in left]
    total = sum(gone)
    unit, scale = next((unit, scale) for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)) if total >= scale)
    found = re.search(r"^deleted 1 run\ndeleted ([\d,]+) blocks that nothing refers to, ([\d.]+) (\w+)\n", printed)
    assert found, printed
    assert int(found[1].replace(",", "")) == len(gone) and found[3] == unit, (printed, gone)
    assert abs(float(found[2]) - total / scale) <= 0.1, (printed, total)
    return len(gone)


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
            assert gc_deletes(folder, "first", *at) > 1, "those of its two checkpoints"
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
        assert gc_deletes(folder, second, *stored) > 1
        assert blocks_in(folder) == [] and weir("runs", "--json", *stored).stdout.strip() == "[]"


def test_gc_deletes_no_run_where_one_that_is_named_is_refused():
    """Nor blocks; and where what comes later fails, it says which runs have gone."""
    with Folder() as folder:
        with Cluster(folder) as cluster:
            at, stored = ("--coordinator", cluster.address), ("--store", store_of(folder))
            first, second = (finish(cluster, small_run(folder, name=name)) for name in ("first", "second"))
            waits = small_run(folder, tail=CHECKPOINTS + "workers: {min: 9}\n", name="queued")
            queued = weir("submit", waits, *at).stdout.strip()
            weir("gc", *at)
            kept = blocks_in(folder)
            refused("no run 'nosuch' in the store", "gc", first, "second", "nosuch", *at)
            assert {entry["run"] for entry in cluster.json("runs")} == {first, second, queued}
            weir("verify", first, *at)
        refused(f"run '{queued}' is queued, not over: nothing is deleted", "gc", first, "queued", *stored)
        refused("no run 'nosuch' in the store", "gc", first, "nosuch", *stored)
        assert blocks_in(folder) == kept
        os.mkdir(folder.file("store/records/runs/cut-123456"))
        folder.file("store/records/runs/cut-123456/run", "\xff")
        error = refused(f"deleted {first}; then: store: 1 records cannot be read", "gc", first, "first", *stored)
        assert "no block is deleted" in error, error
        os.unlink(folder.file("store/records/runs/cut-123456/run"))
        assert {entry["run"] for entry in json.loads(weir("runs", "--json", *stored).stdout)} == {second, queued}


if __name__ == "__main__":
    main(globals())

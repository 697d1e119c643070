"""The same operations as collective_bench by PyTorch's gloo, rounds of both in turn. Argument: that program. Prints each
side's median and the ratio."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

SIZES = (64, 4 << 10, 64 << 10, 1 << 20, 16 << 20)
ROUNDS, MEMBERS = 3, 2


def rounds_of(size):
    return max(7, min(500, (1 << 27) // size))


def work(rank, rendezvous, times):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=MEMBERS)
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        for name, run in (("all_reduce", torch.distributed.all_reduce), ("broadcast", lambda t: torch.distributed.broadcast(t, 0))):
            taken = []
            for number in range(-5, rounds_of(size)):
                began = time.perf_counter()
                run(tensor)
                if number >= 0:
                    taken.append(time.perf_counter() - began)
            if rank == 0:
                times.put((name, size, statistics.median(taken) * 1e6))
    torch.distributed.destroy_process_group()


def gloo():
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (os.path.join(folder, "rendezvous"), queue), nprocs=MEMBERS)
    return {(name, size): us for name, size, us in (queue.get() for _ in range(2 * len(SIZES)))}


def ours(program, argument):
    printed = subprocess.run([program, argument], capture_output=True, text=True, check=True).stdout
    return {(name, int(size)): float(us) for name, size, us in map(str.split, printed.splitlines())}


def main():
    program, rounds = sys.argv[1], []
    for _ in range(ROUNDS):
        rounds.append((ours(program, "copy"), ours(program, str(MEMBERS)), gloo()))
    print(f"collectives of {MEMBERS} processes by shared memory, microseconds: ours, gloo, a memcpy of as many bytes")
    for name in ("all_reduce", "broadcast"):
        for size in SIZES:
            mine, theirs = ([r[side][name, size] for r in rounds] for side in (1, 2))
            copy = statistics.median(r[0]["copy", size] for r in rounds)
            ratio = statistics.median(b / a for a, b in zip(mine, theirs))
            print(f"{name} of {size} bytes: {statistics.median(mine):.1f}, gloo {statistics.median(theirs):.1f}, "
                  f"memcpy {copy:.1f}; gloo / ours {ratio:.1f}")


if __name__ == "__main__":
    main()

"""`make bench PARTS=crowd`: a server with the connections of 200 workers and more than 1,000 calls that wait, beside
the same server with 2 workers; 64 workers that all push at once; what a call that waits takes of memory."""
import json
import statistics
import subprocess

from harness import program

ROUNDS = 3
ROOM_MIB = 128      # of received gradients: RECEIVED_BYTES_MAX of server/main.c
CALL_BYTES = 12288  # PARKED_CALL_BYTES of server/parameters/block/call.h
CROWD, FEW, INCAST = (200, 320, 24), (2, 320, 2400), (64, 1024, 4)  # workers, width of the model, steps
WINDOW, BLOCK_BYTES = 16, 262144  # sends of a worker at a time: SENDING_MAX of worker/train/transfer/server_link.c
PARKED = 10000


def measure(*arguments):
    done = subprocess.run([program("tests/bench/crowd_bench"), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                          timeout=900, check=True)
    return json.loads(done.stdout)


def cpu_a_gb(figures, *of):
    return sum(figures[f"{side}_cpu_s"] for side in of) / ((figures["sent"] + figures["received"]) * 1e-9)


def kernel(rounds):
    seconds, faults = (statistics.median(r[key] / ((r["sent"] + r["received"]) * 1e-9) for r in rounds)
                       for key in ("server_kernel_s", "server_faults"))
    return f"of the server's {seconds:.3f} in the kernel; {faults:.0f} page faults a GB"


def rate(figures):
    return (figures["sent"] + figures["received"]) * 1e-9 / figures["seconds"]


def memory(figures, workers, room_mib):
    """The budget's terms; what gRPC has taken from a connection before its call is read is bounded by the window."""
    windows = workers * min(WINDOW, figures["blocks"]) * BLOCK_BYTES
    calls = workers * figures["blocks"]
    terms = {"three versions": figures["state_bytes"], "parts": figures["parts_bytes_max"], "received": room_mib << 20,
             "workers' windows": windows, f"{calls} calls": calls * CALL_BYTES}
    return (f"resident at most {figures['peak_kb'] / 1e3:.0f} MB, {figures['idle_kb'] / 1e3:.0f} before; budget "
            f"{sum(terms.values()) / 1e6:.0f} MB: "
            + ", ".join(f"{name} {size / 1e6:.0f}" for name, size in terms.items()))


def middle(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def compare():
    sides = {"200 workers": (CROWD, []), "2 workers": (FEW, [])}
    for _ in range(ROUNDS):
        for setting, rounds in sides.values():
            rounds.append(measure("steps", *setting, ROOM_MIB))
    for name, (setting, rounds) in sides.items():
        print(f"{name}, CPU-seconds a GB: server {middle([cpu_a_gb(r, 'server') for r in rounds])}, with clients "
              f"{middle([cpu_a_gb(r, 'server', 'clients') for r in rounds])}; "
              f"{statistics.median(map(rate, rounds)):.2f} GB/s")
        print(f"  {kernel(rounds)}")
        print(f"  {memory(max(rounds, key=lambda r: r['peak_kb']), setting[0], ROOM_MIB)}")
    many, few = (rounds for _, rounds in sides.values())
    for label, of in (("of the server", ("server",)), ("of all", ("server", "clients"))):
        print(f"ratio of CPU-seconds a GB {label}: "
              f"{middle([cpu_a_gb(a, *of) / cpu_a_gb(b, *of) for a, b in zip(many, few)])}")


def incast():
    for name, room_mib in ((f"room for {ROOM_MIB} MiB", ROOM_MIB), ("no bound but the shards' queues", 0)):
        figures = measure("steps", *INCAST, room_mib)
        print(f"incast of {INCAST[0]} workers with 16 blocks each on their way, {name}: {figures['seconds']:.2f} s, "
              f"{figures['refused']} pushes refused, {figures['times_sent']:.2f} times the gradients sent, "
              f"CPU-seconds a GB {cpu_a_gb(figures, 'server', 'clients'):.3f}")
        print(f"  {memory(figures, INCAST[0], room_mib)}")


def parked():
    figures = measure("parked", PARKED)
    print(f"{figures['calls']} calls that wait: {figures['server_bytes'] / 1024:.1f} KiB each in the server, "
          f"{figures['client_bytes'] / 1024:.1f} KiB in the client")


def main():
    compare()
    incast()
    parked()

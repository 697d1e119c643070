"""`make bench PARTS=dashboard`: how soon the dashboard is there when it shows 1,000 runs, and what an open tab costs the coordinator.
Needs build/venv and a Chromium, as `make check` has them; two minutes. Others that compute meanwhile show in every number."""
import json
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import chromium
import rounds
from dashboard import Dashboard
from harness import Cluster, Folder, Skip, wait_for, weir

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_paint.py")
IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
RUNS = 20 if IS_QUICK else 1000
PAINTS = 3 if IS_QUICK else 11
LOOKS = 2 if IS_QUICK else 5  # at the coordinator's CPU time, each with a tab, and twice without
LOOK_SECONDS = 2 if IS_QUICK else 6
AT_A_TIME = 4  # clients that submit
PAINT_AIM_MS, CORE_AIM = 300, 1


def submit_runs(folder, cluster):
    """RUNS runs, half of them over and half of them waiting for servers. No more than 500 may wait at a time."""
    spec = folder.small_spec(folder.model("mlp", "--hidden", 4), 2, 4, 4)

    def submit(number):
        return weir("submit", spec, f"name=r{number % 8}", "--coordinator", cluster.address).stdout.strip()

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for run in list(pool.map(submit, range(RUNS // 2))):
            pool.submit(weir, "cancel", run, "--coordinator", cluster.address)
    wait_for(lambda: all(run["state"] == "cancelled" for run in cluster.json("runs")), "the first half to be over")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(submit, range(RUNS // 2)))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share_of_core(pid):
    """Percent of a core that the process takes for a while."""
    cpu, began = cpu_seconds(pid), time.monotonic()
    time.sleep(LOOK_SECONDS)
    return 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - began)


def share_with_a_tab(url, pid):
    """The share while a tab is open, which is opened and closed for it."""
    with subprocess.Popen(chromium.command(PEER, url, "tab"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tab:
        assert tab.stdout.readline() == "open\n", tab.wait()
        share = share_of_core(pid)
        tab.stdin.close()
    return share


def print_paints(paints):
    for what, times in paints.items():
        print(f"  {what}: {statistics.median(times):.0f} ms (median of {len(times)}; {min(times):.0f} to {max(times):.0f}; "
              f"aim {PAINT_AIM_MS})", flush=True)


def main():
    try:
        chromium.command(PEER, "")
    except Skip as missing:
        print(f"dashboard: left out: {missing}")
        return
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        folder.small_data(48, 24)
        submit_runs(folder, cluster)
        with Dashboard(cluster.address) as dashboard:
            assert dashboard.get("overview", since=0, max_rows=2 * RUNS)["fleet"]["runs"] == RUNS
            print(f"dashboard of {RUNS:,} runs, from its address to", flush=True)
            print_paints(json.loads(chromium.drive(PEER, dashboard.url, "paint", str(PAINTS))))
            pid = cluster.coordinator.child.pid
            seen = rounds.alternate({"without": lambda: share_of_core(pid), "with": lambda: share_with_a_tab(dashboard.url, pid)}, LOOKS,
                                    control="without")
            without, with_tab, again = map(statistics.median, seen.values())
            print(f"  a tab takes {with_tab - without:.2f} % of a core of the coordinator ({with_tab:.2f} with it, {without:.2f} and again "
                  f"{again:.2f} without: medians of {LOOKS} times {LOOK_SECONDS} s; aim {CORE_AIM})")


if __name__ == "__main__":
    main()

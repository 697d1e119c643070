"""Answers of a coordinator as the dashboard's page gets them, for what no test's cluster is large or troubled enough."""

import math
import random

NAMES = ("resnet50-imagenet", "gpt2-small", "vit-base", "lenet", "dlrm-clicks", "unet-cells", "bert-base", "mobilenet")
NOW = 1_790_000_000_000
N_RUNS, BATCH = 1000, 1280
OVER = ("done", "failed", "cancelled", "stopped")
STATES, OFTEN = (*OVER, "paused", "held"), (84, 5, 4, 4, 2, 1)  # of runs that neither compute nor wait
RUNNING, WAITING = 6, 10  # the first runs, and those behind them
COMPARABLE = (0, 16, 24, 32, 40, 48)  # runs of one model, by what they differ in
VARIANTS = ((0.4, 0.9, 200), (0.1, 0.9, 200), (0.2, 0.9, 200), (0.4, 0.95, 200), (0.8, 0.9, 1000), (0.8, 0.95, 1000))  # lr, momentum, warm-up
SEATS = {0: [(0, 8)], 1: [(0, 8)], 2: [(0, 8)], 3: [(0, 8)], 4: [(1, 8)], 5: [(1, 8)], 6: [(2, 8)], 7: [(3, 4), (4, 4)], 8: [(4, 4), (5, 3)],
         10: [(5, 8)]}  # of each worker: (number of the run, executors)
# Executors of each run: (how many, from which sample of 300 on).
COURSES = (((16, 8), (24, 30), (16, 150), (24, 190), (32, 240)), ((8, 20), (16, 62), (8, 130), (16, 200)), ((8, 62), (16, 90), (8, 190)),
           ((8, 110), (4, 165)), ((8, 140), (4, 165), (8, 215)), ((3, 165), (11, 215)))


def decay(step, steps, start=2.4, end=0.2):
    return end + (start - end) * math.exp(-5 * step / steps)


def floor_of(run):
    """What the run's loss tends to."""
    return random.Random(run).uniform(0.12, 0.5)


def loss_at(row, step):
    return decay(step, row["steps"], 2.4, floor_of(row["run"]))


def accuracy_at(row, step):
    return 0.98 - 0.2 * floor_of(row["run"]) - decay(step, row["steps"], 0.6, 0.01)


def evaluations_of(row):
    """The steps at which it was evaluated and has a checkpoint."""
    return list(range(row["steps"] // 10, row["step"] + 1, row["steps"] // 10))


def state_of(number, draw):
    drawn = draw.choices(STATES, OFTEN)[0]
    return "running" if number < RUNNING else "queued" if number < RUNNING + WAITING else "done" if number in COMPARABLE else drawn


def run_row(number, draw):
    """A row of Overview.runs."""
    state = state_of(number, draw)
    steps = 5000 if number in COMPARABLE else draw.choice((2000, 5000, 12000))
    step = steps if state == "done" else 0 if state == "queued" else draw.randrange(steps // 8, steps)
    row = {
        "run": f"{NAMES[number % len(NAMES)]}-{draw.randrange(16**6):06x}",
        "name": NAMES[number % len(NAMES)],
        "state": state,
        "step": 4200 if number == 0 else step,
        "steps": steps,
        "tenant": "ada" if number in COMPARABLE else draw.choice(("ada", "grace", "edsger")),
        "submitted_unix_ms": NOW - draw.randrange(10**5, 10**8),
        "loss": None,
        "objective_value": None,
        "epochs": 5.0,
    }
    if row["step"]:
        row.update(progress_of(row, draw))
    if state == "running":
        row.update(work_of(number, row, draw))
    if state == "queued":
        row["message"] = draw.choice(
            (
                "waits for 2 workers: all 12 compute for runs of its priority",
                "waits for a worker with gpu=h200",
                "waits for 3.2 GiB of servers' memory",
            )
        )
    if state in OVER:
        row["finished_unix_ms"] = NOW - draw.randrange(10**4, 10**7)
    if state == "failed":
        row["message"] = f"the loss of step {step + 1} is not finite: worker-3 reported it, worker-1 confirmed it"
    return row


def progress_of(row, draw):
    newest = evaluations_of(row)[-1]
    return {
        "loss": loss_at(row, row["step"]),
        "objective": "accuracy",
        "objective_value": accuracy_at(row, newest),
        "checkpoint_step": newest,
        "epoch": 5.0 * row["step"] / row["steps"],
        "sparkline": [loss_at(row, row["step"] * i / 39) + draw.gauss(0, 0.04) for i in range(40)],
    }


def work_of(number, row, draw):
    """Of a run that computes. The first one was rolled back."""
    seats = [executors for seats in SEATS.values() for run, executors in seats if run == number]
    rate = 421.0 if number == 0 else draw.uniform(300, 9000)
    work = {
        "workers": len(seats),
        "executors": sum(seats),
        "samples_per_second": rate,
        "seconds_left": (row["steps"] - row["step"]) * BATCH / rate,
    }
    if number == 0:
        work.update(incarnation=1, submitted_unix_ms=NOW - 13_300_000, priority=10)
    return work


def made_rows():
    draw = random.Random(1)
    return {row["run"]: row for row in (run_row(number, draw) for number in range(N_RUNS))}


ROWS = made_rows()
RUNS = list(ROWS)
COMPARED = [RUNS[number] for number in COMPARABLE]


def row_of(run):
    """Of a run without a row: that of the first one, under its name."""
    return ROWS.get(run, {**ROWS[RUNS[0]], "run": run, "name": run.rsplit("-", 1)[0]})


def server_row(number):
    return {
        "id": f"server-{number}",
        "role": "server",
        "host": f"ps{number}",
        "pid": 4000 + number,
        "address": f"10.0.0.{10 + number}:7071",
        "state": "ready",
        "blocks": 400 + number,
        "bytes": 3 * 2**30 + number * 2**26,
        "memory_bytes": 8 * 2**30,
        "runs": RUNNING,
        "joined_unix_ms": NOW - 4 * 10**7 + 10**6 * number,
    }


def worker_row(number, draw):
    seats = [
        {"run": RUNS[run], "state": "ready", "executors": executors, "microbatches": executors, "speed": draw.uniform(20, 40)}
        for run, executors in SEATS.get(number, [])
    ]
    return {
        "id": f"worker-{number}",
        "role": "worker",
        "host": f"node{number}",
        "pid": 5000 + number,
        "device": "cpu",
        "state": "ready",
        "executors": 8,
        "seats": seats,
        "received_bytes": draw.randrange(2**33),
        "refusals": 2 if number == 7 else 0,
        "labels": ["zone=a" if number < 8 else "zone=b"],
        "joined_unix_ms": NOW - (4 * 10**7 if number < 8 else 480_000) + draw.randrange(10**4),
    }


def members(draw, servers=3, workers=12):
    rows = [server_row(number) for number in range(servers)] + [worker_row(number, draw) for number in range(workers)]
    rows[-1].update(state="cut-off", unreached=1, message="does not reach server-2 at 10.0.0.12:7071: connection refused")
    rows[-3].update(state="quarantined", message="its gradient of step 771 differed from two others'")
    return rows


def executors_at(course, sample):
    return next((executors for executors, begin in reversed(course) if sample >= begin), 0)


def history(samples=300):
    tracks = [
        {"run": run, "executors": [executors_at(course, sample) for sample in range(samples)]} for run, course in zip(RUNS, COURSES)
    ]
    times = [NOW - 2000 * (samples - 1 - i) for i in range(samples)]
    return {"unix_ms": times, "executors": [96 if i > 60 else 64 for i in range(samples)], "tracks": tracks}


def overview(since=0):
    """A first answer, or one in which three runs have changed."""
    runs = [dict(row) for row in ROWS.values()]
    waiting = [run["run"] for run in runs if run["state"] == "queued"]
    fleet = {
        "workers": 12,
        "servers": 3,
        "executors": 96,
        "busy_executors": sum(run.get("executors", 0) for run in runs),
        "runs": len(runs),
        "live_runs": RUNNING + WAITING,
        "queued": len(waiting),
        "queue": waiting,
        "tenant": "ada",
        "sees_all": True,
    }
    answer = {"cursor": since + 1, "now_unix_ms": NOW + 1000 * since, "fleet": fleet}
    if since == 0:
        return {**answer, "is_whole": True, "runs": runs, "members": members(random.Random(1)), "history": history()}
    for run in runs[:3]:
        run["step"] = min(run["steps"], run["step"] + 5 * since)
    return {**answer, "runs": runs[:3]}


def rate_at(row, step):
    """Of a warm-up and a cosine."""
    lr, _, warm_up = variant_of(row["run"])
    if step < warm_up:
        return lr * (step + 1) / warm_up
    return lr / 2 * (1 + math.cos(math.pi * (step - warm_up) / (row["steps"] - warm_up)))


def curves_of(row, draw):
    """{metric: its curve}"""
    step, steps, evaluations = row["step"], row["steps"], evaluations_of(row)
    stride = max(1, step // 600)
    at = list(range(stride, step + 1, stride))
    loss = [loss_at(row, step) + draw.gauss(0, 0.03) for step in at]
    is_slow = [0.36 * steps < step < 0.41 * steps for step in at]
    speeds = [421 + 20 * math.sin(step / 300) + draw.gauss(0, 8) - 180 * slow for step, slow in zip(at, is_slow)]
    return {
        "loss": {
            "steps": at,
            "mean": loss,
            "min": [y - abs(draw.gauss(0.07, 0.02)) for y in loss],
            "max": [y + abs(draw.gauss(0.08, 0.03)) for y in loss],
        },
        "lr": {"steps": at, "mean": [rate_at(row, step) for step in at]},
        "samples_per_second": {"steps": at, "mean": speeds},
        "workers": {"steps": at, "mean": [2 if slow else 4 if step > 0.18 * steps else 3 for step, slow in zip(at, is_slow)]},
        "eval_loss": {"steps": evaluations, "mean": [loss_at(row, step) + 0.08 for step in evaluations]},
        "accuracy": {"steps": evaluations, "mean": [accuracy_at(row, step) for step in evaluations]},
    }


def events_of(row):
    """A worker and a server were lost on the way."""
    joined, cut, lost = (row["steps"] * part // 100 for part in (18, 36, 41))
    back = lost - lost % (row["steps"] // 10)
    return [
        {"step": 0, "kind": "state", "message": "running"},
        {"step": 0, "kind": "view", "message": "3 workers, 24 executors, 2 servers"},
        {"step": 40, "kind": "note", "message": "takes turns with 1 other run"},
        *({"step": step, "kind": "checkpoint"} for step in evaluations_of(row)),
        {"step": joined, "kind": "view", "message": "4 workers, 32 executors, 2 servers"},
        {"step": cut, "kind": "fault", "message": "worker-1 (node1) cannot reach server-1 (10.0.0.11:7071): connection refused"},
        {"step": cut + 1, "kind": "view", "message": "2 workers, 16 executors, 2 servers"},
        {"step": lost, "kind": "fault", "message": "server-1 (10.0.0.11:7071) was lost: its connection ended"},
        {"step": lost, "kind": "rollback", "message": f"rolled back to step {back}: server-1 was lost"},
        {"step": lost + 1, "kind": "view", "message": "4 workers, 32 executors, 2 servers"},
    ]


def series(run, metrics=("loss", "lr", "samples_per_second", "workers", "eval_loss", "accuracy"), since=0):
    row = row_of(run)
    curves = curves_of(row, random.Random(run))
    for curve in curves.values():
        at = [i for i, step in enumerate(curve["steps"]) if step >= since]
        curve.update({name: [values[i] for i in at] for name, values in curve.items()})
    return {
        "run": run,
        "step": row["step"],
        "steps": row["steps"],
        "incarnation": 1,
        "curves": [{"metric": name, **curves[name]} for name in metrics],
        "events": sorted((event for event in events_of(row) if since <= event["step"] <= row["step"]), key=lambda event: event["step"]),
    }


def variant_of(run):
    """(learning rate, momentum, steps of warm-up)"""
    return VARIANTS[COMPARED.index(run)] if run in COMPARED else VARIANTS[0]


def run_info(run):
    row, (lr, momentum, warm_up) = row_of(run), variant_of(run)
    return {
        "run": run,
        "name": row["name"],
        "state": row["state"],
        "step": row["step"],
        "steps": row["steps"],
        "loss": row["loss"],
        "parameters": 25_557_032,
        "blocks": 420,
        "checkpoints": 1 + len(evaluations_of(row)),
        "checkpoint_step": row.get("checkpoint_step", 0),
        "train_samples": 1_281_167,
        "servers": 2,
        "train_seconds": 12_769.4,
        "submitted_unix_ms": row["submitted_unix_ms"],
        "tenant": row["tenant"],
        "priority": 10,
        "incarnation": row.get("incarnation", 0),
        "spec": {
            "name": row["name"],
            "model": {"onnx": "resnet50.onnx", "loss": "cross_entropy"},
            "data": {"root": "/srv/imagenet", "train": {"format": "folder", "path": "train"}, "shuffle": True},
            "train": {
                "epochs": 5,
                "batch": BATCH,
                "microbatches": 40,
                "seed": 1,
                "optimizer": {"name": "sgd", "lr": lr, "momentum": momentum},
                "schedule": {"name": "cosine", "warmup_steps": warm_up},
            },
            "checkpoint": {"every_steps": 500, "keep": 10},
            "workers": {"min": 1, "max": 4},
        },
    }


def checkpoints(run):
    row = row_of(run)
    return {
        "run": run,
        "checkpoints": [
            {
                "step": step,
                "committed_unix_ms": NOW - 3040 * (row["step"] - step),
                "bytes": 102_228_128 * 3,
                "written_bytes": 102_228_128,
                "blocks": 420,
                "loss": loss_at(row, step),
                "eval_loss": loss_at(row, step) + 0.08 if step else None,
                "accuracy": accuracy_at(row, step) if step else None,
                "unreadable": step == 1000,
            }
            for step in (0, *evaluations_of(row))
        ],
    }


def values_of(lr, momentum, weight_decay, batch=None):
    values = {"train.optimizer.lr": f"{lr:.5g}", "train.optimizer.momentum": momentum, "train.optimizer.weight_decay": f"{weight_decay:.4g}"}
    if batch:
        values["train.batch"] = str(batch)
    return [{"path": path, "value": value} for path, value in values.items()]


def quality_of(lr, momentum, draw):
    return 0.93 - 0.12 * abs(math.log10(lr) + 1.6) - (0.02 if momentum == "0.8" else 0) + draw.gauss(0, 0.006)


def result_at(quality, rung):
    return quality - 0.3 / (rung + 1) ** 1.5 + 0.3 / 8


def searched(name, trials, draw):
    """Trials of a search whose worse ones are stopped at rungs; the last four run."""
    rows = []
    for number in range(trials):
        lr, momentum, weight_decay = 10 ** draw.uniform(-3, -0.5), draw.choice(("0.8", "0.9", "0.95")), 10 ** draw.uniform(-5, -2)
        quality, batch = quality_of(lr, momentum, draw), draw.choice((64, 128, 256))
        came = 1 if number >= trials - 4 else 1 + (quality > 0.84) + (quality > 0.88) + (quality > 0.905)
        state = "running" if number >= trials - 4 else "stopped" if came < 4 else "done"
        results = [result_at(quality, rung) for rung in range(came)]
        rows.append({"number": number, "run": f"{name}-{number:04d}", "state": state, "values": values_of(lr, momentum, weight_decay, batch),
                     "results": results})
    return rows


def bred(name, population, draw):
    """Trials of a population, whose worst quarter is replaced by forks of the best one at each rung."""
    rows, genes = [], []

    def begin(lr, momentum, quality, **fork):
        genes.append((lr, momentum, quality))
        row = {"number": len(rows), "run": f"{name}-{len(rows):04d}", "state": "running", "results": [], **fork}
        rows.append({**row, "values": values_of(lr, momentum, 10 ** draw.uniform(-5, -2))})

    for _ in range(population):
        lr, momentum = 10 ** draw.uniform(-3, -0.5), draw.choice(("0.8", "0.9", "0.95"))
        begin(lr, momentum, quality_of(lr, momentum, draw))
    for rung in range(3):
        alive = [row for row in rows if row["state"] == "running"]
        for row in alive:
            row["results"].append(result_at(genes[row["number"]][2], rung))
        alive.sort(key=lambda row: row["results"][-1])
        for row in alive[: population // 4]:
            row["state"] = "stopped"
            parent = draw.choice(alive[-(population // 4) :])
            lr, momentum, quality = genes[parent["number"]]
            begin(lr * draw.choice((0.8, 1.2)), momentum, quality + draw.gauss(0.004, 0.006), has_parent=True, parent=parent["number"],
                  parent_rung=rung, results=list(parent["results"]))
    return rows


def sweep(name, trials=40, has_forks=False, seed=3):
    draw = random.Random(seed)
    rows = bred(name, 16, draw) if has_forks else searched(name, trials, draw)
    best = max(rows, key=lambda row: row["results"][-1])
    space = [
        {"path": "train.optimizer.lr", "log": [0.001, 0.316]},
        {"path": "train.optimizer.momentum", "choice": ["0.8", "0.9", "0.95"]},
        {"path": "train.optimizer.weight_decay", "log": [1e-05, 0.01]},
        {"path": "train.batch", "choice": ["64", "128", "256"]},
    ]
    return {
        "sweep": name,
        "name": name.rsplit("-", 1)[0],
        "begun": len(rows),
        "running": sum(row["state"] == "running" for row in rows),
        "has_best": True,
        "best": best["number"],
        "best_value": best["results"][-1],
        "log_records": 120,
        "only_changes": False,
        "submitted_unix_ms": NOW - 3_600_000,
        "begun_steps": 38_000 if has_forks else 12_340,
        "seconds": 3600.0,
        "trials": rows,
        "spec": {
            "objective": {"metric": "accuracy", "goal": "max"},
            "search": {"name": "random" if has_forks else "tpe"},
            "schedule": {"name": "pbt", "rungs": [500, 1000, 1500, 2000]} if has_forks else {"name": "asha", "rungs": [60, 180, 540, 1620], "eta": 3},
            "budget": {"trials": 16 if has_forks else 60},
            "space": space[:3] if has_forks else space,
        },
    }


def sweeps():
    """The list of them: without their trials."""
    search, ended = sweep("lr-search-1a2b3c"), sweep("pbt-vit-77aa00", has_forks=True)
    listed = [
        {**search, "tenant": "ada"},
        {**ended, "tenant": "grace", "running": 0, "end": "nothing is left to do", "submitted_unix_ms": NOW - 90_000_000},
    ]
    for row in listed:
        for name in ("trials", "spec"):
            row.pop(name)
    return {"sweeps": listed}

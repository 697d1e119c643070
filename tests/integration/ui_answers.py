"""Answers of a coordinator as the dashboard's page gets them, for what no test's cluster is large or troubled enough."""

import math
import random

STATES = ("running", "queued", "done", "failed", "paused", "held", "cancelled", "stopped", "loading", "finishing")
NAMES = ("resnet50-imagenet", "gpt2-small", "vit-base", "lenet", "dlrm-clicks", "unet-cells", "bert-base", "mobilenet")
NOW = 1_790_000_000_000


def decay(step, steps, start=2.4, end=0.2):
    return end + (start - end) * math.exp(-5 * step / steps)


def run_row(number, draw, state=None):
    """A row of Overview.runs."""
    state = state or draw.choice(STATES)
    steps = draw.choice((2000, 5000, 12000))
    step = steps if state in ("done", "finishing") else 0 if state in ("queued", "loading") else draw.randrange(100, steps)
    if number == 0:  # the run whose curves series() makes
        steps, step = 5000, 4200
    row = {
        "run": f"{NAMES[number % len(NAMES)]}-{number:06x}",
        "name": NAMES[number % len(NAMES)],
        "state": state,
        "steps": steps,
        "tenant": draw.choice(("ada", "grace", "edsger")),
        "submitted_unix_ms": NOW - draw.randrange(10**5, 10**8),
        "loss": None,
        "objective_value": None,
        "epochs": 5.0,
    }
    if step:
        row.update(
            step=step,
            loss=decay(step, steps),
            objective="accuracy",
            objective_value=1 - decay(step, steps) / 4,
            checkpoint_step=step - step % 100,
            epoch=5.0 * step / steps,
            sparkline=[decay(steps * i / 40, steps) + draw.gauss(0, 0.05) for i in range(1 + 40 * step // steps)],
        )
    if state == "running":
        row.update(
            samples_per_second=draw.uniform(300, 9000),
            workers=draw.randrange(1, 5),
            executors=draw.randrange(4, 33),
            seconds_left=draw.randrange(30, 40000),
        )
    if state == "queued":
        row["message"] = draw.choice(
            (
                "waits for 2 workers: all 12 compute for runs of its priority",
                "waits for a worker with gpu=h200",
                "waits for 3.2 GiB of servers' memory",
            )
        )
    if state in ("done", "failed", "cancelled", "stopped"):
        row["finished_unix_ms"] = NOW - draw.randrange(10**4, 10**7)
    if state == "failed":
        row["message"] = "the loss of step 1412 is not finite: worker-3 reported it, worker-1 confirmed it"
    return row


def members(draw, servers=3, workers=12):
    rows = [
        {
            "id": f"server-{i}",
            "role": "server",
            "host": f"ps{i}",
            "pid": 4000 + i,
            "address": f"10.0.0.{10 + i}:7071",
            "state": "ready",
            "blocks": 400 + i,
            "bytes": 3 * 2**30 + i * 2**26,
            "memory_bytes": 8 * 2**30,
            "runs": 6,
            "joined_unix_ms": NOW - 10**7,
        }
        for i in range(servers)
    ]
    for i in range(workers):
        seats = [
            {
                "run": f"{NAMES[i % 4]}-{i % 4:06x}",
                "state": "ready",
                "executors": 8 if i % 5 else 5,
                "microbatches": 4,
                "speed": 31.5,
            }
        ]
        rows.append(
            {
                "id": f"worker-{i}",
                "role": "worker",
                "host": f"node{i}",
                "pid": 5000 + i,
                "device": "cpu",
                "state": "ready",
                "executors": 8,
                "seats": seats,
                "received_bytes": draw.randrange(2**33),
                "refusals": i == 7,
                "labels": ["zone=a"],
                "joined_unix_ms": NOW - 10**7,
            }
        )
    rows[-1].update(state="cut-off", unreached=1, message="does not reach server-2 at 10.0.0.12:7071: connection refused")
    rows[-3].update(state="quarantined", message="its gradient of step 771 differed from two others'", seats=[])
    return rows


def history(runs, samples=300):
    times = [NOW - 2000 * (samples - 1 - i) for i in range(samples)]
    live = [run["run"] for run in runs if run["state"] == "running"][:7]
    tracks = [
        {
            "run": run,
            "executors": [
                max(0, round(8 + 6 * math.sin(i / 40 + k) + 4 * math.cos(i / 17 + 2 * k))) if i > 30 * k else 0
                for i in range(samples)
            ],
        }
        for k, run in enumerate(live)
    ]
    return {"unix_ms": times, "executors": [96 if i > 60 else 64 for i in range(samples)], "tracks": tracks}


def overview(n_runs, since=0, seed=1):
    """A first answer, or one in which three runs have changed."""
    draw = random.Random(seed)
    runs = [run_row(i, draw, "running" if i < 6 else "queued" if i < 14 else None) for i in range(n_runs)]
    rows = members(draw)
    waiting = [run["run"] for run in runs if run["state"] == "queued"]
    fleet = {
        "workers": 12,
        "servers": 3,
        "executors": 96,
        "busy_executors": 71,
        "runs": n_runs,
        "live_runs": 40,
        "queued": len(waiting),
        "queue": waiting[:50],
        "tenant": "ada",
        "sees_all": True,
    }
    answer = {"cursor": since + 1, "now_unix_ms": NOW + 1000 * since, "fleet": fleet}
    if since == 0:
        return {**answer, "is_whole": True, "runs": runs, "members": rows, "history": history(runs)}
    for run in runs[:3]:
        run["step"] = min(run["steps"], run.get("step", 0) + 5 * since)
    return {**answer, "runs": runs[:3]}


def series(run, metrics=("loss", "lr", "samples_per_second", "workers", "eval_loss", "accuracy"), steps=4200, seed=1, since=0):
    draw = random.Random(f"{run}{seed}")
    stride, shift = steps // 600, draw.uniform(0.1, 0.5)
    at = list(range(stride, steps + 1, stride))
    loss = [decay(step, steps, 2.4, shift) + draw.gauss(0, 0.03) for step in at]
    curves = {
        "loss": {
            "steps": at,
            "mean": loss,
            "min": [y - abs(draw.gauss(0.09, 0.03)) for y in loss],
            "max": [y + abs(draw.gauss(0.1, 0.04)) for y in loss],
        },
        "lr": {
            "steps": at,
            "mean": [0.05 * min(1, step / 200) * 0.5 * (1 + math.cos(math.pi * step / steps)) for step in at],
        },
        "samples_per_second": {
            "steps": at,
            "mean": [
                4200 + 300 * math.sin(step / 300) + draw.gauss(0, 120) - (1800 if 1800 < step < 2050 else 0) for step in at
            ],
        },
        "workers": {"steps": at, "mean": [2 if 1800 < step < 2050 else 4 if step > 900 else 3 for step in at]},
    }
    evals = list(range(500, steps + 1, 500))
    curves["eval_loss"] = {"steps": evals, "mean": [decay(step, steps, 2.1, shift + 0.1) for step in evals]}
    curves["accuracy"] = {"steps": evals, "mean": [0.93 - decay(step, steps, 0.6, 0.02) for step in evals]}
    events = [
        {"step": 0, "kind": "state", "message": "running"},
        {"step": 0, "kind": "view", "message": "3 workers, 24 executors, 2 servers"},
        {"step": 40, "kind": "note", "message": "takes turns with 1 other run"},
    ]
    events += [
        {"step": step, "kind": "checkpoint"} for step in range(500, steps + 1, 500)
    ]
    events += [
        {"step": 900, "kind": "view", "message": "4 workers, 32 executors, 2 servers"},
        {"step": 1800, "kind": "fault", "message": "worker-1 (node1) cannot reach server-1 (10.0.0.11:7071): connection refused"},
        {"step": 1801, "kind": "view", "message": "3 workers, 24 executors, 2 servers"},
        {"step": 2050, "kind": "fault", "message": "server-1 (10.0.0.11:7071) was lost: its connection ended"},
        {"step": 2050, "kind": "rollback", "message": "rolled back to step 2000: server-1 was lost"},
        {"step": 2051, "kind": "view", "message": "4 workers, 32 executors, 2 servers"},
    ]
    for curve in curves.values():
        at = [i for i, step in enumerate(curve["steps"]) if step >= since]
        curve.update({name: [values[i] for i in at] for name, values in curve.items()})
    return {
        "run": run,
        "step": steps,
        "steps": 5000,
        "incarnation": 1,
        "stride": stride,
        "curves": [{"metric": name, **curves[name]} for name in metrics if name in curves],
        "events": sorted((event for event in events if event["step"] >= since), key=lambda event: event["step"]),
    }


def run_info(run, lr=0.05):
    return {
        "run": run,
        "name": run.rsplit("-", 1)[0],
        "state": "running",
        "step": 4200,
        "steps": 5000,
        "loss": 0.31,
        "parameters": 25_557_032,
        "blocks": 420,
        "checkpoints": 8,
        "checkpoint_step": 4000,
        "train_samples": 1_281_167,
        "servers": 2,
        "train_seconds": 3711.4,
        "submitted_unix_ms": NOW - 4_000_000,
        "tenant": "ada",
        "priority": 10,
        "incarnation": 1,
        "spec": {
            "name": run.rsplit("-", 1)[0],
            "model": {"onnx": "resnet50.onnx", "loss": "cross_entropy"},
            "data": {"root": "/srv/imagenet", "train": {"format": "folder", "path": "train"}, "shuffle": True},
            "train": {
                "epochs": 5,
                "batch": 256,
                "microbatches": 8,
                "seed": 1,
                "optimizer": {"name": "sgd", "lr": lr, "momentum": 0.9},
                "schedule": {"name": "cosine", "warmup_steps": 200},
            },
            "checkpoint": {"every_steps": 500, "keep": 3},
            "workers": {"min": 1, "max": 4},
        },
    }


def checkpoints(run, steps=4200):
    return {
        "run": run,
        "checkpoints": [
            {
                "step": step,
                "committed_unix_ms": NOW - 800 * (steps - step),
                "bytes": 102_228_128 * 3,
                "written_bytes": 102_228_128,
                "blocks": 420,
                "loss": decay(step, steps, 2.4, 0.3),
                "eval_loss": decay(step, steps, 2.1, 0.4) if step else None,
                "accuracy": 0.93 - decay(step, steps, 0.6, 0.02) if step else None,
                "unreadable": step == 1000,
            }
            for step in range(0, steps + 1, 500)
        ],
    }


def sweeps():
    return {
        "sweeps": [
            {
                "sweep": "lr-search-1a2b3c",
                "name": "lr-search",
                "begun": 40,
                "running": 4,
                "failed": 1,
                "has_best": True,
                "best": 17,
                "best_value": 0.9311,
                "submitted_unix_ms": NOW - 3_600_000,
                "tenant": "ada",
                "begun_steps": 12_340,
            },
            {
                "sweep": "pbt-gpt2-77aa00",
                "name": "pbt-gpt2",
                "end": "its budget of 32 trials is used up",
                "begun": 32,
                "has_best": True,
                "best": 3,
                "best_value": 3.12,
                "submitted_unix_ms": NOW - 90_000_000,
                "tenant": "grace",
                "begun_steps": 96_000,
            },
        ]
    }


def sweep(name, trials=40, has_forks=False, seed=3):
    draw, rungs, rows = random.Random(seed), [60, 180, 540, 1620], []
    for number in range(trials):
        lr, momentum, decay_of = 10 ** draw.uniform(-3, -0.5), draw.choice(("0.8", "0.9", "0.95")), 10 ** draw.uniform(-5, -2)
        quality = 0.93 - 0.12 * abs(math.log10(lr) + 1.6) - (0.02 if momentum == "0.8" else 0) + draw.gauss(0, 0.006)
        came = 1 + (quality > 0.84) + (quality > 0.88) + (quality > 0.905)
        row = {
            "number": number,
            "run": f"{name}-{number:04d}",
            "state": "stopped" if came < 4 else "done",
            "values": [
                {"path": "train.optimizer.lr", "value": f"{lr:.5g}"},
                {"path": "train.optimizer.momentum", "value": momentum},
                {"path": "train.optimizer.weight_decay", "value": f"{decay_of:.4g}"},
                {"path": "train.batch", "value": str(draw.choice((64, 128, 256)))},
            ],
            "results": [quality - 0.3 / (rung + 1) ** 1.5 + 0.3 / 8 for rung in range(came)],
        }
        if has_forks and number >= trials // 3:
            row.update(
                has_parent=True, parent=draw.randrange(max(1, number - 10), number), parent_rung=number * 4 // trials - 1
            )
        if number >= trials - 4:
            row.update(state="running", results=row["results"][:1])
        rows.append(row)
    best = max(rows, key=lambda row: row["results"][-1])
    return {
        "sweep": name,
        "name": name,
        "begun": trials,
        "running": 4,
        "has_best": True,
        "best": best["number"],
        "best_value": best["results"][-1],
        "log_records": 120,
        "only_changes": False,
        "submitted_unix_ms": NOW - 3_600_000,
        "begun_steps": 12_340,
        "seconds": 3600.0,
        "trials": rows,
        "spec": {
            "objective": {"metric": "accuracy", "goal": "max"},
            "search": {"name": "tpe"},
            "schedule": {"name": "pbt" if has_forks else "asha", "rungs": rungs, "eta": 3},
            "budget": {"trials": 60},
            "space": [
                {"path": "train.optimizer.lr", "log": [0.001, 0.316]},
                {"path": "train.optimizer.momentum", "choice": ["0.8", "0.9", "0.95"]},
                {"path": "train.optimizer.weight_decay", "log": [1e-05, 0.01]},
                {"path": "train.batch", "choice": ["64", "128", "256"]},
            ],
        },
    }

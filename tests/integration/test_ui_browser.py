"""weir ui: its page, seen with a headless Chromium (peer_ui.py)."""

import os

import network
from chromium import drive
from dashboard import Dashboard
from gate import Gate
from harness import Cluster, Folder, main, wait_for, weir
from test_sweep import Sweep, write_sweep

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_ui.py")
NOWHERE = "127.0.0.1:1"  # answers are made up


def look_at_made_up(check):
    with Dashboard(NOWHERE) as dashboard:
        drive(PEER, dashboard.url, check)


def test_every_view_is_readable_in_both_themes_with_a_thousand_runs():
    look_at_made_up("views")


def test_all_of_it_can_be_done_by_keyboard():
    look_at_made_up("keys")


def test_a_brush_keeps_the_trials_of_its_range():
    look_at_made_up("brush")


def test_rungs_and_trials_are_told_as_the_scheduler_counts_them():
    look_at_made_up("schedulers")


def test_what_ends_something_asks_and_gives_the_focus_back():
    look_at_made_up("questions")


def test_runs_checkpoints_and_sweeps_are_acted_on():
    look_at_made_up("actions")


def test_events_are_shown_by_kind():
    look_at_made_up("events")


def test_a_run_that_rests_goes_on():
    look_at_made_up("held")


def test_an_empty_view_says_what_fills_it():
    look_at_made_up("empty")


def test_what_others_wrote_is_shown_as_text():
    look_at_made_up("markup")


def test_without_the_link_there_is_nothing_to_see():
    look_at_made_up("session")


def test_a_file_of_the_page_that_does_not_come_is_told_of():
    look_at_made_up("unloaded")


def test_a_run_of_a_cluster_is_watched_and_cancelled():
    with Folder() as folder, Cluster(folder, gate=(gate := Gate(folder))) as cluster, Dashboard(cluster.address) as dashboard:
        folder.small_data(240, 48)
        spec = folder.small_spec(folder.model("mlp", "--hidden", 8, "--seed", 5), 2, 100000, 50000)
        gate.stop_at(39)
        run = weir("submit", spec, "--coordinator", cluster.address).stdout.strip()
        wait_for(lambda: dashboard.get("run", run=run).get("step") == 40, "the run to come to the gate")
        drive(PEER, dashboard.url, "run", run)


def test_a_sweep_of_a_cluster_is_extended_and_watched():
    with Folder() as folder, Cluster(folder) as cluster, Dashboard(cluster.address) as dashboard:
        sweep = Sweep(cluster, write_sweep(folder, schedule="{name: none}", trials=2))
        sweep.ends()
        drive(PEER, dashboard.url, "sweep", sweep.id)


if __name__ == "__main__":
    network.enter()  # where no network comes or goes: a browser breaks off then what it loads
    main(globals())

"""The helper of the benchmarks that compares sides: who takes turns, and what is called a difference."""
import os
import subprocess
import sys

from harness import ROOT, main

sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import rounds  # noqa: E402


def test_all_parts_of_the_benchmark_load_and_an_unknown_one_is_refused_with_their_names():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", "bench.py"), "trainign"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 1 and not done.stdout, (done.returncode, done.stdout)
    assert done.stderr.startswith("bench: PARTS: 'trainign' is not known (known: async-accuracy, "), done.stderr
    assert " training," in done.stderr, done.stderr


def test_sides_take_turns_and_one_comes_again_as_the_control():
    turns = []
    sides = {name: lambda name=name: turns.append(name) or len(turns) for name in "ab"}
    seen = rounds.alternate(sides, 2, control="a")
    assert turns == ["a", "b", "a", "a", "b", "a"], turns
    assert seen == {"a": [1, 6], "b": [2, 5], rounds.CONTROL: [3, 4]}, seen


def test_a_side_that_is_not_to_be_had_is_left_out_and_not_asked_again():
    asked = []
    seen = rounds.alternate({"a": lambda: 1, "none": lambda: asked.append(1)}, 3)
    assert seen == {"a": [1, 1, 1]} and len(asked) == 1, (seen, asked)


def test_what_the_control_shows_as_well_is_no_difference():
    noise = rounds.noise([10, 10, 10], [11, 9.8, 10])
    assert noise == 1.1, noise
    for side, is_one in (([9.3, 9.2, 9.1], False), ([10.8, 10.9, 10.7], False), ([8.9, 9, 9.05], True), ([12, 9, 12], True)):
        said = rounds.beside([10, 10, 10], side, noise)
        assert ("no difference" in said) != is_one, (side, said)


if __name__ == "__main__":
    main(globals())

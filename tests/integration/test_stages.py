"""weir inspect shows how a model can be cut into stages, and says that it estimates."""
import json

from harness import Folder, main, weir

TRAIN = "  steps: 2\n  batch: 32\n  microbatches: 2\n  optimizer: {lr: 0.1}\n"


def resnet(folder):
    return folder.model("resnet18", "--input", "3,32,32", "--width", "8", "--classes", "10")


def pipeline(*arguments):
    return json.loads(weir("inspect", *arguments, "--json").stdout)["pipeline"]


def refused(model, *options, words):
    done = weir("inspect", model, *options, status=2)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("weir: ") and not done.stdout, done.stdout + done.stderr
    for word in words:
        assert word in lines[0], f"'{word}' is not in: {lines[0]}"


def test_inspect_shows_stages_and_that_they_are_estimates():
    with Folder() as folder:
        model = resnet(folder)
        shown = weir("inspect", model, "--batch", 8, "--stages", 3).stdout
        assert "stages         3, estimated from the graph\n" in shown and "\nEstimates, from the graph alone" in shown, shown
        told = pipeline(model, "--batch", 8, "--stages", 3)
        assert told["estimated"] is True and len(told["stages"]) == 3
        assert "cuts           " + ",".join(told["cuts"]) + "\n" in shown, shown
        assert [stage["from"] for stage in told["stages"]] == [None, *told["cuts"]]
        assert [stage["in_flight"] for stage in told["stages"]] == [3, 2, 1]
        assert abs(sum(stage["time_share"] for stage in told["stages"]) - 1) < 1e-9
        assert max(stage["time_share"] for stage in told["stages"]) < 0.45, "as even as layers allow"
        whole = json.loads(weir("inspect", model, "--batch", 8, "--json").stdout)
        assert "pipeline" not in whole
        assert sum(stage["multiply_adds"] for stage in told["stages"]) == whole["multiply_adds"]
        assert sum(stage["weights_bytes"] for stage in told["stages"]) >= whole["memory"]["gradients_bytes"]


def test_a_stage_of_many_weights_takes_longer_the_smaller_its_microbatches_are():
    """Its gradients are put together, added and sent after each of them. The last layers have most of the weights."""
    with Folder() as folder:
        model = resnet(folder)
        few, many = (pipeline(model, "--batch", samples, "--cuts", "layer4.0")["stages"][1]["time_share"] for samples in (1, 64))
        assert few > 0.4 and many < 0.2, (few, many)


def test_cuts_are_named_by_modules():
    with Folder() as folder:
        model = resnet(folder)
        told = pipeline(model, "--batch", 8, "--cuts", "layer3.0,layer4.0")
        assert told["cuts"] == ["layer3", "layer4"], told["cuts"]
        block = 8 * 16 * 16 * 16 * 4  # f32[8,16,16,16], what layer2 makes
        assert told["stages"][0]["up_bytes"] == told["stages"][0]["down_bytes"] == block, told["stages"][0]
        assert told["stages"][2]["up_bytes"] == told["stages"][2]["down_bytes"] == 0
        assert pipeline(model, "--batch", 8, "--cuts", "layer4,layer3", "--stages", 3) == told
        assert {"layer1", "layer4", "fc"} <= set(told["places"])
        again = pipeline(model, "--batch", 8, "--cuts", told["places"][-1])
        assert again["cuts"] == [told["places"][-1]]


def test_a_spec_bounds_the_microbatches_in_flight():
    with Folder() as folder:
        spec = folder.spec(folder.model("mlp", "--hidden", "16x4"), train=TRAIN)
        assert [stage["in_flight"] for stage in pipeline(spec, "--stages", 4)["stages"]] == [2, 2, 2, 1]


def test_a_spec_is_shown_in_its_own_stages_unless_others_are_asked_for():
    with Folder() as folder:
        model = resnet(folder)
        spec = folder.spec(model, train=TRAIN + "workers: {stages: 3}\n")
        told = pipeline(spec)
        assert len(told["stages"]) == 3 and told == pipeline(spec, "--stages", 3), told["cuts"]
        assert "stages         3, estimated from the graph\n" in weir("inspect", spec).stdout
        assert len(pipeline(spec, "--stages", 2)["stages"]) == 2
        assert pipeline(spec, "--cuts", "layer2")["cuts"] == ["layer2"]
        spec = folder.spec(model, train=TRAIN + "workers: {stages: 2, cuts: [layer3.0]}\n")
        assert pipeline(spec)["cuts"] == ["layer3"], pipeline(spec)["cuts"]
        automatic = folder.spec(model, name="auto.yaml", train=TRAIN + "workers: {stages: auto}\n")
        assert "\nstages         as few as fit the memory of each worker" in weir("inspect", automatic).stdout
        assert len(pipeline(automatic, "--stages", 2)["stages"]) == 2
        assert pipeline(spec, "--cuts", "layer2")["cuts"] == ["layer2"]
        assert pipeline(spec, "--stages", 2) == pipeline(model, "--batch", 16, "--stages", 2)
        assert "pipeline" not in json.loads(weir("inspect", folder.spec(model, train=TRAIN), "--json").stdout)


def test_cuts_and_stages_that_cannot_be_are_refused_in_one_line():
    with Folder() as folder:
        model = resnet(folder)
        refused(model, "--cuts", "layer9.0", words=["'layer9.0'", "did you mean 'layer1.0'?"])
        refused(model, "--cuts", "encoder", words=["'encoder'", "there are '", "..."])
        refused(model, "--cuts", "conv1", words=["the model begins with 'conv1'"])
        refused(model, "--cuts", "layer2,layer2.0", words=["one place"])
        refused(model, "--cuts", "layer2,", words=["a name is empty"])
        refused(model, "--cuts", "layer2", "--stages", 3, words=["--stages 3 takes 2 cuts, and --cuts names 1"])
        refused(model, "--stages", 0, words=["--stages"])
        small = folder.model("mlp", "--hidden", "8")
        refused(small, "--stages", 40, words=["40 stages need 39 cuts", "there can be"])


if __name__ == "__main__":
    main(globals())

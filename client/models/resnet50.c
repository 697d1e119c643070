/* resnet50: blocks of 1x1, 3x3 and 1x1 convolutions; torchvision's, with its names. */
#include "client/models/resnet.h"

static void resnet50_build(struct onnx_writer *writer, const struct args *args) {
  resnet_build(writer, args, true);
}

static const struct option_def resnet50_options[] = {RESNET_OPTIONS("3,4,6,3"), {0}};

const struct model_kind_def model_kind_resnet50 = {
    .command = {.name = "resnet50",
                .summary = "a residual network of blocks of 1x1, 3x3 and 1x1 convolutions",
                .description = "Writes torchvision's resnet50 as an ONNX model, from 'image' to 'logits'. "
                               "Initially convolutions are normal with a variance of two over the fan-out, "
                               "batch norms 1 and 0.",
                .options = resnet50_options,
                .examples = "weir model resnet50 -o resnet50.onnx\n"
                            "weir model resnet50 --input 3,32,32 --classes 10 --width 32 -o small.onnx\n",
                MODEL_COMMAND},
    .build = resnet50_build,
};

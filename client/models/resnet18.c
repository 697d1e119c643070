/* resnet18: blocks of two 3x3 convolutions; torchvision's, with its names. */
#include "client/models/resnet.h"

static void resnet18_build(struct onnx_writer *writer, const struct args *args) {
  resnet_build(writer, args, false);
}

static const struct option_def resnet18_options[] = {RESNET_OPTIONS("2,2,2,2"), {0}};

const struct model_kind_def model_kind_resnet18 = {
    .command = {.name = "resnet18",
                .summary = "a residual network of blocks of two 3x3 convolutions",
                .description = "Writes torchvision's resnet18 as an ONNX model, from 'image' to 'logits'. "
                               "Initially convolutions are normal with a variance of two over the fan-out, "
                               "batch norms 1 and 0.",
                .options = resnet18_options,
                .examples = "weir model resnet18 -o resnet18.onnx\n"
                            "weir model resnet18 --input 3,32,32 --classes 10 --width 32 -o small.onnx\n",
                MODEL_COMMAND},
    .build = resnet18_build,
};

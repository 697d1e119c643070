/* Residual networks (He et al., 2015) as torchvision builds them: resnet18, resnet50. */
#ifndef WEIR_CLIENT_MODELS_RESNET_H
#define WEIR_CLIENT_MODELS_RESNET_H

#include "client/models/model_kind.h"

enum { RESNET_STAGES = 4 };

/* has_bottlenecks: blocks of 1x1, 3x3 and 1x1 convolutions that widen by 4, instead of two 3x3 ones. Options:
   those of RESNET_OPTIONS. */
void resnet_build(struct onnx_writer *writer, const struct args *args, bool has_bottlenecks);

#define RESNET_OPTIONS(blocks)                                                                               \
  MODEL_OUTPUT_OPTIONS, MODEL_IMAGE_OPTION("3,224,224"), MODEL_CLASSES_OPTION("1000"),                       \
      {"width",                                                                                              \
       0,                                                                                                    \
       OPTION_COUNT,                                                                                         \
       "N",                                                                                                  \
       "64",                                                                                                 \
       1,                                                                                                    \
       MODEL_WIDTH_MAX / 32,                                                                                 \
       "Channels of the first stage; each of the four has twice those of the one before."},                  \
      {"depth", 0, OPTION_LIST, "BLOCKS", blocks, 1, MODEL_DEPTH_MAX, "Blocks of each of the four stages."}, \
  {                                                                                                          \
    "stem", 0, OPTION_TEXT, "STEM", NULL, 0, 0,                                                              \
        "How it begins: large, a 7x7 convolution of stride 2 and a 3x3 max pooling, or small, a 3x3 "        \
        "convolution of stride 1. Default: small for images of less than 64 pixels in height or width."      \
  }

#endif

/* Random draws of an exported model. */
#ifndef WEIR_CLIENT_FILES_EXPORT_DRAWS_H
#define WEIR_CLIENT_FILES_EXPORT_DRAWS_H

#include "onnx.pb-c.h"

/* Nodes that read a draw of 0 or 1 read its probability instead. The nodes that draw stay; nothing reads
   them. */
void export_expect_draws(Onnx__GraphProto *graph);

#endif

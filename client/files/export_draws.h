/* Random draws of an exported model. */
#ifndef WEIR_CLIENT_FILES_EXPORT_DRAWS_H
#define WEIR_CLIENT_FILES_EXPORT_DRAWS_H

#include "onnx.pb-c.h"

/* Whoever reads a draw of 0 or 1 reads its probability instead; the nodes that draw are left, read by nobody.
 */
void export_expect_draws(Onnx__GraphProto *graph);

#endif

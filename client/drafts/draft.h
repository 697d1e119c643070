/* A spec for a model that has none. */
#ifndef WEIR_CLIENT_DRAFTS_DRAFT_H
#define WEIR_CLIENT_DRAFTS_DRAFT_H

#include "client/drafts/data_guess.h"

struct draft {
  struct task task;
  struct data_guess data;
  char *text; /* YAML with comments */
};

struct draft_request {
  const char *model; /* the ONNX file's path */
  const char *data;  /* a folder; NULL: that of the spec */
  const char *spec;  /* the path at which the text will lie */
};

/* Reads the model, looks at the folder, writes the text, and checks it as a submission is checked. Errors:
   those of model_file_open and of task_find; NOT_FOUND for a folder that is not there. Released with
   draft_fini, also after an error. */
int draft_make(const struct draft_request *request, struct draft *out, struct err *err);
void draft_fini(struct draft *draft); /* safe on a zeroed one */

#endif

/* A model's stages as `weir inspect` shows them. */
#ifndef WEIR_CLIENT_TERMINAL_STAGE_REPORT_H
#define WEIR_CLIENT_TERMINAL_STAGE_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "model/stages/estimates.h"

struct stage_report {
  struct model_places places;
  struct model_stages stages; /* list NULL: none are asked for */
};

struct stage_request {
  int n_stages;              /* 0: as many as there are cuts, and one more */
  const char *cuts;          /* "NAME,NAME"; NULL: the best */
  const Weir__RunSpec *spec; /* whose workers.stages and workers.cuts hold where neither is given; NULL */
};

/* No stages where nothing asks for them. Errors: INVALID for names that lead nowhere, a number of cuts that
   does not fit, more stages than there can be. The model outlives the report, which is stage_report_fini's
   also after an error. */
int stage_report_init(struct stage_report *report, const struct model *model,
                      const struct stage_request *request, struct err *err);
void stage_report_fini(struct stage_report *report); /* safe on a zeroed one */

void stage_report_print(const struct stage_report *report, FILE *file);
json_t *stage_report_json(const struct stage_report *report);

#endif

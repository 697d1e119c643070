/* Runs on a parameter server whose model's file the test has in memory. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_GIVEN_MODEL_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_GIVEN_MODEL_H

#include "server/parameters/load/hosted_run.h"

/* hosted_run_new with this file, or outline, which stays the caller's. Sets what the setup says of the model.
 */
int given_model_load(struct run_setup *setup, const void *file, size_t size_bytes, struct hosted_run **run,
                     struct err *err);

#endif

/* For tests of data formats: files in a folder of the test's own, opened through a spec. */
#ifndef WEIR_TESTS_SUPPORT_FORMAT_FIXTURE_H
#define WEIR_TESTS_SUPPORT_FORMAT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "worker/data/dataset.h"

int make_folder(void **state);

int remove_folder(void **state);

void write_file(const char *name, const void *data, size_t size);

void write_text(const char *name, const char *text);

/* root: NULL for the test's folder, or one below where the tests are started. data: what follows "root" in
 * the spec's data. */
Weir__RunSpec *make_spec(const char *root, const char *data);

struct dataset *open_at(const char *root, const char *data, bool is_eval, Weir__RunSpec **spec);

struct dataset *open_data(const char *data, Weir__RunSpec **spec);

void refuse_at(const char *root, const char *data, bool is_eval, enum err_code code, const char *wanted);

void refuse_data(const char *data, enum err_code code, const char *wanted);

/* Sample `index` of a column, as that input, without transforms. */
void read_input(struct dataset *dataset, const char *column, uint64_t index, const struct value *input,
                void *out);

void expect_floats(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                   const float *wanted);

void expect_integers(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                     const int64_t *wanted);

#endif

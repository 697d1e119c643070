/* For tests of data formats: files in a temporary folder, opened through a spec. One folder a program at a
   time: make_folder() and remove_folder() are a test's setup and teardown. What fails here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_FORMAT_FIXTURE_H
#define WEIR_TESTS_SUPPORT_WORKER_FORMAT_FIXTURE_H

#include "worker/data/dataset.h"

/* Make the folder, and remove it with its files. */
int make_folder(void **state);
int remove_folder(void **state);

/* Writes a file of the folder, over one that has the name. write_text() leaves the final NUL out. */
void write_file(const char *name, const void *data, size_t size);
void write_text(const char *name, const char *text);

/* A spec of 3 epochs in batches of 2, on these data. root: NULL for the test's folder, or a path below
   where the tests are started. data: YAML, what follows "root" in the spec's data. Freed with spec_free(). */
Weir__RunSpec *make_spec(const char *root, const char *data);

/* Opens data.train, or data.eval if is_eval, of such a spec. The caller frees the spec with spec_free(),
   after it closed the dataset. open_data() opens data.train in the test's folder. */
struct dataset *open_at(const char *root, const char *data, bool is_eval, Weir__RunSpec **spec);
struct dataset *open_data(const char *data, Weir__RunSpec **spec);

/* Asserts that opening the same fails with this code and a text that holds `wanted`. */
void refuse_at(const char *root, const char *data, bool is_eval, enum err_code code, const char *wanted);
void refuse_data(const char *data, enum err_code code, const char *wanted);

/* Reads sample `index` of the column as this graph input takes it, without transforms, to out, which has
   room for it. */
void read_input(struct dataset *dataset, const char *column, uint64_t index, const struct value *input,
                void *out);

/* Assert that sample `index` of the column, read as f32[elems] or i64[elems], has exactly these elements,
   at most 64. column "": the first that is not the labels. */
void expect_floats(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                   const float *wanted);
void expect_integers(struct dataset *dataset, const char *column, uint64_t index, int64_t elems,
                     const int64_t *wanted);

#endif

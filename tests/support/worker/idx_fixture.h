/* A small dataset in idx files, whole and damaged, and a model of one image and its labels that is fed with
 * it. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_IDX_FIXTURE_H
#define WEIR_TESTS_SUPPORT_WORKER_IDX_FIXTURE_H

#include "model/model.h"
#include "worker/data/dataset.h"

enum { SAMPLES = 10, PIXELS = 6 };

extern const struct value image_input;       /* f32[2,1,2,3] */
extern const struct value label_input;       /* i64[2] */
extern const struct label_rule four_classes; /* none is ignored but -100 */

/* A group's setup: makes a folder with the files images, images.gz, labels and damaged ones: cut, long,
   plain.gz, nine, text, empty and huge. */
int idx_make_folder(void **state);
int idx_remove_folder(void **state);

/* The folder, and the path of a file of it. */
const char *idx_folder(void);
void idx_path_of(const char *name, char path[128]);

/* Writes a file of the folder; idx_remove_folder knows the name "damaged.gz". Asserts that it could. */
void idx_write_file(const char *name, const void *data, size_t size);

/* The bytes of the file images, for which out has room for 256; returns how many. */
size_t idx_make_images(unsigned char *out);

/* A run on two of the folder's files with these transforms, as in a spec. Freed with spec_free. */
Weir__RunSpec *idx_transformed_spec(const char *images, const char *labels, const char *transforms);

/* The same, scaled and normalized. */
Weir__RunSpec *idx_spec(const char *images, const char *labels);

/* A model of one image and its labels, as far as a loader looks at it. */
struct fed_model {
  struct value values[2]; /* image_input, label_input */
  int inputs[2];
  struct graph graph;
  const char *columns[1];
  struct model model;
};

/* Nothing is to be freed; the model lives as long as *fed. */
const struct model *fed_model_init(struct fed_model *fed, struct label_rule labels);

#endif

/* Looking for data, and writing the sources of a spec. */
#include "client/drafts/data_guess.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/drafts/csv_header.h"
#include "common/base/memory.h"

/* Where a file of the data would be. */
struct place {
  const struct task *task;
  const char *root, *file;
};

/* Files as people have them: looked for in the table's order. */
struct layout {
  enum task_data data;
  const char *format, *train, *eval; /* eval NULL: split */
  bool is_usual;                     /* of the kind of data, where none is there */
  void (*write)(FILE *out, const struct place *place, struct data_guess *guess);
  const char *meaning;
};

#define LABELS_FILE "labels.npy"
static const struct layout layouts[];
static char *source_text(const struct layout *layout, const struct place *place, struct data_guess *guess);
static void guess_arrays(const struct task *task, struct data_guess *guess);
static void write_transforms(const struct task *task, const struct layout *layout, struct data_guess *guess);

static bool is_there(const char *root, const char *file) {
  char *path = mem_printf("%s/%s", root, file);
  bool is_found = access(path, F_OK) == 0;
  free(path);
  return is_found;
}

static char *array_file(const char *name) {
  char *file = mem_printf("%s.npy", name);
  for (char *c = file; *c; c++)
    if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-' && *c != '.')
      *c = '_';
  return file;
}

static bool arrays_are_there(const struct task *task, const char *root) {
  bool are_there = !task->model->has_labels || is_there(root, LABELS_FILE);
  for (int i = 0; i < task->model->n_columns; i++) {
    char *file = array_file(task_input(task, i)->name);
    are_there &= is_there(root, file);
    free(file);
  }
  return are_there;
}

static const struct layout *find_layout(const struct task *task, const char *root, bool *is_found) {
  const struct layout *usual = NULL;
  *is_found = true;
  for (const struct layout *layout = layouts; layout->format; layout++) {
    if (layout->data != task->data)
      continue;
    if (is_there(root, layout->train) && (!layout->eval || is_there(root, layout->eval)))
      return layout;
    if (layout->is_usual)
      usual = layout;
  }
  *is_found = arrays_are_there(task, root);
  return *is_found ? NULL : usual;
}

void data_guess_find(const struct task *task, const char *root, struct data_guess *out) {
  const struct layout *layout;
  *out = (struct data_guess){0};
  layout = find_layout(task, root, &out->is_found);
  if (!layout) {
    guess_arrays(task, out);
    return;
  }
  out->meaning = layout->meaning;
  out->train = source_text(layout, &(struct place){task, root, layout->train}, out);
  if (layout->eval && out->is_found)
    out->eval = source_text(layout, &(struct place){task, root, layout->eval}, out);
  write_transforms(task, layout, out);
}

void data_guess_fini(struct data_guess *guess) {
  free(guess->train);
  free(guess->eval);
  free(guess->transforms);
  free(guess->doubt);
  *guess = (struct data_guess){0};
}

static bool is_plain(const char *name) {
  if (!isalpha((unsigned char)*name))
    return false;
  while (isalnum((unsigned char)*name) || (*name && strchr("_./-", *name)))
    name++;
  return !*name;
}

char *data_quoted(const char *name) {
  char *text = NULL;
  size_t size;
  FILE *out;
  if (is_plain(name))
    return mem_strdup(name);
  out = open_memstream(&text, &size);
  CHECK(out);
  fputc('"', out);
  for (const char *c = name; *c; c++)
    fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : (unsigned char)*c < ' ' ? "\\x%02x" : "%c", *c);
  fputc('"', out);
  fclose(out);
  return text;
}

static char *source_text(const struct layout *layout, const struct place *place, struct data_guess *guess) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  fprintf(out, "{format: %s, ", layout->format);
  layout->write(out, place, guess);
  fprintf(out, "}");
  fclose(out);
  return text;
}

/* An array a column. */
static void guess_arrays(const struct task *task, struct data_guess *guess) {
  const struct model *model = task->model;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  fprintf(out, "{format: npy, columns: {");
  for (int i = 0; i < model->n_columns; i++) {
    const char *input = task_input(task, i)->name;
    char *name = data_quoted(input), *plain = array_file(input), *file = data_quoted(plain);
    fprintf(out, "%s%s: %s", i ? ", " : "", name, file);
    free(name);
    free(plain);
    free(file);
  }
  fprintf(out, "%s}}", model->has_labels ? ", labels: " LABELS_FILE : "");
  fclose(out);
  guess->train = text;
  guess->transforms = mem_strdup("");
  guess->meaning = "arrays of numpy.save, first dimension the samples";
}

static void write_images(FILE *out, const struct place *place, struct data_guess *guess) {
  (void)guess;
  fprintf(out, "folder: %s", place->file);
}

/* PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte. */
static void write_idx(FILE *out, const struct place *place, struct data_guess *guess) {
  const char *images = strstr(place->file, "images-idx3");
  (void)guess;
  fprintf(out, "images: %s, labels: %.*slabels-idx1%s", place->file, (int)(images - place->file), place->file,
          images + strlen("images-idx3"));
}

/* CIFAR-10 comes in five files. */
static void write_cifar(FILE *out, const struct place *place, struct data_guess *guess) {
  const char *number = strstr(place->file, "_1.bin");
  (void)guess;
  fprintf(out, "files: [%s", place->file);
  for (int i = 2; number && i <= 5; i++)
    fprintf(out, ", %.*s_%d.bin", (int)(number - place->file), place->file, i);
  fprintf(out, "]");
}

static int64_t classes(const struct task *task) {
  return task->model->labels.classes;
}

static int64_t context(const struct task *task) {
  return task_input(task, 0)->shape.dim[1];
}

enum { BYTES = 256, U16 = 65536 };

static void write_text(FILE *out, const struct place *place, struct data_guess *guess) {
  (void)guess;
  fprintf(out, "file: %s, context: %lld, unit: %s", place->file, (long long)context(place->task),
          classes(place->task) == BYTES ? "bytes" : "characters");
}

static void write_tokens(FILE *out, const struct place *place, struct data_guess *guess) {
  (void)guess;
  fprintf(out, "file: %s, dtype: %s, context: %lld", place->file, classes(place->task) > U16 ? "u32" : "u16",
          (long long)context(place->task));
}

static void write_csv(FILE *out, const struct place *place, struct data_guess *guess) {
  int64_t features = task_input(place->task, 0)->shape.dim[1];
  struct csv_header header = {0};
  char *path = mem_printf("%s/%s", place->root, place->file),
       *input = data_quoted(task_input(place->task, 0)->name);
  csv_header_read(path, &header);
  if (header.n_fields && header.n_fields != features + 1 && !guess->doubt)
    guess->doubt = mem_printf("%s has %lld fields, which should be the %lld features and a label",
                              place->file, (long long)header.n_fields, (long long)features);
  fprintf(out, "file: %s, ", place->file);
  if (header.n_fields && header.delimiter != ',')
    fprintf(out, header.delimiter == '\t' ? "delimiter: \"\\t\", " : "delimiter: \"%c\", ", header.delimiter);
  if (header.features)
    fprintf(out, "columns: {%s: \"%s\", labels: \"%s\"}", input, header.features, header.label);
  else
    fprintf(out, "header: false, columns: {%s: \"1:%lld\", labels: \"%lld\"}", input, (long long)features,
            (long long)features + 1);
  csv_header_fini(&header);
  free(path);
  free(input);
}

/* Pixels are 0 to 255. */
static void write_transforms(const struct task *task, const struct layout *layout, struct data_guess *guess) {
  const struct shape *shape = &task_input(task, 0)->shape;
  char *resize;
  if (task->data != TASK_IMAGES) {
    guess->transforms = mem_strdup("");
    return;
  }
  resize = strcmp(layout->format, "images") == 0
               ? mem_printf("    - resize: {size: [%lld, %lld]}\n", (long long)shape->dim[2],
                            (long long)shape->dim[3])
               : mem_strdup("");
  guess->transforms =
      mem_printf("%s"
                 "    - scale: 0.00392156862745098      # pixels from 0 to 1\n"
                 "    - normalize: %s\n"
                 "    # - horizontal_flip: {}           # where a mirrored image is of the same class\n",
                 resize,
                 shape->dim[1] == 3 ? "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]} # ImageNet's"
                                    : "{mean: [0.5], std: [0.5]}");
  free(resize);
}

#define CLASS_FOLDERS "a folder of JPEG and PNG files for each class"
#define CSV_ROWS "a row of numbers a sample, the label in one field"
static const struct layout layouts[] = {
    {TASK_IMAGES, "images", "train", "val", true, write_images, CLASS_FOLDERS},
    {TASK_IMAGES, "images", "train", "test", false, write_images, CLASS_FOLDERS},
    {TASK_IMAGES, "images", "train", NULL, false, write_images, CLASS_FOLDERS},
    {TASK_IMAGES, "idx", "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", false, write_idx,
     "MNIST's format"},
    {TASK_IMAGES, "idx", "train-images-idx3-ubyte", "t10k-images-idx3-ubyte", false, write_idx,
     "MNIST's format"},
    {TASK_IMAGES, "cifar", "data_batch_1.bin", "test_batch.bin", false, write_cifar,
     "CIFAR-10's binary files"},
    {TASK_IMAGES, "cifar", "train.bin", "test.bin", false, write_cifar, "CIFAR-100's binary files"},
    {TASK_TOKENS, "text", "train.txt", "val.txt", false, write_text, "text in UTF-8"},
    {TASK_TOKENS, "text", "train.txt", "test.txt", false, write_text, "text in UTF-8"},
    {TASK_TOKENS, "text", "train.txt", NULL, false, write_text, "text in UTF-8"},
    {TASK_TOKENS, "text", "input.txt", NULL, false, write_text, "text in UTF-8"},
    {TASK_TOKENS, "tokens", "train.bin", "val.bin", true, write_tokens, "numbers of tokens, little-endian"},
    {TASK_TOKENS, "tokens", "train.bin", NULL, false, write_tokens, "numbers of tokens, little-endian"},
    {TASK_TABLE, "csv", "train.csv", "val.csv", true, write_csv, CSV_ROWS},
    {TASK_TABLE, "csv", "train.csv", "test.csv", false, write_csv, CSV_ROWS},
    {TASK_TABLE, "csv", "train.csv", NULL, false, write_csv, CSV_ROWS},
    {0},
};

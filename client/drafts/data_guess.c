/* Looking for data, and writing the sources of a spec. */
#include "client/drafts/data_guess.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/drafts/csv_columns.h"
#include "common/specs/yaml_text.h"
#include "common/base/memory.h"

/* Where a file of the data would be. */
struct place {
  const struct task *task;
  const char *root, *train, *file; /* file: train, or what is evaluated beside it */
};

/* Files as people have them: looked for in the table's order. */
struct layout {
  enum task_data data;
  const char *format, *train, *eval; /* eval NULL: split */
  bool is_usual;                     /* of the kind of data, where none is there */
  void (*write)(FILE *out, const struct place *place, struct data_guess *guess);
  char *(*misfit)(const struct place *eval); /* why it is left out, or NULL; freed by the caller */
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

/* An only input is fed from the column that is not called "labels". */
static char *column_name(const struct task *task, int i) {
  const char *input = task_input(task, i)->name;
  bool is_taken = strcmp(input, "labels") == 0 && (task->model->has_labels || task->model->n_columns == 1);
  return mem_strdup(is_taken ? "labels_input" : input);
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
    char *column = column_name(task, i), *file = array_file(column);
    free(column);
    are_there &= is_there(root, file);
    free(file);
  }
  return are_there;
}

static void add_note(struct data_guess *guess, char *note) {
  char *former = guess->notes;
  guess->notes = mem_printf("%s%s\n", former ? former : "", note);
  free(former);
  free(note);
}

/* What is there is evaluated with the training data, unless it does not fit it. */
static bool eval_is_there(const struct layout *layout, const struct place *place, struct data_guess *guess) {
  char *misfit;
  if (!is_there(place->root, layout->eval))
    return false;
  misfit = layout->misfit ? layout->misfit(place) : NULL;
  if (misfit)
    add_note(guess, mem_printf("%s is left out: %s", layout->eval, misfit));
  free(misfit);
  return !misfit;
}

static const struct layout *find_layout(const struct task *task, const char *root, struct data_guess *guess) {
  const struct layout *usual = NULL;
  guess->is_found = true;
  for (const struct layout *layout = layouts; layout->format; layout++) {
    const struct place place = {task, root, layout->train, layout->eval};
    if (layout->data != task->data)
      continue;
    if (is_there(root, layout->train) && (!layout->eval || eval_is_there(layout, &place, guess)))
      return layout;
    if (layout->is_usual)
      usual = layout;
  }
  guess->is_found = arrays_are_there(task, root);
  return guess->is_found ? NULL : usual;
}

void data_guess_find(const struct task *task, const char *root, struct data_guess *out) {
  const struct layout *layout;
  *out = (struct data_guess){0};
  layout = find_layout(task, root, out);
  if (!layout) {
    guess_arrays(task, out);
    return;
  }
  out->meaning = layout->meaning;
  out->train = source_text(layout, &(struct place){task, root, layout->train, layout->train}, out);
  if (layout->eval && out->is_found)
    out->eval = source_text(layout, &(struct place){task, root, layout->train, layout->eval}, out);
  write_transforms(task, layout, out);
}

void data_guess_fini(struct data_guess *guess) {
  free(guess->train);
  free(guess->eval);
  free(guess->transforms);
  free(guess->doubt);
  free(guess->notes);
  *guess = (struct data_guess){0};
}

char *data_guess_column(const struct task *task, int i) {
  char *name = column_name(task, i), *quoted = yaml_quoted(name);
  free(name);
  return quoted;
}

void data_guess_write_notes(const struct data_guess *guess, FILE *out, const char *before) {
  for (const char *note = guess->notes; note && *note; note = strchr(note, '\n') + 1)
    fprintf(out, "%s%.*s\n", before, (int)strcspn(note, "\n"), note);
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
    char *column = column_name(task, i), *name = yaml_quoted(column), *plain = array_file(column),
         *file = yaml_quoted(plain);
    fprintf(out, "%s%s: %s", i ? ", " : "", name, file);
    free(column);
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

/* Of the training data, and of the place's file where that is another one. */
static void find_csv(const struct place *place, struct csv_columns *train, struct csv_columns *eval) {
  int64_t features = task_input(place->task, 0)->shape.dim[1];
  char *train_path = mem_printf("%s/%s", place->root, place->train),
       *eval_path = mem_printf("%s/%s", place->root, place->file);
  *eval = (struct csv_columns){0};
  csv_columns_choose(train_path, features, train);
  if (place->file != place->train)
    csv_columns_match(eval_path, train, eval);
  free(train_path);
  free(eval_path);
}

static char *csv_misfit(const struct place *place) {
  struct csv_columns train, eval;
  char *misfit;
  find_csv(place, &train, &eval);
  misfit = eval.doubt;
  eval.doubt = NULL;
  csv_columns_fini(&train);
  csv_columns_fini(&eval);
  return misfit;
}

static void write_csv(FILE *out, const struct place *place, struct data_guess *guess) {
  bool is_train = place->file == place->train;
  struct csv_columns train, eval;
  char *input = data_guess_column(place->task, 0);
  find_csv(place, &train, &eval);
  if (is_train && train.doubt)
    guess->doubt = mem_printf("%s: %s", place->file, train.doubt);
  if (is_train && train.note)
    add_note(guess, mem_printf("%s: %s", place->file, train.note));
  fprintf(out, "file: %s, ", place->file);
  csv_columns_write(out, is_train ? &train : &eval, input);
  csv_columns_fini(&train);
  csv_columns_fini(&eval);
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
    {TASK_IMAGES, "images", "train", "val", true, write_images, NULL, CLASS_FOLDERS},
    {TASK_IMAGES, "images", "train", "test", false, write_images, NULL, CLASS_FOLDERS},
    {TASK_IMAGES, "images", "train", NULL, false, write_images, NULL, CLASS_FOLDERS},
    {TASK_IMAGES, "idx", "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz", false, write_idx, NULL,
     "MNIST's format"},
    {TASK_IMAGES, "idx", "train-images-idx3-ubyte", "t10k-images-idx3-ubyte", false, write_idx, NULL,
     "MNIST's format"},
    {TASK_IMAGES, "cifar", "data_batch_1.bin", "test_batch.bin", false, write_cifar, NULL,
     "CIFAR-10's binary files"},
    {TASK_IMAGES, "cifar", "train.bin", "test.bin", false, write_cifar, NULL, "CIFAR-100's binary files"},
    {TASK_TOKENS, "text", "train.txt", "val.txt", false, write_text, NULL, "text in UTF-8"},
    {TASK_TOKENS, "text", "train.txt", "test.txt", false, write_text, NULL, "text in UTF-8"},
    {TASK_TOKENS, "text", "train.txt", NULL, false, write_text, NULL, "text in UTF-8"},
    {TASK_TOKENS, "text", "input.txt", NULL, false, write_text, NULL, "text in UTF-8"},
    {TASK_TOKENS, "tokens", "train.bin", "val.bin", true, write_tokens, NULL,
     "numbers of tokens, little-endian"},
    {TASK_TOKENS, "tokens", "train.bin", NULL, false, write_tokens, NULL, "numbers of tokens, little-endian"},
    {TASK_TABLE, "csv", "train.csv", "val.csv", true, write_csv, csv_misfit, CSV_ROWS},
    {TASK_TABLE, "csv", "train.csv", "test.csv", false, write_csv, csv_misfit, CSV_ROWS},
    {TASK_TABLE, "csv", "train.csv", NULL, false, write_csv, NULL, CSV_ROWS},
    {0},
};

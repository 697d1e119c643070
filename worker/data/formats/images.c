/* images: a folder with a folder of images for each class, as torchvision.datasets.ImageFolder reads it:
   classes and files sorted by name, files in folders within a class's, too; what does not end in .jpg, .jpeg
   or .png is passed over. Columns: images, decoded when they are read, and labels. */
#include "worker/data/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "worker/data/formats/image.h"

enum { CLASSES_MAX = 1 << 20, FILES_MAX = 1 << 25, DEPTH_MAX = 8 };

struct file {
  char *path; /* below the folder: "CLASS/NAME" */
  uint64_t size_bytes;
  uint32_t label;
};

struct image_folder {
  struct data_folder *data;
  char *below;  /* where the classes' folders are, below data */
  char *folder; /* the same for messages */
  char **classes;
  int n_classes, classes_capacity;
  struct file *files;
  int n_files, files_capacity;
};

static void folder_free(struct image_folder *images) {
  for (int i = 0; i < images->n_classes; i++)
    free(images->classes[i]);
  for (int i = 0; i < images->n_files; i++)
    free(images->files[i].path);
  free(images->classes);
  free(images->files);
  free(images->below);
  free(images->folder);
  data_folder_put(images->data);
  free(images);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* By the folder, then by the name, as Python sorts what os.walk gives. */
static int compare_files(const void *a, const void *b) {
  const char *left = ((const struct file *)a)->path, *right = ((const struct file *)b)->path;
  const char *left_name = strrchr(left, '/'), *right_name = strrchr(right, '/');
  size_t left_length = (size_t)(left_name - left), right_length = (size_t)(right_name - right);
  size_t common = left_length < right_length ? left_length : right_length;
  int order = strncmp(left, right, common);
  if (order == 0 && left_length != right_length)
    return left_length < right_length ? -1 : 1;
  return order ? order : strcmp(left_name, right_name);
}

static bool is_image_name(const char *name) {
  static const char *const ends[] = {".jpg", ".jpeg", ".png"};
  size_t length = strlen(name);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (length >= strlen(ends[i]) && strcasecmp(name + length - strlen(ends[i]), ends[i]) == 0)
      return true;
  return false;
}

/* below: of the folder of classes; freed by the caller. */
static char *path_of(const struct image_folder *images, const char *below) {
  return mem_printf("%s/%s", images->below, below);
}

/* The next entry that is not the folder itself or the one above. NULL: the end, or the error. */
static const char *next_name(DIR *dir, const char *path, struct err *err) {
  struct dirent *entry;
  do {
    errno = 0;
    entry = readdir(dir);
  } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
  if (!entry && errno)
    err_errno(err, errno, "%s", path);
  return entry ? entry->d_name : NULL;
}

static int add_class(struct image_folder *images, const char *name, struct err *err) {
  if (images->n_classes == CLASSES_MAX)
    return err_set(err, ERR_UNSUPPORTED, "%s: more than %d classes", images->folder, CLASSES_MAX);
  array_reserve((void **)&images->classes, &images->classes_capacity, images->n_classes,
                sizeof *images->classes);
  images->classes[images->n_classes++] = mem_strdup(name);
  return 0;
}

static int entry_stat(const struct image_folder *images, const char *below, struct stat *status,
                      struct err *err) {
  char *path = path_of(images, below);
  int code = data_folder_stat(images->data, path, status, err);
  free(path);
  return code;
}

/* The names of the folders in it, sorted: the classes. */
static int list_classes(struct image_folder *images, struct err *err) {
  DIR *dir = data_folder_list(images->data, images->below, err);
  const char *name;
  struct stat status;
  int code = dir ? 0 : err->code;
  while (!code && (name = next_name(dir, images->folder, err))) {
    struct err unused = ERR_NONE; /* of what is no class */
    if (entry_stat(images, name, &status, &unused) == 0 && S_ISDIR(status.st_mode))
      code = add_class(images, name, err);
  }
  if (dir)
    closedir(dir);
  if (err->code)
    return err->code;
  if (images->n_classes == 0)
    return err_set(err, ERR_INVALID, "%s: holds no folder: each class has one", images->folder);
  qsort(images->classes, (size_t)images->n_classes, sizeof *images->classes, compare_names);
  return 0;
}

/* A folder of a class's images, or one within it. */
struct class_folder {
  const char *below; /* its path below the root */
  uint32_t label;    /* the class's number */
  int depth;
};

static int list_files(struct image_folder *images, const struct class_folder *folder, struct err *err);

/* What is neither an image nor a folder is passed over. Links are followed; the depth ends what goes round.
 */
static int add_entry(struct image_folder *images, const struct class_folder *folder, const char *name,
                     struct err *err) {
  const char *below = folder->below;
  struct stat status;
  struct err missing = ERR_NONE;
  char path[PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", below, name) >= sizeof path)
    return err_set(err, ERR_INVALID, "%s/%s: the path of '%.100s' is too long", images->folder, below, name);
  if (entry_stat(images, path, &status, &missing)) {
    if (is_image_name(name))
      *err = missing;
    return err->code;
  }
  if (S_ISDIR(status.st_mode))
    return folder->depth < DEPTH_MAX
               ? list_files(images, &(struct class_folder){path, folder->label, folder->depth + 1}, err)
               : err_set(err, ERR_INVALID, "%s/%s: more than %d folders within each other", images->folder,
                         path, DEPTH_MAX);
  if (!is_image_name(name) || !S_ISREG(status.st_mode))
    return 0;
  if (status.st_size == 0)
    return err_set(err, ERR_CORRUPT, "%s/%s: cut short: it is empty", images->folder, path);
  if (status.st_size > IMAGE_FILE_BYTES_MAX)
    return err_set(err, ERR_INVALID, "%s/%s: more than %d bytes", images->folder, path, IMAGE_FILE_BYTES_MAX);
  if (images->n_files == FILES_MAX)
    return err_set(err, ERR_UNSUPPORTED, "%s: more than %d images", images->folder, FILES_MAX);
  array_reserve((void **)&images->files, &images->files_capacity, images->n_files, sizeof *images->files);
  images->files[images->n_files++] = (struct file){mem_strdup(path), (uint64_t)status.st_size, folder->label};
  return 0;
}

static int list_files(struct image_folder *images, const struct class_folder *folder, struct err *err) {
  char *path = path_of(images, folder->below);
  DIR *dir = data_folder_list(images->data, path, err);
  const char *name;
  int code = dir ? 0 : err->code;
  while (!code && (name = next_name(dir, path, err)))
    code = add_entry(images, folder, name, err);
  if (dir)
    closedir(dir);
  free(path);
  return err->code;
}

/* Each class has at least one image, or its folder is not what somebody meant. */
static int list_images(struct image_folder *images, struct err *err) {
  for (int c = 0; c < images->n_classes; c++) {
    int before = images->n_files;
    if (list_files(images, &(struct class_folder){images->classes[c], (uint32_t)c, 0}, err))
      return err->code;
    if (images->n_files == before)
      return err_set(err, ERR_INVALID, "%s/%s: the folder of a class holds no .jpg, .jpeg or .png file",
                     images->folder, images->classes[c]);
    qsort(images->files + before, (size_t)(images->n_files - before), sizeof *images->files, compare_files);
  }
  return 0;
}

static int folder_open(struct data_folder *data, const Weir__DataSource *source, struct image_folder *images,
                       struct err *err) {
  char path[PATH_MAX];
  if (data_folder_name(data, source->folder, path, err))
    return err->code;
  images->data = data_folder_get(data);
  images->below = mem_strdup(source->folder);
  images->folder = mem_strdup(path);
  return list_classes(images, err);
}

/* Labels are numbers of classes: those of evaluation must mean what those of training mean. */
static int compare_classes(const struct format_source *source, const struct image_folder *images,
                           struct err *err) {
  struct image_folder *train;
  int c = 0;
  if (source->train == source->spec || strcmp(source->train->format, source->spec->format) != 0)
    return 0;
  train = mem_new(sizeof *train);
  if (folder_open(source->folder, source->train, train, err))
    goto out;
  while (c < train->n_classes && c < images->n_classes && strcmp(train->classes[c], images->classes[c]) == 0)
    c++;
  if (c < train->n_classes || c < images->n_classes)
    err_set(err, ERR_INVALID,
            "%s: its class %d is %s, that of %s is %s: the folders of classes must be the same",
            images->folder, c, c < images->n_classes ? images->classes[c] : "missing", train->folder,
            c < train->n_classes ? train->classes[c] : "missing");
out:
  folder_free(train);
  return err->code;
}

/* What is in the files is not hashed: there may be hundreds of gigabytes. Their names and sizes are. */
static void images_hash(const void *state, struct sha256 *sha) {
  const struct image_folder *images = state;
  for (int i = 0; i < images->n_files; i++) {
    const struct file *file = &images->files[i];
    sha256_update(sha, file->path, strlen(file->path) + 1);
    sha256_update(sha, &file->size_bytes, sizeof file->size_bytes);
  }
}

static const char *images_name(const void *state, uint64_t index) {
  return ((const struct image_folder *)state)->files[index].path;
}

static void images_release(void *state) {
  folder_free(state);
}

/* The file's bytes in SCRATCH_FILE; NULL and the error. Closes fd. */
static void *read_file(int fd, const char *path, size_t size, struct scratch *scratch, struct err *err) {
  char *bytes = scratch_get(scratch, SCRATCH_FILE, size + 1);
  size_t got = 0;
  ssize_t n = 1;
  while (bytes && n > 0 && got <= size) {
    n = read(fd, bytes + got, size + 1 - got);
    got += n > 0 ? (size_t)n : 0;
  }
  if (!bytes)
    err_set(err, ERR_NO_MEMORY, "%s: no memory for its %zu bytes", path, size);
  else if (n < 0)
    err_errno(err, errno, "%s", path);
  else if (got != size)
    err_set(err, ERR_CORRUPT, "%s: changed its size while it was in use", path);
  close(fd);
  return n < 0 || got != size ? NULL : bytes;
}

static int images_read(const void *state, uint64_t index, struct sample *sample, struct err *err) {
  const struct image_folder *images = state;
  const struct file *file = &images->files[index];
  char path[PATH_MAX], *below = path_of(images, file->path);
  int fd = data_folder_file(images->data, below, path, err);
  void *bytes;
  free(below);
  if (fd < 0 || !(bytes = read_file(fd, path, (size_t)file->size_bytes, sample->scratch, err)))
    return err->code;
  return image_decode(bytes, (size_t)file->size_bytes, sample, err) ? err_prefix(err, "%s", path) : 0;
}

static const struct column_source images_source = {images_read, images_name, images_hash, images_release};

static int make_labels(const struct image_folder *images, struct column *column, struct err *err) {
  int32_t *labels = malloc((size_t)images->n_files * sizeof *labels);
  *column = (struct column){.name = "labels", .dtype = DTYPE_I32, .samples = (uint64_t)images->n_files};
  if (!labels)
    return err_set(err, ERR_NO_MEMORY, "no memory for %d labels", images->n_files);
  for (int i = 0; i < images->n_files; i++)
    labels[i] = (int32_t)images->files[i].label;
  column->data = column->memory = labels;
  return 0;
}

static int images_open(const struct format_source *source, struct column *columns, int *n, struct err *err) {
  struct image_folder *images = mem_new(sizeof *images);
  columns[0] = (struct column){.name = "images",
                               .dtype = DTYPE_U8,
                               .sample = {3, {3, -1, -1}},
                               .source = &images_source,
                               .state = images};
  *n = 1;
  if (folder_open(source->folder, source->spec, images, err) || compare_classes(source, images, err) ||
      list_images(images, err))
    return err->code;
  columns[0].samples = (uint64_t)images->n_files;
  *n = 2;
  return make_labels(images, &columns[1], err);
}

const struct format_def format_images = {
    .name = "images",
    .required = (const char *const[]){"folder", NULL},
    .optional = (const char *const[]){NULL},
    .open = images_open,
};

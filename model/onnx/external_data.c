/* Files beside an ONNX file that hold data of its tensors. */
#include "model/onnx/external_data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

struct external_file {
  char *location; /* as the model has it */
  char *path;
  int fd;
  uint64_t size_bytes; /* when it was opened */
};

struct piece_at {
  char key[SHA256_HEX_SIZE];
  struct external_range range;
};

struct external_data {
  char *model_path;
  struct external_file *files;
  int n_files, files_capacity;
  struct piece_at *pieces;
  size_t n_pieces, pieces_capacity;
  bool is_sorted;
};

/* What a tensor says of its data. length < 0: to the file's end. */
struct entries {
  const char *location;
  int64_t offset, length;
};

struct external_data *external_data_new(const char *model_path) {
  struct external_data *external = mem_new(sizeof *external);
  external->model_path = mem_strdup(model_path);
  return external;
}

void external_data_free(struct external_data *external) {
  if (!external)
    return;
  for (int f = 0; f < external->n_files; f++) {
    close(external->files[f].fd);
    free(external->files[f].location);
    free(external->files[f].path);
  }
  free(external->files);
  free(external->pieces);
  free(external->model_path);
  free(external);
}

bool tensor_is_external(const Onnx__TensorProto *tensor) {
  return tensor->has_data_location && tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static bool leaves_folder(const char *location) {
  const char *at = location;
  if (*at == '/')
    return true;
  for (; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
    if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == 0))
      return true;
  return false;
}

static bool read_count(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int entries_read(const char *model_path, const Onnx__TensorProto *tensor, struct entries *out,
                        struct err *err) {
  const char *name = tensor->name ? tensor->name : "";
  *out = (struct entries){.length = -1};
  for (size_t i = 0; i < tensor->n_external_data; i++) {
    const char *key = tensor->external_data[i]->key, *value = tensor->external_data[i]->value;
    bool is_right = true;
    if (!key || !value)
      continue;
    if (strcmp(key, "location") == 0)
      out->location = value;
    else if (strcmp(key, "offset") == 0)
      is_right = read_count(value, &out->offset);
    else if (strcmp(key, "length") == 0)
      is_right = read_count(value, &out->length);
    if (!is_right)
      return err_set(err, ERR_INVALID,
                     "%s: tensor '%.100s': the %s of its external data is '%.40s', not a number", model_path,
                     name, key, value);
  }
  if (!out->location || !*out->location || leaves_folder(out->location))
    return err_set(err, ERR_INVALID, "%s: tensor '%.100s' has its data outside the model's folder: '%.200s'",
                   model_path, name, out->location ? out->location : "");
  return 0;
}

static int file_errno(const char *path, int error, struct err *err) {
  err_errno(err, error, "%s", path);
  return err->code = error == ENOENT ? ERR_NOT_FOUND : ERR_IO;
}

/* A link may lead anywhere. */
static int check_place(const char *folder, const char *path, struct err *err) {
  char *real_folder = realpath(*folder ? folder : ".", NULL), *real = realpath(path, NULL);
  size_t length = real_folder ? strlen(real_folder) : 0;
  if (!real || !real_folder)
    file_errno(path, errno, err);
  else if (strncmp(real, real_folder, length) != 0 || (real[length] != '/' && length > 1))
    err_set(err, ERR_INVALID, "%s is a link that leads outside the model's folder, to %s", path, real);
  free(real_folder);
  free(real);
  return err->code;
}

static int file_open(struct external_data *external, const char *location, int *out, struct err *err) {
  const char *slash = strrchr(external->model_path, '/');
  int folder_length = slash ? (int)(slash - external->model_path + 1) : 0;
  char *folder = mem_printf("%.*s", folder_length, external->model_path);
  struct external_file file = {.path = mem_printf("%s%s", folder, location)};
  struct stat info = {0};
  check_place(folder, file.path, err);
  free(folder);
  /* A pipe is not waited for. */
  file.fd = err->code ? -1 : open(file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (!err->code && (file.fd < 0 || fstat(file.fd, &info)))
    file_errno(file.path, errno, err);
  else if (!err->code && S_ISDIR(info.st_mode))
    file_errno(file.path, EISDIR, err);
  else if (!err->code && !S_ISREG(info.st_mode))
    err_set(err, ERR_INVALID, "%s: is not a file but a pipe or a device", file.path);
  if (err->code) {
    if (file.fd >= 0)
      close(file.fd);
    free(file.path);
    return err->code;
  }
  file.size_bytes = (uint64_t)info.st_size;
  file.location = mem_strdup(location);
  array_reserve((void **)&external->files, &external->files_capacity, external->n_files,
                sizeof *external->files);
  *out = external->n_files;
  external->files[external->n_files++] = file;
  return 0;
}

int external_data_find(struct external_data *external, const Onnx__TensorProto *tensor,
                       struct external_range *out, struct err *err) {
  const char *name = tensor->name ? tensor->name : "";
  const struct external_file *file;
  struct entries entries;
  uint64_t offset, length;
  int f = 0;
  if (entries_read(external->model_path, tensor, &entries, err))
    return err->code;
  while (f < external->n_files && strcmp(external->files[f].location, entries.location) != 0)
    f++;
  if (f == external->n_files && file_open(external, entries.location, &f, err))
    return err_prefix(err, "%s: tensor '%.100s'", external->model_path, name);
  file = &external->files[f];
  offset = (uint64_t)entries.offset;
  length = entries.length < 0 ? file->size_bytes - offset : (uint64_t)entries.length;
  if (offset > file->size_bytes || length > file->size_bytes - offset)
    return err_set(err, ERR_INVALID,
                   "%s: tensor '%.100s': %s: cut short: %lld bytes at %lld are wanted, it has %llu",
                   external->model_path, name, file->path, (long long)entries.length,
                   (long long)entries.offset, (unsigned long long)file->size_bytes);
  *out = (struct external_range){f, offset, length};
  return 0;
}

int external_data_read(const struct external_data *external, struct external_range range, void *to,
                       struct err *err) {
  const struct external_file *file = &external->files[range.file];
  for (uint64_t at = 0; at < range.size_bytes;) {
    ssize_t got = pread(file->fd, (char *)to + at, range.size_bytes - at, (off_t)(range.offset + at));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return file_errno(file->path, errno, err);
    if (got == 0)
      return err_set(err, ERR_INVALID, "%s: has become shorter than %llu bytes while it was read", file->path,
                     (unsigned long long)(range.offset + range.size_bytes));
    at += (uint64_t)got;
  }
  return 0;
}

static void piece_add(struct external_data *external, const struct piece_at *piece) {
  if (external->n_pieces == external->pieces_capacity) {
    external->pieces_capacity = 2 * external->pieces_capacity + 16;
    external->pieces = mem_resize(external->pieces, external->pieces_capacity * sizeof *external->pieces);
  }
  external->pieces[external->n_pieces++] = *piece;
}

int external_data_add_pieces(struct external_data *external, struct external_range range,
                             const struct pieces *pieces, char **keys, struct err *err) {
  size_t key_length = SHA256_HEX_SIZE - 1;
  char *bytes = mem_new(PIECE_BYTES_MAX);
  *keys = mem_new(pieces->n * key_length + 1);
  for (uint32_t i = 0; i < pieces->n && !err->code; i++) {
    struct piece_at piece = {.range = {range.file, range.offset, pieces_bytes(pieces, i)}};
    if (external_data_read(external, piece.range, bytes, err))
      break;
    sha256_hex(bytes, piece.range.size_bytes, piece.key);
    memcpy(*keys + i * key_length, piece.key, key_length);
    piece_add(external, &piece);
    range.offset += piece.range.size_bytes;
  }
  external->is_sorted = false;
  free(bytes);
  if (err->code) {
    free(*keys);
    *keys = NULL;
  }
  return err->code;
}

bool external_data_has_pieces(const struct external_data *external) {
  return external->n_pieces > 0;
}

static int compare_keys(const void *a, const void *b) {
  return strcmp(((const struct piece_at *)a)->key, ((const struct piece_at *)b)->key);
}

static int read_piece(const struct external_data *external, const struct piece_read *read, struct err *err) {
  struct piece_at wanted = {.range = {0}};
  const struct piece_at *found = NULL;
  char sha256[SHA256_HEX_SIZE];
  memcpy(wanted.key, read->key, sizeof wanted.key);
  if (external->n_pieces)
    found = bsearch(&wanted, external->pieces, external->n_pieces, sizeof wanted, compare_keys);
  if (!found || found->range.size_bytes != read->size_bytes)
    return err_set(err, ERR_NOT_FOUND, "%s has no piece %s", external->model_path, read->key);
  if (external_data_read(external, found->range, read->to, err))
    return err->code;
  sha256_hex(read->to, read->size_bytes, sha256);
  if (strcmp(sha256, read->key) != 0)
    return err_set(err, ERR_INVALID, "%s: its bytes from %llu to %llu have changed since it was read first",
                   external->files[found->range.file].path, (unsigned long long)found->range.offset,
                   (unsigned long long)(found->range.offset + found->range.size_bytes));
  return 0;
}

int external_data_read_pieces(void *user, const struct piece_read *reads, int n, struct err *err) {
  struct external_data *external = user;
  if (!external->is_sorted && external->n_pieces)
    qsort(external->pieces, external->n_pieces, sizeof *external->pieces, compare_keys);
  external->is_sorted = true;
  for (int i = 0; i < n; i++)
    if (read_piece(external, &reads[i], err))
      return err->code;
  return 0;
}

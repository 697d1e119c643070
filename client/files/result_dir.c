/* The folder that `weir train` leaves its results in. */
#include "client/files/result_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

/* What a run leaves. */
static const char *const leftovers[] = {"spec.yaml",
                                        "metrics.jsonl",
                                        "model.onnx",
                                        "model.safetensors",
                                        "model.average.onnx",
                                        "model.average.safetensors",
                                        "store",
                                        "logs",
                                        "run"};

static int check_removal(const char *leftover, const struct stat *status, bool is_a_runs,
                         const char *const *inputs, struct err *err);
static bool has_run(const char *path);
static bool has_results(const char *path);
static int folder_open(const char *path, char **absolute, struct err *err);
static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *place);

int result_dir_make(const char *path, bool is_forced, const char *const *inputs, char **absolute,
                    struct err *err) {
  bool is_a_runs = has_run(path);
  if (!path[0])
    return err_set(err, ERR_INVALID, "the name of the folder for the results is empty");
  if (!is_forced && is_a_runs && has_results(path))
    return err_set(
        err, ERR_EXISTS,
        "'%s' already holds a run: pass --resume to go on with it, --force to replace it, or another "
        "--out DIR",
        path);
  for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
    char *leftover = mem_printf("%s/%s", path, leftovers[i]);
    struct stat status;
    if (stat(leftover, &status) == 0)
      check_removal(leftover, &status, is_a_runs, inputs, err);
    free(leftover);
    if (err->code)
      return err->code;
  }
  for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
    char *leftover = mem_printf("%s/%s", path, leftovers[i]);
    if (access(leftover, F_OK) == 0)
      result_dir_remove(leftover, err);
    free(leftover);
    if (err->code)
      return err->code;
  }
  return folder_open(path, absolute, err);
}

/* Nobody's work is lost for the sake of a name. */
static int check_removal(const char *leftover, const struct stat *status, bool is_a_runs,
                         const char *const *inputs, struct err *err) {
  struct stat input;
  if (!is_a_runs)
    return err_set(err, ERR_EXISTS, "'%s' is there, and no run left it: give another --out DIR", leftover);
  for (; *inputs; inputs++)
    if (stat(*inputs, &input) == 0 && input.st_dev == status->st_dev && input.st_ino == status->st_ino)
      return err_set(
          err, ERR_EXISTS,
          "'%s' is what is to be trained, and would be removed: copy it elsewhere, or give another "
          "--out DIR",
          leftover);
  return ERR_OK;
}

/* The folder's file `run` is one of a run: JSON, or what a power cut left of it. */
static bool has_run(const char *path) {
  char *name = mem_printf("%s/run", path), first = '{';
  int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status;
  bool is_one = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && read(fd, &first, 1) >= 0 &&
                (first == '{' || first == '\0');
  if (fd >= 0)
    close(fd);
  free(name);
  return is_one;
}

int result_dir_reopen(const char *path, char **absolute, struct err *err) {
  char *run = mem_printf("%s/run", path);
  bool is_there = access(run, F_OK) == 0;
  free(run);
  if (!is_there)
    return err_set(err, ERR_INVALID, "'%s' holds no run to resume: leave out --resume to begin one", path);
  return folder_open(path, absolute, err);
}

/* With its parents and its logs. */
static int folder_open(const char *path, char **absolute, struct err *err) {
  char *logs = mem_printf("%s/logs", path);
  result_dir_make_folder(logs, err);
  free(logs);
  if (err->code)
    return err->code;
  *absolute = realpath(path, NULL);
  return *absolute ? ERR_OK : err_errno(err, errno, "cannot use the folder '%s'", path);
}

/* True if a run got as far as its first step here. What one that was refused before left is worth nothing. */
static bool has_results(const char *path) {
  char *metrics = mem_printf("%s/metrics.jsonl", path), *model = mem_printf("%s/model.onnx", path);
  struct stat status;
  bool found = (stat(metrics, &status) == 0 && status.st_size > 0) || access(model, F_OK) == 0;
  free(metrics);
  free(model);
  return found;
}

int result_dir_make_folder(const char *path, struct err *err) {
  char *part = mem_strdup(path);
  for (char *slash = part + 1; err->code == ERR_OK && (slash = strchrnul(slash, '/')) != NULL; slash++) {
    bool is_last = *slash == '\0';
    *slash = '\0';
    if (mkdir(part, 0777) && errno != EEXIST)
      err_errno(err, errno, "cannot make the folder '%s'", part);
    if (is_last)
      break;
    *slash = '/';
  }
  free(part);
  return err->code;
}

int result_dir_remove(const char *path, struct err *err) {
  if (nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT))
    return err_errno(err, errno, "cannot remove '%s'", path);
  return ERR_OK;
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status;
  (void)kind;
  (void)place;
  return remove(path);
}

int result_dir_copy(const char *from, const char *to, struct err *err) {
  int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
  ssize_t n = 1;
  if (in < 0)
    return err_errno(err, errno, "cannot read '%s'", from);
  out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  while (out >= 0 && n > 0)
    n = sendfile(out, in, NULL, 1 << 20);
  if (out < 0 || n < 0)
    err_errno(err, errno, "cannot write '%s'", to);
  if (out >= 0)
    close(out);
  close(in);
  return err->code;
}

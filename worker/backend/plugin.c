/* Finding and loading weir-cuda.so. */
#include "worker/backend/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_id.h"
#include "common/agree/float_setting.h"
#include "common/base/memory.h"

static const char plugin_file[] = "weir-cuda.so";

/* What to do about a library that is missing or too old. */
static const struct {
  const char *library, *remedy;
} remedies[] = {
    {"libcuda.so", "install the NVIDIA driver, of series 580 or later"},
    {"libcudart.so", "install CUDA Toolkit 13, or add the folder of its libraries to LD_LIBRARY_PATH"},
    {"libcublas", "install CUDA Toolkit 13, or add the folder of its libraries to LD_LIBRARY_PATH"},
    {"libcudnn", "install cuDNN 9 for CUDA 13, or add its folder to LD_LIBRARY_PATH"},
    {"libnccl.so", "install NCCL 2.28 or later, or add its folder to LD_LIBRARY_PATH"},
};

static struct {
  pthread_once_t once;
  const struct plugin *plugin; /* NULL: err says why */
  struct err err;
} loaded = {.once = PTHREAD_ONCE_INIT};

static void plugin_load_once(void);
static char *named_path(const char *named);
static int driver_check(struct err *err);
static char *plugin_path(void);
static const struct plugin *plugin_open(const char *path, struct err *err);
static int plugin_check(const struct plugin *plugin, const char *path, struct err *err);

const struct plugin *plugin_load(struct err *err) {
  pthread_once(&loaded.once, plugin_load_once);
  if (!loaded.plugin)
    *err = loaded.err;
  return loaded.plugin;
}

const struct backend_def *plugin_backend(const char *name, struct err *err) {
  const struct backend_def *builtin = backend_find(name);
  const struct plugin *plugin;
  if (builtin)
    return builtin;
  if (strcmp(name, PLUGIN_BACKEND) != 0) {
    err_set(err, ERR_NOT_FOUND, "there is no backend '%s'", name);
    return NULL;
  }
  plugin = plugin_load(err);
  return plugin && plugin->devices(NULL, 0, err) > 0 ? plugin->backend : NULL;
}

static void plugin_load_once(void) {
  const char *named = getenv("WEIR_CUDA");
  bool is_named = named && *named;
  char *path = is_named ? named_path(named) : plugin_path();
  if (!path)
    err_set(&loaded.err, ERR_NOT_FOUND,
            "there is no %s beside this program, in ../lib/weir or in ../lib: install it there, or name it "
            "in WEIR_CUDA",
            plugin_file);
  else if (is_named || driver_check(&loaded.err) == 0)
    loaded.plugin = plugin_open(path, &loaded.err);
  if (loaded.plugin)
    loaded.plugin->attach(trace_sink());
  free(path);
}

/* Freed by the caller. The plugin need not be there. */
static char *named_path(const char *named) {
  return strchr(named, '/') ? mem_strdup(named)
                            : mem_printf("./%s", named); /* dlopen looks for a bare name elsewhere */
}

/* CUDA's libraries take a tenth of a second to load, which a machine without a driver is spared. */
static int driver_check(struct err *err) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver)
    return err_set(err, ERR_UNAVAILABLE, "%s", PLUGIN_NO_DRIVER);
  dlclose(driver);
  return ERR_OK;
}

/* Freed by the caller; NULL: there is none. */
static char *plugin_path(void) {
  static const char *const folders[] = {"", "../lib/weir/", "../lib/"};
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *slash;
  self[length > 0 ? length : 0] = '\0';
  slash = strrchr(self, '/');
  if (!slash)
    return NULL;
  slash[1] = '\0';
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char *path = mem_printf("%s%s%s", self, folders[i], plugin_file);
    if (access(path, F_OK) == 0)
      return path;
    free(path);
  }
  return NULL;
}

/* dlerror begins with the library that it is about. */
static const char *remedy_of(const char *text) {
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
    if (strstr(text, remedies[i].library))
      return remedies[i].remedy;
  return NULL;
}

/* A library that was cut off, as by a full disk: dlopen would map what is not there and die of it. Linkers
   put the section headers last. */
static bool is_cut_off(const char *path) {
  Elf64_Ehdr head;
  struct stat file;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool is_elf = fd >= 0 && read(fd, &head, sizeof head) == (ssize_t)sizeof head && fstat(fd, &file) == 0 &&
                memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64;
  if (fd >= 0)
    close(fd);
  return is_elf && (head.e_shoff > (uint64_t)file.st_size ||
                    (uint64_t)head.e_shnum * head.e_shentsize > (uint64_t)file.st_size - head.e_shoff);
}

/* It stays loaded: what it registered with the libraries that it loads cannot be taken back. */
static const struct plugin *plugin_open(const char *path, struct err *err) {
  const struct plugin *plugin;
  struct stat file;
  void *library;
  char *quoted;
  int code;
  if (stat(path, &file)) {
    err_errno(err, errno, "WEIR_CUDA names '%s'", path);
    err->code = ERR_NOT_FOUND;
    return NULL;
  }
  if (!S_ISREG(file.st_mode)) { /* a pipe would be waited for */
    err_set(err, ERR_UNAVAILABLE, "'%s' is not a file", path);
    return NULL;
  }
  if (is_cut_off(path)) {
    err_set(err, ERR_UNAVAILABLE, "'%s' is cut off: install it again", path);
    return NULL;
  }
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *text = dlerror(), *remedy = remedy_of(text);
    err_set(err, ERR_UNAVAILABLE, "'%s' cannot be loaded: %s%s%s", path, text, remedy ? ": " : "",
            remedy ? remedy : "");
    return NULL;
  }
  quoted = mem_printf("'%s'", path);
  code = float_setting_check(quoted, err);
  free(quoted);
  plugin = dlsym(library, PLUGIN_SYMBOL);
  if (!code && plugin_check(plugin, path, err) == 0)
    return plugin;
  dlclose(library);
  return NULL;
}

static int plugin_check(const struct plugin *plugin, const char *path, struct err *err) {
  if (!plugin)
    return err_set(err, ERR_UNAVAILABLE, "'%s' is no plugin of Weir's: it exports no %s", path,
                   PLUGIN_SYMBOL);
  if (plugin->abi != PLUGIN_ABI)
    return err_set(err, ERR_UNAVAILABLE,
                   "'%s' is of another version (interface %u, this program has %d): install both from one "
                   "build",
                   path, plugin->abi, PLUGIN_ABI);
  if (strcmp(plugin->build, WEIR_BUILD) != 0)
    return err_set(err, ERR_UNAVAILABLE,
                   "'%s' is of build %s, this program of build %s: install both from one build", path,
                   plugin->build, WEIR_BUILD);
  return ERR_OK;
}

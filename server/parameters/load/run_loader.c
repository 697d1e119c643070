/* Loading of runs. */
#include "server/parameters/load/run_loader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/message.h"
#include "common/base/log.h"
#include "common/rpc/model_fetch.h"
#include "server/parameters/load/adopt.h"
#include "server/parameters/load/restore.h"

enum { REACH_DEADLINE_MS = 2000, REACH_PAUSE_MS = 200 };

struct load {
  Weir__LoadRun *order;
  char *own_id;
  struct rpc_channel *coordinator;
  uint64_t membership;
  uint64_t ordered_ns;
  struct load *next;
};

struct run_loader {
  struct run_loader_options options;
  struct model_fetch fetch;
  struct opened_models models; /* the thread's own */
  pthread_t thread;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct load *first, **last;
  const struct load *present; /* the one under way */
  bool is_cancelled;          /* it is */
  bool is_stopping;
  char identity[STORE_IDENTITY_SIZE]; /* the thread's own: of the store; empty until it was read */
};

static void *run_loader_main(void *argument);

struct run_loader *run_loader_new(const struct run_loader_options *options) {
  struct run_loader *loader = mem_new(sizeof *loader);
  loader->options = *options;
  loader->last = &loader->first;
  model_fetch_init(&loader->fetch);
  pthread_mutex_init(&loader->lock, NULL);
  clock_condition_init(&loader->changed);
  CHECK(pthread_create(&loader->thread, NULL, run_loader_main, loader) == 0);
  return loader;
}

void run_loader_stop(struct run_loader *loader) {
  run_loader_cancel(loader, NULL);
  pthread_mutex_lock(&loader->lock);
  loader->is_stopping = true;
  pthread_cond_broadcast(&loader->changed);
  pthread_mutex_unlock(&loader->lock);
  pthread_join(loader->thread, NULL);
  run_loader_cancel(loader, NULL);
}

void run_loader_free(struct run_loader *loader) {
  if (!loader)
    return;
  model_fetch_fini(&loader->fetch);
  opened_models_fini(&loader->models);
  pthread_cond_destroy(&loader->changed);
  pthread_mutex_destroy(&loader->lock);
  free(loader);
}

static void load_free(struct load *load) {
  message_free(load->order);
  free(load->own_id);
  free(load);
}

void run_loader_add(struct run_loader *loader, const Weir__LoadRun *order, const char *own_id,
                    struct rpc_channel *coordinator, uint64_t membership) {
  struct load *load = mem_new(sizeof *load);
  *load = (struct load){.order = message_copy(order),
                        .own_id = mem_strdup(own_id),
                        .coordinator = coordinator,
                        .membership = membership,
                        .ordered_ns = clock_now_ns()};
  pthread_mutex_lock(&loader->lock);
  if (!loader->is_stopping) {
    *loader->last = load;
    loader->last = &load->next;
    load = NULL;
    pthread_cond_broadcast(&loader->changed);
  }
  pthread_mutex_unlock(&loader->lock);
  if (load)
    load_free(load);
}

void run_loader_cancel(struct run_loader *loader, const char *run) {
  struct load **link, *load;
  pthread_mutex_lock(&loader->lock);
  for (link = &loader->first; (load = *link);) {
    if (run && strcmp(load->order->run, run) != 0) {
      link = &load->next;
      continue;
    }
    *link = load->next;
    load_free(load);
  }
  loader->last = link;
  if (loader->present && (!run || strcmp(loader->present->order->run, run) == 0)) {
    loader->is_cancelled = true;
    model_fetch_cancel(&loader->fetch, true);
    pthread_cond_broadcast(&loader->changed);
  }
  pthread_mutex_unlock(&loader->lock);
}

/* False: cancelled. */
static bool loader_pause(void *user, int pause_ms) {
  struct run_loader *loader = user;
  struct timespec until = clock_after_ms(pause_ms);
  bool is_cancelled;
  pthread_mutex_lock(&loader->lock);
  while (!loader->is_cancelled && pthread_cond_timedwait(&loader->changed, &loader->lock, &until) == 0)
    continue;
  is_cancelled = loader->is_cancelled;
  pthread_mutex_unlock(&loader->lock);
  return !is_cancelled;
}

/* A run whose servers cannot exchange sums would stand still at its first step. */
static int load_reach_keeper(struct run_loader *loader, const struct hosted_run *run, struct err *err) {
  const struct sums_route *keeper = run->exchange->keeper;
  uint64_t begin_ns = clock_now_ns();
  while (keeper && sums_client_reach(keeper, REACH_DEADLINE_MS, err)) {
    if (clock_now_ns() - begin_ns > (uint64_t)loader->options.keeper_patience_ms * 1000000)
      return err_prefix(err, "the server that keeps the sums of its updates cannot be reached from this one");
    if (!loader_pause(loader, REACH_PAUSE_MS))
      return err_set(err, ERR_CANCELLED, "the run was taken back while it was loaded");
  }
  return 0;
}

/* What load_fetch gets. */
struct wanted_file {
  struct run_loader *loader;
  const struct load *load;
};

static int load_fetch(void *user, struct fetched_model *file, struct err *err) {
  const struct wanted_file *wanted = user;
  const struct load *load = wanted->load;
  return model_fetch_run(&wanted->loader->fetch, load->coordinator, load->order, file, err);
}

static int load_make_run(struct run_loader *loader, const struct load *load, struct run_loaded *loaded) {
  struct piece_fetch pieces = {&loader->fetch, load->coordinator, load->order->run, load->order->ticket};
  struct wanted_file file = {loader, load};
  struct run_setup setup = {.order = load->order,
                            .own_id = load->own_id,
                            .models = &loader->models,
                            .fetch = load_fetch,
                            .fetch_user = &file,
                            .pieces = &(struct piece_source){piece_fetch_read, &pieces},
                            .shards = loader->options.shards,
                            .n_shards = loader->options.n_shards,
                            .sums_client = loader->options.sums_client,
                            .tell = loader->options.tell,
                            .user = loader->options.user};
  int code = hosted_run_new(&setup, &loaded->run, &loaded->err);
  loaded->is_bad_input = code == ERR_INVALID || code == ERR_UNSUPPORTED;
  if (!code && (code = load_reach_keeper(loader, loaded->run, &loaded->err))) {
    hosted_run_put(loaded->run);
    loaded->run = NULL;
  }
  return code;
}

/* Before anything is read from the store or written to it. What was seen once holds: the store does not
   change while we run. */
static int load_check_store(struct run_loader *loader, const struct restore *restore, const struct load *load,
                            struct run_loaded *loaded) {
  const char *expected = load->order->store_identity;
  char found[STORE_IDENTITY_SIZE] = "", *url;
  int code = 0;
  if (!*expected || strcmp(loader->identity, expected) == 0)
    return 0;
  if (restore->store)
    code = restore_identity(restore, found, &loaded->err);
  if (code && code != ERR_NOT_FOUND && code != ERR_CORRUPT)
    return code;
  if (!code && strcmp(found, expected) == 0) {
    memcpy(loader->identity, found, sizeof found);
    return 0;
  }
  loaded->is_wrong_store = true;
  if (!restore->store)
    return err_set(&loaded->err, ERR_INVALID, "this server has no store: it was started without --store");
  url = store_url_redacted(loader->options.store_url ? loader->options.store_url : "its --store");
  err_set(&loaded->err, ERR_INVALID, "this server's store, %.300s, is not the coordinator's: %s", url,
          *found ? "its record store/identity differs" : "it has not its record store/identity");
  free(url);
  return loaded->err.code;
}

static int load_blocks(struct run_loader *loader, const struct restore *restore,
                       const Weir__Manifest *manifest, struct run_loaded *loaded) {
  const Weir__ForkSource *from = loaded->order->from;
  struct hosted_run *run = loaded->run;
  uint32_t n_adopted = from ? adopt_blocks(loader->options.runs, run, manifest, from) : 0;
  struct restored restored;
  int code = restore_blocks(restore, run, manifest, &restored, &loaded->err);
  if (!code)
    log_event(LOG_INFO, "parameters", "run_restored",
              "run=%s step=%llu parent=%.60s adopted=%u read=%u read_bytes=%llu", run->id,
              (unsigned long long)run->base_step, from ? from->run : "-", n_adopted, restored.n_blocks,
              (unsigned long long)restored.bytes);
  return code;
}

/* The manifest first: it is small, and without it the rest is in vain. */
static int load_run(struct run_loader *loader, const struct load *load, struct run_loaded *loaded) {
  struct restore restore = {.store = loader->options.store,
                            .patience_ms = loader->options.store_patience_ms,
                            .pause = loader_pause,
                            .user = loader};
  Weir__Manifest *manifest = NULL;
  int code = load_check_store(loader, &restore, load, loaded);
  if (code)
    return code;
  if (!*load->order->manifest)
    return load_make_run(loader, load, loaded);
  if (!restore.store)
    return err_set(&loaded->err, ERR_INVALID, "this server has no store: it was started without --store");
  code = restore_manifest(&restore, load->order, &manifest, &loaded->err);
  loaded->is_lost_checkpoint = code == ERR_NOT_FOUND || code == ERR_CORRUPT;
  if (!code)
    code = load_make_run(loader, load, loaded);
  if (!code) {
    code = load_blocks(loader, &restore, manifest, loaded);
    loaded->is_lost_checkpoint = code == ERR_NOT_FOUND || code == ERR_CORRUPT;
  }
  if (code) {
    hosted_run_put(loaded->run);
    loaded->run = NULL;
  }
  message_free(manifest);
  return code;
}

/* Called and left with the lock held. */
static void loader_serve(struct run_loader *loader) {
  struct load *load = loader->first;
  struct run_loaded loaded = {
      .membership = load->membership, .order = load->order, .ordered_ns = load->ordered_ns, .err = ERR_NONE};
  loader->first = load->next;
  if (!loader->first)
    loader->last = &loader->first;
  loader->present = load;
  loader->is_cancelled = false;
  model_fetch_cancel(&loader->fetch, false);
  pthread_mutex_unlock(&loader->lock);
  load_run(loader, load, &loaded);
  pthread_mutex_lock(&loader->lock);
  loader->present = NULL;
  if (loader->is_cancelled)
    hosted_run_put(loaded.run);
  else
    loader->options.done(loader->options.user, &loaded);
  load_free(load);
}

static void *run_loader_main(void *argument) {
  struct run_loader *loader = argument;
  float_setting_require("loader");
  pthread_mutex_lock(&loader->lock);
  while (!loader->is_stopping) {
    if (loader->first)
      loader_serve(loader);
    else
      pthread_cond_wait(&loader->changed, &loader->lock);
  }
  pthread_mutex_unlock(&loader->lock);
  return NULL;
}

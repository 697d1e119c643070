/* Checkpoints and runs as records: names, messages, what makes a manifest complete. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/base/message.h"
#include "common/base/unpack.h"
#include "common/modes/mode.h"
#include "storage/checkpoint/checkpoint_parts.h"

enum { KEY_LENGTH = 64, STEP_DIGITS = 20, MATCHES_SHOWN = 5 };

static int manifest_check(const Weir__Manifest *manifest, const char *name, struct err *err);
static int pick_run(struct store *store, const struct store_names *names, const char *prefix,
                    char id[RUN_ID_MAX + 1], struct err *err);

char *checkpoint_name(const char *run, uint64_t step) {
  return mem_printf("runs/%s/checkpoints/%020" PRIu64, run, step);
}

char *checkpoint_run_name(const char *run, const char *which) {
  return mem_printf("runs/%s/%s", run, which);
}

bool checkpoint_is_key(const char *text) {
  return strlen(text) == KEY_LENGTH && strspn(text, "0123456789abcdef") == KEY_LENGTH;
}

bool checkpoint_is_run_id(const char *text) {
  size_t length = strlen(text);
  return length > 0 && length <= RUN_ID_MAX &&
         strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

bool checkpoint_parse_name(const char *name, struct record_place *place) {
  static const char top[] = "runs/", manifests[] = "checkpoints/";
  const char *run = name + strlen(top), *slash;
  char *end;
  *place = (struct record_place){0};
  if (strncmp(name, top, strlen(top)) || !(slash = strchr(run, '/')) || slash - run > RUN_ID_MAX)
    return false;
  memcpy(place->run, run, (size_t)(slash - run));
  if (!checkpoint_is_run_id(place->run))
    return false;
  if (strcmp(slash + 1, "run") == 0)
    return true;
  if (strncmp(slash + 1, manifests, strlen(manifests)))
    return false;
  slash += strlen(manifests);
  if (strlen(slash + 1) != STEP_DIGITS || strspn(slash + 1, "0123456789") != STEP_DIGITS)
    return false;
  place->is_manifest = true;
  place->step = strtoull(slash + 1, &end, 10);
  return true;
}

int checkpoint_read_record(struct store *store, const char *name, const ProtobufCMessageDescriptor *type,
                           void **message, struct err *err) {
  void *data;
  size_t size;
  *message = NULL;
  if (store_get_record(store, name, &data, &size, err))
    return err->code;
  *message = message_unpack(type, data, size, err);
  free(data);
  if (*message)
    return 0;
  err_prefix(err, "store: record %s", name);
  return err->code = ERR_CORRUPT;
}

int checkpoint_write_record(struct store *store, const char *name, const void *message,
                            const struct store_record *guard, struct err *err) {
  size_t size = protobuf_c_message_get_packed_size(message);
  uint8_t *packed = mem_new(size);
  int rc;
  protobuf_c_message_pack(message, packed);
  rc = store_put_record(store, &(struct store_record){name, packed, size, guard}, err);
  free(packed);
  return rc;
}

int checkpoint_read(struct store *store, const char *name, Weir__Manifest **manifest, struct err *err) {
  int rc = checkpoint_read_record(store, name, &weir__manifest__descriptor, (void **)manifest, err);
  if (!rc)
    rc = manifest_check(*manifest, name, err);
  if (rc == 0)
    return 0;
  message_free(*manifest);
  *manifest = NULL;
  return rc;
}

static int record_damaged(const char *name, struct err *err, const char *what) {
  return err_set(err, ERR_CORRUPT, "store: record %s is damaged: %s", name, what);
}

/* Also gives its spec the defaults that readers rely on. */
static int manifest_check(const Weir__Manifest *manifest, const char *name, struct err *err) {
  struct record_place place;
  if (!checkpoint_parse_name(name, &place) || !place.is_manifest)
    return err_set(err, ERR_INVALID, "store: '%.100s' is not the name of a checkpoint", name);
  if (strcmp(manifest->run, place.run) || manifest->step != place.step)
    return record_damaged(name, err, "it is another checkpoint's");
  if (!manifest->spec)
    return record_damaged(name, err, "it has no spec");
  if (spec_check(manifest->spec, err)) {
    err_prefix(err, "store: record %s is damaged: its spec", name);
    return err->code = ERR_CORRUPT;
  }
  if (manifest->layout_spec && spec_check(manifest->layout_spec, err)) {
    err_prefix(err, "store: record %s is damaged: the spec of its blocks", name);
    return err->code = ERR_CORRUPT;
  }
  if (!manifest->plan || manifest->plan->train_samples == 0 || manifest->plan->steps < manifest->step)
    return record_damaged(name, err, "it has no plan, or a step beyond it");
  if (!checkpoint_is_key(manifest->model_sha256))
    return record_damaged(name, err, "it names no model");
  if (*manifest->weights_sha256 && !checkpoint_is_key(manifest->weights_sha256))
    return record_damaged(name, err, "its weights_sha256 is none");
  if (manifest->versions_before > MODE_BEFORE_MAX || manifest->versions_before > manifest->step)
    return record_damaged(name, err, "it has more versions before its own than there can be");
  if (manifest->n_blocks == 0)
    return record_damaged(name, err, "it has no blocks");
  for (size_t i = 0; i < manifest->n_blocks; i++)
    if (manifest->blocks[i]->block != i || !checkpoint_is_key(manifest->blocks[i]->sha256))
      return record_damaged(name, err, "its list of blocks has gaps");
  return 0;
}

int checkpoint_find_run(struct store *store, const char *prefix, Weir__RunRecord **record, struct err *err) {
  struct store_names names = {0};
  char id[RUN_ID_MAX + 1] = "", *name = NULL, *from = NULL;
  int rc;
  *record = NULL;
  if (!*prefix)
    return err_set(err, ERR_INVALID, "no run is named");
  if (!checkpoint_is_run_id(prefix))
    return err_set(err, ERR_NOT_FOUND, "no run '%.100s' in the store", prefix);
  from = mem_printf("runs/%s", prefix);
  rc = store_list_records(store, from, &names, err);
  if (!rc)
    rc = pick_run(store, &names, prefix, id, err);
  if (rc)
    goto out;
  name = checkpoint_run_name(id, "run");
  rc = checkpoint_read_record(store, name, &weir__run_record__descriptor, (void **)record, err);
  if (!rc && strcmp((*record)->run, id)) {
    rc = record_damaged(name, err, "it is another run's");
    message_free(*record);
    *record = NULL;
  }
out:
  store_names_fini(&names);
  free(from);
  free(name);
  return rc;
}

/* Whether the id is NAME-xxxxxx. */
static bool is_of_name(const char *id, const char *name) {
  size_t length = strlen(name);
  return strlen(id) == length + 7 && id[length] == '-' && strspn(id + length + 1, "0123456789abcdef") == 6;
}

/* Of a run that the names have; 0: its record cannot be read, -1: it is a trial of a sweep. */
static int64_t submitted_unix_ms(struct store *store, const char *id) {
  char *name = checkpoint_run_name(id, "run");
  Weir__RunRecord *record = NULL;
  struct err ignored = ERR_NONE;
  int64_t unix_ms = 0;
  if (checkpoint_read_record(store, name, &weir__run_record__descriptor, (void **)&record, &ignored) == 0)
    unix_ms = *record->sweep ? -1 : record->submitted_unix_ms;
  message_free(record);
  free(name);
  return unix_ms;
}

/* The newest run of that name; false: there is none. */
static bool pick_newest(struct store *store, const struct store_names *names, const char *name,
                        char id[RUN_ID_MAX + 1]) {
  int64_t newest_ms = -1;
  for (int i = 0; i < names->count; i++) {
    struct record_place place;
    int64_t unix_ms;
    if (!checkpoint_parse_name(names->items[i], &place) || place.is_manifest || !is_of_name(place.run, name))
      continue;
    unix_ms = submitted_unix_ms(store, place.run);
    if (unix_ms <= newest_ms)
      continue;
    newest_ms = unix_ms;
    strcpy(id, place.run);
  }
  return newest_ms >= 0;
}

/* The run among the names whose id is prefix, else the newest of that name, else the one whose id begins with
   it. */
static int pick_run(struct store *store, const struct store_names *names, const char *prefix,
                    char id[RUN_ID_MAX + 1], struct err *err) {
  char matches[MATCHES_SHOWN * (RUN_ID_MAX + 3)] = "";
  int n_matches = 0;
  for (int i = 0; i < names->count; i++) {
    struct record_place place;
    size_t length = strlen(matches);
    if (!checkpoint_parse_name(names->items[i], &place) || place.is_manifest)
      continue;
    strcpy(id, place.run);
    if (strcmp(id, prefix) == 0)
      return 0;
    if (n_matches++ < MATCHES_SHOWN)
      snprintf(matches + length, sizeof matches - length, "%s%s", length ? ", " : "", id);
  }
  if (n_matches == 1 || pick_newest(store, names, prefix, id))
    return 0;
  if (n_matches == 0)
    return err_set(err, ERR_NOT_FOUND, "no run '%.100s' in the store", prefix);
  return err_set(err, ERR_INVALID, "run '%.100s' is ambiguous: it may be %s", prefix, matches);
}

int checkpoint_list(struct store *store, const char *run, uint64_t **steps, int *n, struct err *err) {
  struct store_names names = {0};
  char *prefix = mem_printf("runs/%s/checkpoints/", run);
  int rc = store_list_records(store, prefix, &names, err);
  *n = 0;
  *steps = rc ? NULL : mem_new((size_t)names.count * sizeof **steps);
  for (int i = 0; i < names.count && !rc; i++) {
    struct record_place place;
    if (checkpoint_parse_name(names.items[i], &place) && place.is_manifest)
      (*steps)[(*n)++] = place.step;
  }
  store_names_fini(&names);
  free(prefix);
  return rc;
}

void checkpoint_info(const Weir__Manifest *manifest, Weir__CheckpointInfo *info) {
  bool is_evaluated = manifest->step > 0 && manifest->eval_step == manifest->step;
  weir__checkpoint_info__init(info);
  info->step = manifest->step;
  info->incarnation = manifest->incarnation;
  info->committed_unix_ms = manifest->committed_unix_ms;
  for (size_t i = 0; i < manifest->n_blocks; i++)
    info->bytes += manifest->blocks[i]->bytes;
  info->written_bytes = manifest->written_bytes;
  info->blocks = (uint32_t)manifest->n_blocks;
  info->loss = manifest->loss;
  info->accuracy = is_evaluated ? manifest->accuracy : (double)NAN;
  info->eval_loss = is_evaluated ? manifest->eval_loss : (double)NAN;
  info->metrics = is_evaluated ? manifest->metrics : NULL;
  info->n_metrics = is_evaluated ? manifest->n_metrics : 0;
  info->weights_sha256 = manifest->weights_sha256;
}

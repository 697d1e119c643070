/* The values of a sweep's trial in an event file. */
#include "client/files/hparams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

enum { FLOAT = 1 /* DT_FLOAT */ };

/* As TensorBoard wants it: data in the metadata, and a tensor without elements. */
static int append(struct event_file *file, const char *tag, Weir__Tensorboard__HParamsPluginData *data,
                  struct err *err) {
  Weir__Tensorboard__Event event = WEIR__TENSORBOARD__EVENT__INIT;
  Weir__Tensorboard__Summary summary = WEIR__TENSORBOARD__SUMMARY__INIT;
  Weir__Tensorboard__Summary__Value value = WEIR__TENSORBOARD__SUMMARY__VALUE__INIT;
  Weir__Tensorboard__SummaryMetadata metadata = WEIR__TENSORBOARD__SUMMARY_METADATA__INIT;
  Weir__Tensorboard__SummaryMetadata__PluginData plugin =
      WEIR__TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
  Weir__Tensorboard__Tensor tensor = WEIR__TENSORBOARD__TENSOR__INIT;
  Weir__Tensorboard__TensorShape shape = WEIR__TENSORBOARD__TENSOR_SHAPE__INIT;
  Weir__Tensorboard__TensorShape__Dim none = WEIR__TENSORBOARD__TENSOR_SHAPE__DIM__INIT;
  plugin.plugin_name = (char *)"hparams";
  plugin.content.len = weir__tensorboard__hparams_plugin_data__get_packed_size(data);
  plugin.content.data = mem_new(plugin.content.len);
  weir__tensorboard__hparams_plugin_data__pack(data, plugin.content.data);
  metadata.plugin_data = &plugin;
  tensor.dtype = FLOAT;
  tensor.tensor_shape = &shape;
  shape.n_dim = 1;
  shape.dim = (Weir__Tensorboard__TensorShape__Dim *[]){&none};
  value.tag = (char *)tag;
  value.metadata = &metadata;
  value.value_case = WEIR__TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
  value.tensor = &tensor;
  summary.n_value = 1;
  summary.value = (Weir__Tensorboard__Summary__Value *[]){&value};
  event.what_case = WEIR__TENSORBOARD__EVENT__WHAT_SUMMARY;
  event.summary = &summary;
  event_file_append(file, &event, err);
  free(plugin.content.data);
  return err->code;
}

static void value_set(Weir__Tensorboard__HParamValue *value, const char *text) {
  char *end;
  double number = strtod(text, &end);
  weir__tensorboard__hparam_value__init(value);
  if (end != text && *end == '\0' && isfinite(number)) {
    value->kind_case = WEIR__TENSORBOARD__HPARAM_VALUE__KIND_NUMBER_VALUE;
    value->number_value = number;
  } else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
    value->kind_case = WEIR__TENSORBOARD__HPARAM_VALUE__KIND_BOOL_VALUE;
    value->bool_value = text[0] == 't';
  } else {
    value->kind_case = WEIR__TENSORBOARD__HPARAM_VALUE__KIND_STRING_VALUE;
    value->string_value = (char *)text;
  }
}

int hparams_begin(struct event_file *file, const Weir__SweepTrial *trial, const char *group,
                  struct err *err) {
  Weir__Tensorboard__HParamsPluginData data = WEIR__TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
  Weir__Tensorboard__SessionStartInfo start = WEIR__TENSORBOARD__SESSION_START_INFO__INIT;
  Weir__Tensorboard__SessionStartInfo__HParam *params, **list;
  Weir__Tensorboard__HParamValue *values;
  struct arena arena;
  arena_init(&arena);
  params = arena_new(&arena, trial->n_values * sizeof *params + 1);
  list = arena_new(&arena, trial->n_values * sizeof(void *) + 1);
  values = arena_new(&arena, trial->n_values * sizeof *values + 1);
  for (size_t i = 0; i < trial->n_values; i++) {
    weir__tensorboard__session_start_info__hparam__init(&params[i]);
    value_set(&values[i], trial->values[i]->value);
    params[i].key = trial->values[i]->path;
    params[i].value = &values[i];
    list[i] = &params[i];
  }
  start.n_hparams = trial->n_values;
  start.hparams = list;
  start.group_name = (char *)group;
  start.start_time_secs = file->seconds;
  data.data_case = WEIR__TENSORBOARD__HPARAMS_PLUGIN_DATA__DATA_SESSION_START_INFO;
  data.session_start_info = &start;
  append(file, EVENT_FILE_SESSION_START, &data, err);
  arena_fini(&arena);
  file->is_begun = !err->code;
  return err->code;
}

int hparams_end(struct event_file *file, bool is_good, struct err *err) {
  Weir__Tensorboard__HParamsPluginData data = WEIR__TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
  Weir__Tensorboard__SessionEndInfo end = WEIR__TENSORBOARD__SESSION_END_INFO__INIT;
  end.status = is_good ? WEIR__TENSORBOARD__SESSION_END_INFO__STATUS__SUCCESS
                       : WEIR__TENSORBOARD__SESSION_END_INFO__STATUS__FAILURE;
  end.end_time_secs = file->seconds;
  data.data_case = WEIR__TENSORBOARD__HPARAMS_PLUGIN_DATA__DATA_SESSION_END_INFO;
  data.session_end_info = &end;
  file->is_over = true;
  return append(file, EVENT_FILE_SESSION_END, &data, err);
}

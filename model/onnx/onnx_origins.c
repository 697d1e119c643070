/* Where initializers come from, as far as PyTorch's exporter says: it notes on the value of each parameter
   and buffer of the module which of them it is, and nothing on the constants that it computed itself. */
#include <string.h>

#include "common/base/text.h"
#include "model/onnx/onnx_parts.h"

static const char kind_key[] = "pkg.torch.export.graph_signature.InputSpec.kind";

static const char signature_key[] = "pkg.torch.export.ExportedProgram.graph_signature";

/* metadata_props of ValueInfoProto and GraphProto, which came with ONNX 1.16. */
enum { METADATA_PROPS_TAG = 4, GRAPH_METADATA_PROPS_TAG = 16, ENTRY_BYTES_MAX = 4096, LOST_SHOWN_MAX = 4 };

static enum value_origin origin_of(const char *kind) {
  if (kind && strcmp(kind, "PARAMETER") == 0)
    return ORIGIN_PARAMETER;
  return kind && strcmp(kind, "BUFFER") == 0 ? ORIGIN_BUFFER : ORIGIN_UNKNOWN;
}

/* The origin that one metadata entry tells; UNKNOWN if it is about something else. */
static enum value_origin read_entry(const ProtobufCMessageUnknownField *field) {
  Onnx__StringStringEntryProto *entry = NULL;
  enum value_origin origin = ORIGIN_UNKNOWN;
  if (field->len <= ENTRY_BYTES_MAX)
    entry = onnx_newer_message(field, METADATA_PROPS_TAG, &onnx__string_string_entry_proto__descriptor);
  if (entry && entry->key && strcmp(entry->key, kind_key) == 0)
    origin = origin_of(entry->value);
  if (entry)
    onnx__string_string_entry_proto__free_unpacked(entry, NULL);
  return origin;
}

/* The signature has a line "p_fc_weight: PARAMETER target='fc.weight'" for each parameter of the module. */
static void note_lost(struct onnx_reader *reader, char *signature) {
  static const char mark[] = "PARAMETER target='";
  struct listing lost = {0};
  int n = 0;
  for (char *at = strstr(signature, mark), *end; at; at = strstr(end + 1, mark)) {
    at += strlen(mark);
    end = at + strcspn(at, "'\n");
    if (*end != '\'')
      break;
    *end = 0;
    if (names_find(&reader->names, at) >= 0 || strlen(at) > ONNX_NAME_BYTES_MAX || !text_is_clean(at))
      continue;
    if (++n <= LOST_SHOWN_MAX)
      listing_add(&lost, "'%s'", at);
  }
  if (n > LOST_SHOWN_MAX)
    reader->graph->lost =
        arena_printf(&reader->graph->arena, "%s and %d more", listing_text(&lost), n - LOST_SHOWN_MAX);
  else if (n)
    reader->graph->lost = arena_strdup(&reader->graph->arena, listing_text(&lost));
  reader->graph->n_lost = n;
}

static void read_signature(struct onnx_reader *reader) {
  for (unsigned f = 0; f < reader->proto->base.n_unknown_fields; f++) {
    Onnx__StringStringEntryProto *entry =
        onnx_newer_message(&reader->proto->base.unknown_fields[f], GRAPH_METADATA_PROPS_TAG,
                           &onnx__string_string_entry_proto__descriptor);
    if (entry && entry->key && entry->value && strcmp(entry->key, signature_key) == 0)
      note_lost(reader, entry->value);
    if (entry)
      onnx__string_string_entry_proto__free_unpacked(entry, NULL);
  }
}

void onnx_origins_read(struct onnx_reader *reader) {
  struct graph *graph = reader->graph;
  bool is_told = false;
  for (size_t i = 0; i < reader->proto->n_value_info; i++) {
    const Onnx__ValueInfoProto *info = reader->proto->value_info[i];
    int index = info->name ? names_find(&reader->names, info->name) : -1;
    for (unsigned f = 0; index >= 0 && f < info->base.n_unknown_fields; f++) {
      enum value_origin origin = read_entry(&info->base.unknown_fields[f]);
      if (origin == ORIGIN_UNKNOWN)
        continue;
      graph->values[index].origin = origin;
      is_told = true;
    }
  }
  read_signature(reader);
  for (int v = 0; v < graph->n_values && is_told; v++)
    if (graph->values[v].kind == VALUE_INITIALIZER && graph->values[v].origin == ORIGIN_UNKNOWN)
      graph->values[v].origin = ORIGIN_EXPORTER;
}

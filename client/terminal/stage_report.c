/* Stages for people and for programs. */
#include "client/terminal/stage_report.h"

#include <stdlib.h>
#include <string.h>

#include "client/terminal/output.h"

enum { CUTS_MAX = 256 };

/* Splits the text, which is changed, at commas. Returns how many names there are. */
static int split_names(char *text, const char *names[CUTS_MAX], struct err *err) {
  int n = 0;
  for (char *at = text, *end; at; at = end) {
    end = strchr(at, ',');
    if (end)
      *end++ = 0;
    if (!*at || n == CUTS_MAX) {
      err_set(err, ERR_INVALID, n < CUTS_MAX ? "a name is empty" : "these are too many names");
      return 0;
    }
    names[n++] = at;
  }
  return n;
}

/* The places of the cuts that --cuts names. Returns how many. */
static int find_cuts(const struct stage_report *report, const char *cuts, int places[CUTS_MAX],
                     struct err *err) {
  char *text = mem_strdup(cuts);
  const char *names[CUTS_MAX];
  int n = split_names(text, names, err);
  if (!err->code)
    model_places_named(&report->places, &(struct place_names){names, n}, places, err);
  if (err->code)
    err_prefix(err, "--cuts %.200s", cuts);
  free(text);
  return n;
}

/* As --stages and --cuts say. */
static int find_given(const struct stage_request *request, int places[CUTS_MAX], struct stages_wanted *wanted,
                      struct stage_report *report, struct err *err) {
  int n = request->n_stages - 1;
  if (request->cuts)
    n = find_cuts(report, request->cuts, places, err);
  if (err->code)
    return err->code;
  if (request->n_stages > 0 && request->n_stages != n + 1)
    return err_set(err, ERR_INVALID, "--stages %d takes %d cut%s, and --cuts names %d", request->n_stages,
                   request->n_stages - 1, request->n_stages == 2 ? "" : "s", n);
  wanted->n_stages = n + 1;
  wanted->cuts = request->cuts ? places : NULL;
  return ERR_OK;
}

/* As the spec says, which has been checked against the model. */
static int find_spec(const Weir__WorkersSpec *workers, int places[CUTS_MAX], struct stages_wanted *wanted,
                     struct stage_report *report, struct err *err) {
  const struct place_names names = {(const char *const *)workers->cuts, (int)workers->n_cuts};
  wanted->n_stages = (int)workers->stages;
  wanted->cuts = names.n > 0 ? places : NULL;
  return names.n > 0 ? model_places_named(&report->places, &names, places, err) : ERR_OK;
}

int stage_report_init(struct stage_report *report, const struct model *model,
                      const struct stage_request *request, struct err *err) {
  const Weir__RunSpec *spec = request->spec;
  bool is_given = request->n_stages || request->cuts;
  struct stages_wanted wanted = {.places = &report->places,
                                 .most_in_flight = spec ? (int)spec->train->microbatches : 0};
  int places[CUTS_MAX];
  *report = (struct stage_report){.stages = {NULL, 0}};
  if (!is_given && (!spec || spec->workers->stages <= 1)) /* auto: not known here */
    return ERR_OK;
  model_places_find(model, &report->places);
  if (is_given ? find_given(request, places, &wanted, report, err)
               : find_spec(spec->workers, places, &wanted, report, err))
    return err->code;
  return model_stages_find(model, &wanted, &report->stages, err);
}

void stage_report_fini(struct stage_report *report) {
  model_places_fini(&report->places);
  free(report->stages.list);
  *report = (struct stage_report){.stages = {NULL, 0}};
}

static void print_cuts(const struct stage_report *report, FILE *file) {
  fprintf(file, "stages         %d, estimated from the graph\n", report->stages.n);
  for (int s = 1; s < report->stages.n; s++)
    fprintf(file, "%s%s", s > 1 ? "," : "cuts           ", report->stages.list[s].from);
  fprintf(file, report->stages.n > 1 ? "\n\n" : "\n");
}

void stage_report_print(const struct stage_report *report, FILE *file) {
  static const char *const headings[] = {"STAGE",  "FROM",       ">MULTIPLY-ADDS", ">TIME", ">WEIGHTS",
                                         ">SAVED", ">IN FLIGHT", ">MEMORY",        ">UP",   ">DOWN",
                                         NULL};
  static const char note[] =
      "Estimates, from the graph alone; a run goes by what its backend needs. TIME is a stage's part of all\n"
      "computation. MEMORY is two versions of the weights, a microbatch's activations, and what is SAVED "
      "for\n"
      "the backward part of each further one IN FLIGHT. UP and DOWN cross to the next stage and back, for\n"
      "each microbatch.";
  struct table table;
  print_cuts(report, file);
  table_init(&table, headings);
  for (int s = 0; s < report->stages.n; s++) {
    const struct model_stage *stage = &report->stages.list[s];
    char number[OUTPUT_TEXT_MAX], in_flight[OUTPUT_TEXT_MAX], text[7][OUTPUT_TEXT_MAX];
    bool is_last = s + 1 == report->stages.n;
    snprintf(number, sizeof number, "%d", s);
    snprintf(in_flight, sizeof in_flight, "%d", stage->in_flight);
    const char *cells[] = {number,
                           stage->from ? stage->from : "",
                           output_count(stage->multiply_adds, text[0]),
                           output_percent(stage->time_share, text[1]),
                           output_bytes(stage->weights_bytes, text[2]),
                           output_bytes(stage->saved_bytes, text[3]),
                           in_flight,
                           output_bytes(stage->memory_bytes, text[4]),
                           is_last ? "" : output_bytes(stage->up_bytes, text[5]),
                           is_last ? "" : output_bytes(stage->down_bytes, text[6])};
    table_row(&table, cells);
  }
  table_print(&table, file);
  table_fini(&table);
  fprintf(file, "\n%s\n", note);
}

static json_t *stage_json(const struct stage_report *report, int s) {
  const struct model_stage *stage = &report->stages.list[s];
  return json_pack("{s:s?, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:i, s:I, s:I}", "from", stage->from, "nodes",
                   stage->n_nodes, "multiply_adds", stage->multiply_adds, "time_share", stage->time_share,
                   "weights_bytes", (json_int_t)stage->weights_bytes, "saved_bytes",
                   (json_int_t)stage->saved_bytes, "activations_bytes", (json_int_t)stage->activations_bytes,
                   "memory_bytes", (json_int_t)stage->memory_bytes, "in_flight", stage->in_flight, "up_bytes",
                   (json_int_t)stage->up_bytes, "down_bytes", (json_int_t)stage->down_bytes);
}

json_t *stage_report_json(const struct stage_report *report) {
  json_t *stages = json_array(), *cuts = json_array(), *places = json_array();
  for (int s = 0; s < report->stages.n; s++) {
    json_array_append_new(stages, stage_json(report, s));
    if (s > 0)
      json_array_append_new(cuts, json_string(report->stages.list[s].from));
  }
  for (int p = 0; p < report->places.n; p++)
    json_array_append_new(places, json_string(report->places.list[p].name));
  return json_pack("{s:b, s:o, s:o, s:o}", "estimated", 1, "cuts", cuts, "stages", stages, "places", places);
}

/* Where a model can be cut. */
#include "model/stages/places.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/nearest.h"
#include "model/graph/listing.h"

enum { NAMES_SHOWN = 8, DEPTH_MAX = 16 };

/* A node of the file that both graphs have. */
struct shared_node {
  const char *name;
  int train, eval;
};

struct finder {
  const struct model *model;
  struct model_places *places;
  struct shared_node *nodes;
  int n;
};

/* A segment that begins with the one before it and a dot has that one's path in it already. */
const char *module_path(const char *name, struct arena *arena) {
  char *path = arena_new(arena, strlen(name) + 2), *end = path, *last = path;
  while (*name) {
    size_t length = strcspn(name, "/"), last_length = (size_t)(end - last);
    if (length > last_length && last_length > 0 && name[last_length] == '.' &&
        strncmp(name, last, last_length) == 0)
      end = last;
    else if (length > 0 && end > path)
      *end++ = '.';
    if (length > 0)
      last = end;
    memcpy(end, name, length);
    end += length;
    *end = 0;
    name += length + (name[length] == '/');
  }
  return path;
}

struct node_key {
  const char *name;
  int index;
};

static int compare_keys(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)((const struct node_key *)a)->name,
            y = (uintptr_t)((const struct node_key *)b)->name;
  return (x > y) - (x < y);
}

/* Nodes of the file have the same text for a name in both graphs, and the same order; later ones have not. */
static void list_shared(struct finder *finder) {
  const struct graph *train = finder->model->train, *eval = finder->model->eval;
  struct node_key *keys = mem_new(((size_t)eval->n_nodes + 1) * sizeof *keys);
  for (int n = 0; n < eval->n_nodes; n++)
    keys[n] = (struct node_key){eval->nodes[n]->name, n};
  if (eval->n_nodes > 1)
    qsort(keys, (size_t)eval->n_nodes, sizeof *keys, compare_keys);
  finder->nodes = mem_new(((size_t)train->n_nodes + 1) * sizeof *finder->nodes);
  for (int n = 0; n < train->n_nodes && train->nodes[n]->forward < 0; n++) {
    struct node_key key = {train->nodes[n]->name, 0};
    const struct node_key *found =
        eval->n_nodes ? bsearch(&key, keys, (size_t)eval->n_nodes, sizeof *keys, compare_keys) : NULL;
    if (found)
      finder->nodes[finder->n++] = (struct shared_node){key.name, n, found->index};
  }
  free(keys);
}

static void name_add(struct model_places *places, struct names *names, const char *name, int node) {
  if (!names_add(names, name, node))
    return;
  array_reserve((void **)&places->known, &places->known_capacity, places->n_known, sizeof *places->known);
  places->known[places->n_known++] = name;
}

/* What is before each of the first dots. Returns how many prefixes there are, from the shortest. */
static int path_prefixes(const char *path, const char *prefixes[DEPTH_MAX], struct arena *arena) {
  int n = 0;
  for (const char *dot = strchr(path, '.'); dot && n < DEPTH_MAX; dot = strchr(dot + 1, '.'))
    prefixes[n++] = arena_printf(arena, "%.*s", (int)(dot - path), path);
  return n;
}

static void prefixes_add(struct model_places *places, struct names *names, const char *path, int node) {
  const char *prefixes[DEPTH_MAX];
  int n = path_prefixes(path, prefixes, &places->memory);
  for (int p = 0; p < n; p++)
    name_add(places, names, prefixes[p], node);
}

/* The index-th of the initializers that the node reads; NULL past the last. */
static const char *weight_name(const struct finder *finder, int node, int index) {
  const struct graph *train = finder->model->train;
  const struct node *of = train->nodes[finder->nodes[node].train];
  for (int i = 0; i < of->n_inputs; i++) {
    const struct value *value = node_input(train, of, i);
    if (value && value->kind == VALUE_INITIALIZER && index-- == 0)
      return value->name;
  }
  return NULL;
}

static void list_paths(struct finder *finder) {
  struct model_places *places = finder->places;
  for (int n = 0; n < finder->n; n++) {
    const char *path = module_path(finder->nodes[n].name, &places->memory), *weight;
    prefixes_add(places, &places->by_node, path, n);
    name_add(places, &places->by_node, path, n);
    for (int w = 0; (weight = weight_name(finder, n, w)) != NULL; w++)
      prefixes_add(places, &places->by_weight, weight, n);
  }
}

static int find_node(const struct model_places *places, const char *path) {
  int node = names_find(&places->by_node, path);
  return node >= 0 ? node : names_find(&places->by_weight, path);
}

/* The shortest prefix that leads to the node; NULL. */
static const char *path_prefix(struct model_places *places, const char *path, int node) {
  const char *prefixes[DEPTH_MAX];
  int n = path_prefixes(path, prefixes, &places->memory);
  for (int p = 0; p < n; p++)
    if (find_node(places, prefixes[p]) == node)
      return prefixes[p];
  return NULL;
}

/* A module that begins with the node, else the node itself; NULL: a namesake comes first. */
static const char *place_name(struct finder *finder, int node) {
  struct model_places *places = finder->places;
  const char *path = module_path(finder->nodes[node].name, &places->memory), *weight;
  const char *name = path_prefix(places, path, node);
  for (int w = 0; !name && (weight = weight_name(finder, node, w)) != NULL; w++)
    name = path_prefix(places, weight, node);
  return name ? name : find_node(places, path) == node ? path : NULL;
}

void model_places_find(const struct model *model, struct model_places *out) {
  struct finder finder = {.model = model, .places = out};
  *out = (struct model_places){.n = 0};
  names_init(&out->by_node);
  names_init(&out->by_weight);
  list_shared(&finder);
  list_paths(&finder);
  struct model_place *list = arena_new(&out->memory, ((size_t)finder.n + 1) * sizeof *list);
  int *place_of = arena_new(&out->memory, ((size_t)finder.n + 1) * sizeof *place_of);
  for (int n = 0; n < finder.n; n++) {
    const struct shared_node *node = &finder.nodes[n];
    const char *name = node->train > 0 && node->eval > 0 ? place_name(&finder, n) : NULL;
    place_of[n] = name ? out->n : -1;
    if (name)
      list[out->n++] = (struct model_place){name, node->train, node->eval};
  }
  out->list = list;
  out->place_of = place_of;
  free(finder.nodes);
}

void model_places_fini(struct model_places *places) {
  names_fini(&places->by_node);
  names_fini(&places->by_weight);
  free(places->known);
  arena_fini(&places->memory);
  *places = (struct model_places){.n = 0};
}

static int fail_unknown(const struct model_places *places, const char *name, struct err *err) {
  const char *near = nearest_word(name, places->known, places->n_known);
  struct listing listing = {0};
  for (int p = 0; p < places->n && p < NAMES_SHOWN; p++)
    listing_add(&listing, "'%.100s'", places->list[p].name);
  err_set(err, ERR_INVALID, "there is no module or node '%.100s' to cut before", name);
  if (near)
    return err_append(err, ": did you mean '%.100s'?", near);
  if (places->n == 0)
    return err_append(err, ": the model cannot be cut");
  return err_append(err, "; there are %s%s", listing_text(&listing), places->n > NAMES_SHOWN ? ", ..." : "");
}

static int compare_places(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

int model_places_named(const struct model_places *places, const struct place_names *names, int *out,
                       struct err *err) {
  struct arena memory = {0};
  for (int i = 0; i < names->n; i++) {
    int node = find_node(places, module_path(names->at[i], &memory));
    if (node < 0) {
      fail_unknown(places, names->at[i], err);
      break;
    }
    out[i] = places->place_of[node];
    if (out[i] < 0) {
      err_set(err, ERR_INVALID, "the model begins with '%.100s': there is nothing to cut off before it",
              names->at[i]);
      break;
    }
    for (int before = 0; before < i && !err->code; before++)
      if (out[before] == out[i])
        err_set(err, ERR_INVALID, "'%.100s' and '%.100s' are one place to cut", names->at[before],
                names->at[i]);
    if (err->code)
      break;
  }
  arena_fini(&memory);
  if (!err->code && names->n > 1)
    qsort(out, (size_t)names->n, sizeof *out, compare_places);
  return err->code;
}

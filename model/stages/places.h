/* Where a model can be cut into stages, by the names of its modules. A cut lies before a node that is in the
   train graph and in the eval graph. By the graphs every such cut is valid: a node reads nothing of later
   ones, and a gradient node nothing of the gradient nodes of earlier ones. A backend may fuse nodes, and so
   have fewer.

   Nodes have the paths of their modules in their names, as PyTorch's exporter writes them:
   "/layer3/layer3.0/conv1/Conv" is in layer3, layer3.0 and layer3.0.conv1. Where no node's name has a path,
   the names of initializers may: "blocks.1.fc.weight" is read by a node of blocks.1. */
#ifndef WEIR_MODEL_STAGES_PLACES_H
#define WEIR_MODEL_STAGES_PLACES_H

#include "model/graph/names.h"
#include "model/model.h"

struct model_place {
  const char *name; /* the shortest that leads here */
  int train, eval;  /* the nodes of the graphs before which it is */
};

struct model_places {
  struct arena memory; /* of the below */
  const struct model_place
      *list; /* in the order of both graphs; the nodes of the loss are behind all of them */
  int n;
  const char **known; /* all names that lead anywhere */
  int n_known, known_capacity;
  struct names by_node, by_weight; /* of every path, the first of shared nodes that is in it */
  const int *place_of;             /* [shared nodes] index in list; -1 */
};

/* The model outlives the places. */
void model_places_find(const struct model *model, struct model_places *out);
void model_places_fini(struct model_places *places); /* safe on a zeroed one */

/* The places before the first nodes of modules, or before nodes, so named: indices in list, ascending.
   Errors: INVALID when there is no such name (with the nearest, or the first ones), when nothing is before
   it, and when two of them are one place. */
struct place_names {
  const char *const *at;
  int n;
};
int model_places_named(const struct model_places *places, const struct place_names *names, int *out,
                       struct err *err);

/* The path of a node's name, or of part of one: "/layer3/layer3.0/conv1/Conv" -> "layer3.0.conv1.Conv". The
   arena's. */
const char *module_path(const char *name, struct arena *arena);

#endif

/* The file's nodes as one flat list: a call of a local function is replaced by the function's nodes, an If by
   those of both branches, each guarded by the condition, and a node per output that takes one of two. */
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_parts.h"

/* A file of a few bytes must not become millions of nodes by functions that call each other: nodes, names and
   text that are not in the file as they are count, in units of some 32 bytes. */
enum { DEPTH_MAX = 64, ADDED_MAX = 1 << 22, UNIT_BYTES = 32, PREFIX_BYTES_MAX = 256 };

/* Where names mean something else than in the model's graph: the body of a called function, or a branch. */
struct scope {
  const struct scope *outer;           /* of a branch: its own scope, NULL in the model's graph; else NULL */
  const Onnx__FunctionProto *function; /* NULL: a branch */
  const Onnx__NodeProto *call;         /* of the function: gives the attributes that the body refers to */
  const struct scope *caller;          /* where the call's own references lead */
  const char *prefix;                  /* of names that it defines */
  struct names names;                  /* -> index in meant */
  const char **meant;
  int n_meant, meant_capacity;
};

/* Where nodes are put: which names they see, and the branch that guards them (0: none). */
struct site {
  const struct scope *scope;
  int guard;
};

struct flattener {
  struct onnx_reader *reader;
  struct names functions; /* "domain:name" -> index in model->functions */
  size_t added, n_scopes;
  int depth;
};

static int emit_nodes(struct flattener *flattener, Onnx__NodeProto *const *nodes, size_t n, struct site site,
                      struct err *err);

static struct arena *arena_of(const struct flattener *flattener) {
  return &flattener->reader->graph->arena;
}

static const char *text_of(const char *text) {
  return text ? text : "";
}

static void scope_define(struct scope *scope, const char *name, const char *meant) {
  if (!*name || !names_add(&scope->names, name, scope->n_meant))
    return;
  array_reserve((void **)&scope->meant, &scope->meant_capacity, scope->n_meant, sizeof *scope->meant);
  scope->meant[scope->n_meant++] = meant;
}

static void scope_fini(struct scope *scope) {
  names_fini(&scope->names);
  free(scope->meant);
}

static const char *own_name(struct flattener *flattener, const struct scope *scope, const char *name) {
  flattener->added += 1 + strlen(name) / UNIT_BYTES;
  return *name ? arena_printf(arena_of(flattener), "%s%s", scope->prefix, name) : "";
}

/* What a name means in the model's graph. A function sees only its own names. */
static const char *name_resolve(struct flattener *flattener, const struct scope *scope, const char *name) {
  for (; scope && *name; scope = scope->outer) {
    int at = names_find(&scope->names, name);
    if (at >= 0)
      return scope->meant[at];
    if (scope->function)
      return own_name(flattener, scope, name);
  }
  return name;
}

/* A prefix that no other scope has, for outputs are unique; NULL where the node has no output. */
static const char *prefix_of(struct flattener *flattener, const Onnx__NodeProto *node,
                             const struct scope *scope, const char *part) {
  const char *outer = scope ? scope->prefix : "";
  for (size_t o = 0; o < node->n_output; o++) {
    if (*node->output[o] && strlen(outer) + strlen(node->output[o]) < PREFIX_BYTES_MAX)
      return arena_printf(arena_of(flattener), "%s%s/%s", outer, node->output[o], part);
    if (*node->output[o])
      return arena_printf(arena_of(flattener), "~%zu/%s", ++flattener->n_scopes, part);
  }
  return NULL;
}

static void node_push(struct flattener *flattener, const Onnx__NodeProto *proto, int guard) {
  struct onnx_reader *reader = flattener->reader;
  array_reserve((void **)&reader->nodes, &reader->nodes_capacity, reader->n_nodes, sizeof *reader->nodes);
  reader->nodes[reader->n_nodes++] = (struct onnx_node){proto, guard};
}

static char **resolve_all(struct flattener *flattener, const struct scope *scope, char *const *names,
                          size_t n) {
  char **meant = arena_new(arena_of(flattener), n * sizeof *meant);
  for (size_t i = 0; i < n; i++)
    meant[i] = (char *)name_resolve(flattener, scope, names[i]);
  return meant;
}

static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *attributes, size_t n,
                                                  const char *name) {
  for (size_t a = 0; a < n; a++)
    if (strcmp(text_of(attributes[a]->name), name) == 0)
      return attributes[a];
  return NULL;
}

/* What an attribute of a function's body refers to: the call's, or the function's default. NULL: not given.
 */
static const Onnx__AttributeProto *attribute_referred(const struct flattener *flattener,
                                                      const struct scope *scope, const char *name) {
  const Onnx__AttributeProto *found = NULL;
  while (scope && name) {
    for (; scope && !scope->function; scope = scope->outer)
      ;
    if (!scope)
      return NULL;
    found = find_attribute(scope->call->attribute, scope->call->n_attribute, name);
    if (!found)
      return onnx_function_default(flattener->reader, scope->function, name);
    name = found->ref_attr_name && *found->ref_attr_name ? found->ref_attr_name : NULL;
    scope = scope->caller;
  }
  return found;
}

/* The node's attributes with references resolved; those that nobody gives are absent. */
static void copy_attributes(const struct flattener *flattener, const struct scope *scope,
                            const Onnx__NodeProto *node, Onnx__NodeProto *copy) {
  struct arena *arena = arena_of(flattener);
  copy->attribute = arena_new(arena, node->n_attribute * sizeof *copy->attribute);
  copy->n_attribute = 0;
  for (size_t a = 0; a < node->n_attribute; a++) {
    Onnx__AttributeProto *attribute = node->attribute[a];
    if (attribute->ref_attr_name && *attribute->ref_attr_name) {
      const Onnx__AttributeProto *given = attribute_referred(flattener, scope, attribute->ref_attr_name);
      if (!given)
        continue;
      given = arena_copy(arena, given, sizeof *given);
      ((Onnx__AttributeProto *)given)->name = attribute->name;
      attribute = (Onnx__AttributeProto *)given;
    }
    copy->attribute[copy->n_attribute++] = attribute;
  }
}

static void emit_plain(struct flattener *flattener, const Onnx__NodeProto *node, const struct scope *scope,
                       int guard) {
  Onnx__NodeProto *copy;
  if (!scope) {
    node_push(flattener, node, guard);
    return;
  }
  flattener->added += 4 + node->n_input + node->n_output + node->n_attribute;
  copy = arena_copy(arena_of(flattener), node, sizeof *node);
  copy->name = *text_of(node->name) ? (char *)own_name(flattener, scope, node->name) : NULL;
  copy->input = resolve_all(flattener, scope, node->input, node->n_input);
  copy->output = resolve_all(flattener, scope, node->output, node->n_output);
  copy_attributes(flattener, scope, node, copy);
  node_push(flattener, copy, guard);
}

/* A node of ours: op(inputs) -> output. */
struct own_node {
  const char *op, *name; /* name NULL: none */
  const char *inputs[3];
  size_t n_inputs;
  const char *output;
};

static Onnx__NodeProto *node_new(const struct flattener *flattener, const struct own_node *own) {
  struct arena *arena = arena_of(flattener);
  Onnx__NodeProto *node = arena_new(arena, sizeof *node);
  onnx__node_proto__init(node);
  node->op_type = (char *)own->op;
  node->name = (char *)own->name;
  node->n_input = own->n_inputs;
  node->input = arena_copy(arena, own->inputs, own->n_inputs * sizeof *own->inputs);
  node->n_output = 1;
  node->output = arena_copy(arena, &own->output, sizeof own->output);
  return node;
}

static const Onnx__FunctionProto *find_function(const struct flattener *flattener,
                                                const Onnx__NodeProto *node) {
  char *key;
  int at = -1;
  if (flattener->functions.count == 0)
    return NULL;
  key = mem_printf("%s:%s", text_of(node->domain), text_of(node->op_type));
  at = names_find(&flattener->functions, key);
  free(key);
  return at < 0 ? NULL : flattener->reader->model->functions[at];
}

static bool is_input_of(const Onnx__FunctionProto *function, const char *name) {
  for (size_t i = 0; i < function->n_input; i++)
    if (strcmp(function->input[i], name) == 0)
      return true;
  return false;
}

static void define_formals(struct flattener *flattener, struct scope *scope, const struct scope *caller) {
  const Onnx__FunctionProto *function = scope->function;
  const Onnx__NodeProto *call = scope->call;
  for (size_t i = 0; i < function->n_input; i++)
    scope_define(scope, function->input[i],
                 i < call->n_input ? name_resolve(flattener, caller, call->input[i]) : "");
  for (size_t o = 0; o < function->n_output && o < call->n_output; o++)
    if (*call->output[o])
      scope_define(scope, function->output[o], name_resolve(flattener, caller, call->output[o]));
}

/* A function's output that is an input of it, too: nothing in its body produces the caller's value. */
static void pass_inputs_on(struct flattener *flattener, const struct scope *scope, const struct scope *caller,
                           int guard) {
  const Onnx__FunctionProto *function = scope->function;
  for (size_t o = 0; o < function->n_output && o < scope->call->n_output; o++)
    if (is_input_of(function, function->output[o]) && *scope->call->output[o]) {
      struct own_node identity = {.op = "Identity",
                                  .inputs = {name_resolve(flattener, scope, function->output[o])},
                                  .n_inputs = 1,
                                  .output = name_resolve(flattener, caller, scope->call->output[o])};
      node_push(flattener, node_new(flattener, &identity), guard);
    }
}

static int emit_call(struct flattener *flattener, const Onnx__NodeProto *call,
                     const Onnx__FunctionProto *function, struct site site, struct err *err) {
  struct scope scope = {.function = function, .call = call, .caller = site.scope};
  int code;
  scope.prefix = prefix_of(flattener, call, site.scope, "");
  if (!scope.prefix)
    return 0;
  if (call->n_input > function->n_input || call->n_output > function->n_output)
    return err_set(err, ERR_INVALID,
                   "a call of function '%.100s' has %zu inputs and %zu outputs, the function %zu and %zu",
                   call->op_type, call->n_input, call->n_output, function->n_input, function->n_output);
  flattener->added += 4 + function->n_input + function->n_output;
  define_formals(flattener, &scope, site.scope);
  code = emit_nodes(flattener, function->node, function->n_node, (struct site){&scope, site.guard}, err);
  if (!code)
    pass_inputs_on(flattener, &scope, site.scope, site.guard);
  scope_fini(&scope);
  return code;
}

static int guard_add(struct flattener *flattener, const char *condition, bool is_true, int outer,
                     const char *node) {
  struct onnx_reader *reader = flattener->reader;
  array_reserve((void **)&reader->guards, &reader->guards_capacity, reader->n_guards, sizeof *reader->guards);
  reader->guards[reader->n_guards++] = (struct onnx_guard){condition, node, is_true, outer};
  return reader->n_guards;
}

/* Initializers of a branch are constants. */
static void emit_constants(struct flattener *flattener, const Onnx__GraphProto *branch,
                           const struct scope *scope, int guard) {
  struct arena *arena = arena_of(flattener);
  for (size_t i = 0; i < branch->n_initializer; i++) {
    const char *name = name_resolve(flattener, scope, text_of(branch->initializer[i]->name));
    Onnx__NodeProto *node = node_new(flattener, &(struct own_node){.op = "Constant", .output = name});
    Onnx__AttributeProto *value = arena_new(arena, sizeof *value);
    onnx__attribute_proto__init(value);
    value->name = (char *)"value";
    value->has_type = 1;
    value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    value->t = branch->initializer[i];
    node->n_attribute = 1;
    node->attribute = arena_copy(arena, &value, sizeof value);
    node_push(flattener, node, guard);
  }
}

/* A branch of an If by its attribute, where the If stands, and the branch's own guard. */
struct branch {
  const char *which;
  struct site site;
  const char **outputs; /* [n_output of the If]: becomes what the branch gives */
};

static int emit_branch(struct flattener *flattener, const Onnx__NodeProto *node, const struct branch *own,
                       struct err *err) {
  const char *which = own->which;
  struct scope scope = {.outer = own->site.scope};
  const Onnx__AttributeProto *attribute = find_attribute(node->attribute, node->n_attribute, which);
  const Onnx__GraphProto *branch = attribute ? attribute->g : NULL;
  int code;
  if (!branch || branch->n_output != node->n_output || branch->n_input)
    return err_set(err, ERR_INVALID, "node '%.100s' (If): its %s does not give its %zu outputs",
                   text_of(node->name), which, node->n_output);
  scope.prefix =
      prefix_of(flattener, node, scope.outer, strcmp(which, "then_branch") == 0 ? "then/" : "else/");
  for (size_t i = 0; i < branch->n_initializer; i++)
    scope_define(&scope, text_of(branch->initializer[i]->name),
                 own_name(flattener, &scope, text_of(branch->initializer[i]->name)));
  for (size_t n = 0; n < branch->n_node; n++)
    for (size_t o = 0; o < branch->node[n]->n_output; o++)
      scope_define(&scope, branch->node[n]->output[o],
                   own_name(flattener, &scope, branch->node[n]->output[o]));
  emit_constants(flattener, branch, &scope, own->site.guard);
  code = emit_nodes(flattener, branch->node, branch->n_node, (struct site){&scope, own->site.guard}, err);
  for (size_t o = 0; o < node->n_output && !code; o++)
    own->outputs[o] = name_resolve(flattener, &scope, text_of(branch->output[o]->name));
  scope_fini(&scope);
  return code;
}

static int emit_if(struct flattener *flattener, const Onnx__NodeProto *node, struct site site,
                   struct err *err) {
  struct branch taken = {.which = "then_branch", .site = site},
                other = {.which = "else_branch", .site = site};
  struct arena *arena = arena_of(flattener);
  const struct scope *scope = site.scope;
  const char *condition = node->n_input == 1 ? name_resolve(flattener, scope, node->input[0]) : "";
  const char *name = text_of(node->name);
  if (!*condition)
    return err_set(err, ERR_INVALID, "node '%.100s' (If): it has no condition", name);
  if (!prefix_of(flattener, node, scope, ""))
    return 0;
  taken.outputs = arena_new(arena, node->n_output * sizeof *taken.outputs);
  other.outputs = arena_new(arena, node->n_output * sizeof *other.outputs);
  taken.site.guard = guard_add(flattener, condition, true, site.guard, name);
  if (emit_branch(flattener, node, &taken, err))
    return err->code;
  other.site.guard = guard_add(flattener, condition, false, site.guard, name);
  if (emit_branch(flattener, node, &other, err))
    return err->code;
  for (size_t o = 0; o < node->n_output; o++) {
    struct own_node choice = {.op = "If",
                              .name = *name ? name : NULL,
                              .inputs = {condition, taken.outputs[o], other.outputs[o]},
                              .n_inputs = 3};
    if (!*node->output[o])
      continue;
    choice.output = name_resolve(flattener, scope, node->output[o]);
    node_push(flattener, node_new(flattener, &choice), site.guard);
  }
  return 0;
}

static int emit_node(struct flattener *flattener, const Onnx__NodeProto *node, struct site site,
                     struct err *err) {
  const Onnx__FunctionProto *function = find_function(flattener, node);
  bool is_if = strcmp(text_of(node->op_type), "If") == 0 && onnx_domain_is_standard(node->domain);
  if (!function && !is_if) {
    emit_plain(flattener, node, site.scope, site.guard);
    return 0;
  }
  if (*text_of(node->name) && onnx_name_check(node->name, "the name of a node", err))
    return err->code;
  return is_if ? emit_if(flattener, node, site, err) : emit_call(flattener, node, function, site, err);
}

static int emit_nodes(struct flattener *flattener, Onnx__NodeProto *const *nodes, size_t n, struct site site,
                      struct err *err) {
  int code = 0;
  if (++flattener->depth > DEPTH_MAX)
    return err_set(err, ERR_INVALID, "functions and branches are nested deeper than %d, or without end",
                   DEPTH_MAX);
  for (size_t i = 0; i < n && !code; i++) {
    if (flattener->added > ADDED_MAX)
      return err_set(err, ERR_INVALID, "the model's functions stand for more nodes than any model has");
    code = emit_node(flattener, nodes[i], site, err);
  }
  flattener->depth--;
  return code;
}

/* A function that is called has a name that can be shown; and one opset is that of all nodes. */
static int check_function(const struct onnx_reader *reader, const Onnx__FunctionProto *function,
                          struct err *err) {
  if (onnx_name_check(function->name, "the name of a function", err) ||
      (*text_of(function->domain) && onnx_name_check(function->domain, "the domain of a function", err)))
    return err->code;
  for (size_t i = 0; i < function->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *import = function->opset_import[i];
    if (onnx_domain_is_standard(import->domain) && import->version != reader->graph->opset)
      return err_set(err, ERR_UNSUPPORTED,
                     "function '%.100s' uses ONNX opset %lld and the model %d: only one is supported",
                     text_of(function->name), (long long)import->version, reader->graph->opset);
  }
  return 0;
}

static int list_functions(struct flattener *flattener, struct err *err) {
  const struct onnx_reader *reader = flattener->reader;
  for (size_t f = 0; f < reader->model->n_functions; f++) {
    const Onnx__FunctionProto *function = reader->model->functions[f];
    const char *key =
        arena_printf(&reader->graph->arena, "%s:%s", text_of(function->domain), text_of(function->name));
    if (check_function(reader, function, err))
      return err->code;
    if (!names_add(&flattener->functions, key, (int)f))
      return err_set(err, ERR_INVALID, "two functions are named '%.200s'", key);
  }
  return 0;
}

int onnx_flatten(struct onnx_reader *reader, struct err *err) {
  struct flattener flattener = {.reader = reader};
  int code = list_functions(&flattener, err);
  if (!code)
    code = emit_nodes(&flattener, reader->proto->node, reader->proto->n_node, (struct site){0}, err);
  names_fini(&flattener.functions);
  return code;
}

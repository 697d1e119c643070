/* Einsum (ONNX 12): sums of products by an equation like "bij,bjk->bik", with ellipses, diagonals ("ii->i"),
   implicit output and any number of operands. The gradient of an operand is another such sum, of the output's
   gradient and the other operands. */
#include "model/ops/shared/einsum.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

static int label_of(char letter) {
  return islower((unsigned char)letter) ? 26 + letter - 'a' : letter - 'A';
}

/* One term of an equation, before its shape is known. */
struct subscripts {
  int n, label[EINSUM_LABELS]; /* letters, without the ellipsis */
  int ellipsis;                /* how many letters come before it; -1: there is none */
};

/* Reads until ',', '-' or the end; NULL if something else is there. */
static const char *read_subscripts(const char *at, struct subscripts *subscripts) {
  *subscripts = (struct subscripts){.ellipsis = -1};
  for (; *at && *at != ',' && *at != '-'; at++) {
    if (*at == ' ')
      continue;
    if (*at == '.' && at[1] == '.' && at[2] == '.' && subscripts->ellipsis < 0) {
      subscripts->ellipsis = subscripts->n;
      at += 2;
    } else if (isalpha((unsigned char)*at) && subscripts->n < EINSUM_LABELS) {
      subscripts->label[subscripts->n++] = label_of(*at);
    } else {
      return NULL;
    }
  }
  return at;
}

static int bad_equation(const struct node *node, struct err *err, const char *what) {
  return node_error(node, err, ERR_INVALID, "its equation '%.60s' %s", node_attr_string(node, "equation", ""),
                    what);
}

/* The labels of a term of this rank; the ellipsis takes what its letters leave, the last dimension last. */
static bool labels_resolve(const struct subscripts *subscripts, int rank, struct einsum_term *term) {
  int room = rank - subscripts->n, at = 0;
  *term = (struct einsum_term){.rank = rank};
  if (room < 0 || rank > RANK_MAX || (room > 0 && subscripts->ellipsis < 0))
    return false;
  for (int i = 0; i <= subscripts->n; i++) {
    for (int e = 0; i == subscripts->ellipsis && e < room; e++)
      term->label[at++] = EINSUM_LABELS - room + e;
    if (i < subscripts->n)
      term->label[at++] = subscripts->label[i];
  }
  return true;
}

static bool has_label(const struct einsum_term *term, int label) {
  for (int d = 0; d < term->rank; d++)
    if (term->label[d] == label)
      return true;
  return false;
}

/* Without "->": the ellipsis, then the letters that occur once, in alphabetical order. */
static void imply_output(const int *occurrences, int ellipsis_rank, struct subscripts *out) {
  *out = (struct subscripts){.ellipsis = ellipsis_rank > 0 ? 0 : -1};
  for (int label = 0; label < EINSUM_ELLIPSIS; label++)
    if (occurrences[label] == 1)
      out->label[out->n++] = label;
}

/* The part behind the last term -> out, whose labels must be those of terms, each once. */
static int read_output(struct einsum *einsum, const struct node *node, const char *at, struct err *err) {
  int occurrences[EINSUM_LABELS] = {0}, ellipsis_rank = 0;
  struct subscripts out;
  for (int t = 0; t < einsum->n_terms; t++)
    for (int d = 0; d < einsum->terms[t].rank; d++)
      occurrences[einsum->terms[t].label[d]]++;
  for (int e = 0; e < RANK_MAX; e++)
    ellipsis_rank += occurrences[EINSUM_ELLIPSIS + e] > 0;
  if (!*at)
    imply_output(occurrences, ellipsis_rank, &out);
  else if (at[1] != '>' || !(at = read_subscripts(at + 2, &out)) || *at)
    return bad_equation(node, err, "is not a list of terms and an output");
  if (!labels_resolve(&out, out.n + (out.ellipsis >= 0 ? ellipsis_rank : 0), &einsum->out))
    return bad_equation(node, err, "gives more dimensions than are supported");
  for (int d = 0; d < einsum->out.rank; d++) {
    int label = einsum->out.label[d];
    if (occurrences[label] == 0)
      return bad_equation(node, err, "has a letter in its output that no term has");
    einsum->out.label[d] = -1;
    if (has_label(&einsum->out, label))
      return bad_equation(node, err, "has a letter twice in its output");
    einsum->out.label[d] = label;
  }
  return ERR_OK;
}

static int read_equation(struct einsum *einsum, const struct graph *graph, const struct node *node,
                         struct err *err) {
  const char *at = node_attr_string(node, "equation", NULL);
  if (!at)
    return node_error(node, err, ERR_INVALID, "attribute 'equation' is missing");
  for (int t = 0; t < einsum->n_terms; t++) {
    struct subscripts subscripts;
    char text[128];
    const struct shape *shape = &node_input(graph, node, t)->shape;
    at = read_subscripts(at, &subscripts);
    if (!at || (*at != ',' && t + 1 < einsum->n_terms))
      return bad_equation(node, err, "is not a list of terms, one for each input");
    if (!labels_resolve(&subscripts, shape->rank, &einsum->terms[t]))
      return node_error(node, err, ERR_INVALID, "term %d of its equation '%.60s' does not fit shape %s", t,
                        node_attr_string(node, "equation", ""), shape_text(shape, text, sizeof text));
    at += t + 1 < einsum->n_terms;
  }
  if (*at == ',')
    return bad_equation(node, err, "has more terms than there are inputs");
  return read_output(einsum, node, at, err);
}

/* The size of each label: of the dimensions that have it, which agree but for those of size 1. */
static int find_sizes(struct einsum *einsum, const struct graph *graph, const struct node *node,
                      struct err *err) {
  char text[128];
  for (int t = 0; t < einsum->n_terms; t++) {
    const struct shape *shape = &node_input(graph, node, t)->shape;
    for (int d = 0; d < shape->rank; d++) {
      int64_t *size = &einsum->size[einsum->terms[t].label[d]];
      if (shape->dim[d] < 1)
        return node_error(node, err, ERR_INVALID, "input %d of shape %s is empty", t,
                          shape_text(shape, text, sizeof text));
      if (*size > 1 && shape->dim[d] > 1 && *size != shape->dim[d])
        return node_error(node, err, ERR_INVALID,
                          "dimension %d of input %d is %lld; the same letter stands for %lld elsewhere", d, t,
                          (long long)shape->dim[d], (long long)*size);
      if (*size <= 1)
        *size = shape->dim[d];
    }
  }
  return ERR_OK;
}

/* Takes dimensions that are broadcast out of the sum. */
static void drop_broadcast(struct einsum *einsum, const struct graph *graph, const struct node *node) {
  for (int t = 0; t < einsum->n_terms; t++) {
    const struct shape *shape = &node_input(graph, node, t)->shape;
    for (int d = 0; d < shape->rank; d++)
      if (shape->dim[d] == 1 && einsum->size[einsum->terms[t].label[d]] > 1)
        einsum->terms[t].label[d] = -1;
  }
}

/* A gradient node's attributes: the sizes, then [rank, labels] of each term and of the output. */
enum { TERM_INTS = 1 + RANK_MAX };

static int read_terms(struct einsum *einsum, const struct node *node, struct err *err) {
  const struct attr *sizes = node_attr(node, "sizes"), *terms = node_attr(node, "terms");
  if (!sizes || sizes->type != ATTR_INTS || sizes->n != EINSUM_LABELS || !terms || terms->type != ATTR_INTS ||
      terms->n != (einsum->n_terms + 1) * TERM_INTS)
    return node_error(node, err, ERR_INVALID, "its sizes or terms are missing");
  memcpy(einsum->size, sizes->ints, sizeof einsum->size);
  for (int t = 0; t <= einsum->n_terms; t++) {
    struct einsum_term *term = t < einsum->n_terms ? &einsum->terms[t] : &einsum->out;
    const int64_t *from = terms->ints + t * TERM_INTS;
    term->rank = (int)from[0];
    for (int d = 0; d < term->rank; d++)
      term->label[d] = (int)from[1 + d];
  }
  return ERR_OK;
}

int einsum_init(struct einsum *einsum, const struct graph *graph, const struct node *node, struct err *err) {
  *einsum = (struct einsum){.n_terms = node->n_inputs};
  if (node->n_inputs > EINSUM_TERMS_MAX)
    return node_error(node, err, ERR_UNSUPPORTED, "%d operands; at most %d are supported", node->n_inputs,
                      EINSUM_TERMS_MAX);
  if (infer_check_f32(graph, node, err))
    return err->code;
  for (int t = 0; t < node->n_inputs; t++)
    if (!node_input(graph, node, t))
      return node_error(node, err, ERR_INVALID, "input %d is missing", t);
  if (node_attr(node, "terms"))
    return read_terms(einsum, node, err);
  if (read_equation(einsum, graph, node, err) || find_sizes(einsum, graph, node, err))
    return err->code;
  drop_broadcast(einsum, graph, node);
  return ERR_OK;
}

struct shape einsum_out_shape(const struct einsum *einsum) {
  struct shape shape = {.rank = einsum->out.rank};
  for (int d = 0; d < shape.rank; d++)
    shape.dim[d] = einsum->out.label[d] < 0 ? 1 : einsum->size[einsum->out.label[d]];
  return shape;
}

static int einsum_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct einsum einsum;
  struct shape shape;
  if (einsum_init(&einsum, graph, node, err))
    return err->code;
  if (einsum_scratch_elems(&einsum) < 0)
    return node_error(node, err, ERR_UNSUPPORTED,
                      "a product of its first terms is larger than any tensor may be");
  shape = einsum_out_shape(&einsum);
  return infer_f32(graph, node, 0, &shape, err);
}

static void put_term(int64_t *to, const struct einsum_term *term) {
  to[0] = term->rank;
  for (int d = 0; d < term->rank; d++)
    to[1 + d] = term->label[d];
}

/* The gradient of operand i: dY in its place, its labels in the output's. */
static int add_operand_grad(struct graph *graph, const struct node *node, const struct einsum *einsum, int i,
                            int dy) {
  int64_t terms[(EINSUM_TERMS_MAX + 1) * TERM_INTS] = {0};
  int inputs[EINSUM_TERMS_MAX];
  struct attr attrs[] = {attr_of_ints("sizes", einsum->size, EINSUM_LABELS),
                         attr_of_ints("terms", terms, (einsum->n_terms + 1) * TERM_INTS)};
  for (int t = 0; t < einsum->n_terms; t++) {
    inputs[t] = t == i ? dy : node->inputs[t];
    put_term(terms + t * TERM_INTS, t == i ? &einsum->out : &einsum->terms[t]);
  }
  put_term(terms + einsum->n_terms * TERM_INTS, &einsum->terms[i]);
  return backward_node(graph, "EinsumGrad", (struct value_list){inputs, einsum->n_terms},
                       (struct attr_list){attrs, 2});
}

static int einsum_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                           struct err *err) {
  int dy = autodiff_grad(ad, node, 0);
  struct einsum einsum;
  if (einsum_init(&einsum, graph, node, err))
    return err->code;
  for (int i = 0; i < node->n_inputs; i++)
    if (autodiff_wants(ad, node, i))
      autodiff_add(ad, node, i, add_operand_grad(graph, node, &einsum, i, dy));
  return ERR_OK;
}

static int einsum_ref(const struct op_call *call, struct err *err) {
  struct einsum einsum;
  int64_t elems;
  float *scratch;
  if (einsum_init(&einsum, call->graph, call->node, err))
    return err->code;
  elems = einsum_scratch_elems(&einsum);
  scratch = malloc((size_t)elems * sizeof *scratch + 1);
  if (!scratch)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld elements of scratch",
                      (long long)elems);
  einsum_run(&einsum, matrix_multiply_into, call->in, call->out[0].data, scratch);
  free(scratch);
  return ERR_OK;
}

/* As one loop over all labels would take them. */
static double einsum_multiply_adds(const struct graph *graph, const struct node *node) {
  struct einsum einsum;
  struct err err = ERR_NONE;
  double product = node->n_inputs > 1 ? node->n_inputs - 1 : 0;
  if (einsum_init(&einsum, graph, node, &err))
    return 0;
  for (int label = 0; label < EINSUM_LABELS; label++)
    if (einsum.size[label] > 0)
      product *= (double)einsum.size[label];
  return product;
}

static const struct op_case einsum_cases[] = {
    {.inputs = "f32[2,3,4] f32[2,4,5]", .attrs = "equation=bij,bjk->bik"},
    {.inputs = "f32[2,3,2,4] f32[2,5,2,4]", .attrs = "equation=bqhd,bkhd->bhqk"},
    {.inputs = "f32[2,2,3,5] f32[2,5,2,4]", .attrs = "equation=bhqk,bkhd->bqhd"},
    {.inputs = "f32[3,4] f32[3,4]", .attrs = "equation=ij,ij->"},
    {.inputs = "f32[3,4] f32[4,5]", .attrs = "equation=ij,jk->ki"},
    {.inputs = "f32[3,4] f32[4,5]", .attrs = "equation=ij,jk"},
    {.inputs = "f32[4,3]", .attrs = "equation=ba"},
    {.inputs = "f32[3] f32[4]", .attrs = "equation=i,j->ij"},
    {.inputs = "f32[3,4,2]", .attrs = "equation=ijk->j"},
    {.inputs = "f32[3,3]", .attrs = "equation=ii"},
    {.inputs = "f32[2,3,3] f32[3,4]", .attrs = "equation=bii,ij->bj"},
    {.inputs = "f32[2,3,3]", .attrs = "equation=b...ii->b...i"},
    {.inputs = "f32[2,1,3,4] f32[5,4,2]", .attrs = "equation=a...ij,...jk->a...ik"},
    {.inputs = "f32[2,3,4]", .attrs = "equation=a...->...a"},
    {.inputs = "f32[2,3,4] f32[2,1,4]", .attrs = "equation=abc,abc->ab"},
    {.inputs = "f32[2,3] f32[3,4] f32[4,5] f32[5,2]", .attrs = "equation=ab,bc,cd,de->ae"},
    {.inputs = "f32[2,3] f32[2,4] f32[2,5]", .attrs = "equation=bi,bj,bk->bijk"},
    {.inputs = "f32[2,3] f32[4,5]", .attrs = "equation=ij,kl->ik"},
    {.inputs = "f32[3] f32[3] f32[]", .attrs = "equation=i,i,->i"},
    {.inputs = "f32[b,h,q,d] f32[b,h,k,d]",
     .attrs = "equation=e",
     .draw = "b=1..2 h=1..2 q=1..3 k=1..3 d=1..4 "
             "e=BHQD,BHKD->BHQK|BHQD,BHKD->BQHK|BHQD,BHKD->BHKQ|"
             "BHQD,BHKD->KQ|BHQD,BHKD->QBK|BHQD,BHKD->H"},
    {.inputs = "f32[i,j,k] f32[k,j] f32[j,i]",
     .attrs = "equation=e",
     .draw = "i=1..3 j=1..3 k=1..3 e=IJK,KJ,JI->IJK|IJK,KJ,JI->KI|IJK,KJ,JI->J|IJK,KJ,JI->JKI"},
    {0},
};

static const struct op_def einsum_grad;
static const struct op_def *const einsum_gradients[] = {&einsum_grad, NULL};

const struct op_def op_Einsum = {
    .name = "Einsum",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 12,
    .infer = einsum_infer,
    .backward = einsum_backward,
    .ref = einsum_ref,
    .multiply_adds = einsum_multiply_adds,
    .cases = einsum_cases,
    .gradients = einsum_gradients,
};

/* Einsum's inputs with dY in the place of one -> the gradient of that one; sizes, terms */
static const struct op_def einsum_grad = {
    .name = "EinsumGrad",
    .domain = "ai.weir",
    .min_inputs = 1,
    .max_inputs = OP_INPUTS_MAX,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = einsum_infer,
    .ref = einsum_ref,
};

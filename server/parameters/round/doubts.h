/* Doubts of a round: parts, each of them finite, whose sum was not. The round has let go of them, since a sum
   does not tell which of its parts was wrong, and keeps who sent each of them and a hash of its bits. Their
   microbatches are computed again. What comes is compared with what came before, node by node. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_DOUBTS_H
#define WEIR_SERVER_PARAMETERS_ROUND_DOUBTS_H

#include "server/parameters/round/part.h"

/* A part that a round has accepted. */
struct accepted {
  uint64_t hash; /* of its bits */
  uint64_t view;
  uint32_t worker; /* who sent it */
  uint16_t first;  /* its node, canonical */
  uint8_t level;
};

_Static_assert(MICROBATCHES_MAX <= UINT16_MAX + 1, "accepted.first holds any microbatch");

struct tree_node accepted_node(const struct accepted *part);

struct doubt {
  struct accepted part;
  struct tree_node sum; /* which was not finite */
  bool is_second;       /* the sum was doubted once before, and not settled */
  bool has_changed;     /* what has come again has other bits, */
  bool is_repeated;     /* or the same ones as a part of the same node and sender: computed or sent again */
};

struct doubts {
  struct doubt *list;
  int n, capacity;
};

/* What came of the parts of one sum. */
struct judgement {
  enum {
    JUDGEMENT_NONE,      /* the sum was not doubted */
    JUDGEMENT_UNSETTLED, /* see doubts_judge */
    JUDGEMENT_SETTLED
  } outcome;
  bool overflows;           /* the sum is not finite again */
  struct accepted *changed; /* parts of before that had other bits; NULL: none */
  int n_changed;
  uint32_t *computed_by; /* senders of what came in their place, each once */
  int n_computed_by;
};

void judgement_fini(struct judgement *judgement);

void doubts_fini(struct doubts *doubts);
void doubts_clear(struct doubts *doubts);

/* The n parts of this sum are doubted, for the second time if is_second. */
void doubts_add(struct doubts *doubts, struct tree_node sum, bool is_second, const struct accepted *parts,
                int n);

/* True for a node above a doubt's: it would hide what is to be compared. */
bool doubts_keep_out(const struct doubts *doubts, struct tree_node node);

/* The sum of a node, f32[elems], is there; `part` is what came just now. Compares it with the doubt of this
   node, where there is one. */
void doubts_compare(struct doubts *doubts, struct tree_node node, const float *sum, uint32_t elems,
                    const struct accepted *part);

/* A sum is made, of these n parts. What was doubted of it is judged, and doubted no more. Unsettled is a sum
   of several senders that overflows again without a change, if one of them may have sent its part again
   rather than computed it: its parts are to come once more. The caller ends the judgement by judgement_fini.
 */
struct judgement doubts_judge(struct doubts *doubts, struct tree_node sum, bool overflows,
                              const struct accepted *parts, int n);

#endif

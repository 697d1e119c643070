/* Parts of the exchange, for its own files: exchange.c collects and adds, exchange_send.c takes contributions
   to the keeper, exchange_serve.c is the keeper for other servers. */
#ifndef WEIR_SERVER_PARAMETERS_EXCHANGE_EXCHANGE_PARTS_H
#define WEIR_SERVER_PARAMETERS_EXCHANGE_EXCHANGE_PARTS_H

#include "server/parameters/block/block.h"
#include "server/parameters/exchange/exchange.h"
#include "server/parameters/run/run.h"

/* One phase. A block contributes to a step only when it has the totals of the step before. So when all
   contributions to a step are there, nobody asks for older totals any more, and until then they stay. */
struct collection {
  uint64_t step;         /* that is collected; totals are of the step before, unless it is the run's first */
  const double **values; /* [n_blocks]: contributions to it, at the keeper. Others: of ours that wait */
  uint32_t n_missing;    /* contributions to it, at the keeper of all blocks, else of ours */

  /* At the keeper. */
  struct buffer *totals;    /* f64[n_totals] */
  struct buffer *foreign;   /* f64: the contributions of other servers' blocks */
  uint64_t *foreign_begin;  /* [n_blocks] of each block's */
  struct sums_call *parked; /* whose totals are not there yet */
  int n_parked;
  uint64_t parked_values; /* of their requests */
  /* At others. */
  struct batch *open; /* not sent yet; NULL: none */
};

/* Our block of that index, if it has a shared part in the phase; NULL if not. */
struct hosted_block *exchange_own_block(const struct exchange *exchange, uint32_t phase, uint32_t block);
static inline bool exchange_is_keeper(const struct exchange *exchange) {
  return exchange->run->self == 0;
}

/* Takes a contribution: f64[n_values], which stay where they are until the totals are given out. */
void exchange_collect(struct exchange *exchange, uint32_t phase, uint32_t block, const double *values);
/* The totals of a block's windows, as its values lie. */
void collection_read(const struct collection *collection, const struct exchange_share *share, double *out);

/* Our block has its totals where its sums were, or (err not NULL) never will. Gives up values[block]. */
void exchange_release(struct exchange *exchange, uint32_t phase, struct hosted_block *block,
                      const struct err *err);

/* exchange_send.c */
void exchange_send_fini(struct exchange *exchange);
/* Sends the contribution of our block, whose values are collected. is_last: those of all our blocks are, for
   this step. */
void exchange_send(struct exchange *exchange, uint32_t phase, struct hosted_block *block, bool is_last);

/* exchange_serve.c */
int exchange_serve_init(struct exchange *exchange, struct err *err);
void exchange_answer_parked(struct exchange *exchange, uint32_t phase);
void exchange_refuse_parked(struct exchange *exchange, uint32_t phase, const struct err *err);

#endif

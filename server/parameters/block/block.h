/* A block that this server owns: its versions, its optimizer slots, the rounds of the steps that are not
   over, and the calls that wait for versions to come. Only its shard's thread touches a block, except where
   this says otherwise. */
#ifndef WEIR_SERVER_PARAMETERS_BLOCK_BLOCK_H
#define WEIR_SERVER_PARAMETERS_BLOCK_BLOCK_H

#include "common/optim/piece.h"
#include "server/parameters/block/call.h"
#include "common/optim/frozen_ranges.h"
#include "server/parameters/block/older.h"
#include "server/parameters/round/round.h"
#include "server/parameters/round/statistics.h"
#include "server/parameters/snapshot/snapshot.h"

/* The parts of one step of a parameter block. */
struct block_round {
  struct hosted_block *block;
  uint64_t step;
  struct round parts;
};

/* What is sent of a version, where weights are compressed. */
struct sent_version {
  uint64_t version;
  struct buffer *buffer; /* NULL: of none */
};

struct hosted_block {
  struct hosted_run *run;  /* which owns the block */
  struct job_queue *queue; /* the run's at the block's shard */
  struct pool *pool;       /* likewise */
  uint32_t index;          /* in the model */
  uint32_t elems;
  uint32_t part_elems; /* of what is pushed */
  enum block_kind kind;
  bool has_metrics;
  const Weir__OptimizerSpec *options; /* the run's for the group of the parameters; NULL of statistics */

  uint64_t version; /* the newest; written atomically, other threads may load it so */
  /* f32[elems] each, immutable and shared with replies. Older versions stay until a push proves that nobody
     needs them any more (mode_oldest). */
  struct buffer *current;      /* of the newest version */
  struct sent_version sent[2]; /* the nth version at n % 2 (block_sent.c) */
  struct older older;          /* those before it */
  struct buffer *next;         /* reserved for version + 1, not shared */
  struct buffer
      *spare; /* a dropped version's, reused once neither a reply, a snapshot nor a fork refers to it */
  /* Where microbatches are applied by themselves: an evaluated version as it was before the first of them
     that came after it. Until a part proves that nobody needs it. */
  struct buffer *evaluated;
  uint64_t evaluated_version; /* whose it is, or was */
  uint32_t slot_elems; /* of the optimizer's, and behind them the weights' average, where the run keeps one */
  uint32_t mark_elems; /* of them, behind all else: the marks (block_units.c) */
  struct buffer *slots; /* f32[slot_elems] of the newest version; NULL without */
  /* The slots of version + 1, where somebody else, as a snapshot or a fork, refers to those of now, or the
     optimizer drafts; else slots are updated in place. */
  struct buffer *next_slots;
  struct snapshot *snapshot; /* the last one that was begun, a reference; may be over. NULL before */

  /* [the mode's rounds], of a parameter block: step s at s % rounds. NULL where parts are not added */
  struct block_round *rounds;
  struct {
    uint64_t step;        /* whose gradient the update is made of */
    uint64_t count;       /* of updates since the slots began */
    float *grad;          /* f32[elems], to be changed in place */
    struct piece *pieces; /* [n_pieces], where the optimizer works by tensor */
    uint32_t n_pieces;
    struct frozen_ranges frozen;
    struct buffer *sums; /* f64: its sums of each phase, then their totals; NULL without phases */
    uint32_t phase;
    bool is_waiting; /* for totals; the exchange's shard may touch sums, ticket and fault meanwhile */
    struct job ticket;
    struct err *fault; /* why this step's update cannot be made; NULL: nothing is wrong */
  } update;
  struct statistics
      *statistics; /* [likewise], of a statistics block; with step s the evaluation of version s */

  struct parameters_call *parked;
  int n_parked;
};

/* A block of the model at the version that its run begins at: version 0 as the model has it, without slots'
   values; of another one it has neither weights nor slots until it is restored or adopts them. The memory is
   the caller's (zeroed). Errors: NO_MEMORY; fini is due all the same. */
int hosted_block_init(struct hosted_block *block, struct hosted_run *run, const struct model *model,
                      uint32_t index, struct err *err);
/* Of version 0, whose weights are there: what the optimizer and the average begin with. hosted_block_init has
   called it; again where the weights came later. */
void hosted_block_begin(struct hosted_block *block);
/* What a checkpoint has of each block behind its weights, where it is another run's. */
struct block_layout {
  bool has_slots;   /* those of this run's optimizer; false: another's, which are left */
  bool has_average; /* behind them */
};

/* What a checkpoint holds of a block: f32[elems] weights or state, then f32[slot_elems], or as the layout
   says (NULL: so), then f32[n_before, elems], weights or state of the versions before it, the oldest first.
 */
struct block_image {
  const void *data;
  size_t size_bytes;
  const struct block_layout *layout;
  uint32_t n_before;
};

/* What the image lacks of slots and average begins as at version 0. Before any thread touches the block.
   Errors: CORRUPT when the size is another, or it lacks a version that steps are to be computed from;
   NO_MEMORY. */
int hosted_block_restore(struct hosted_block *block, const struct block_image *image, struct err *err);

/* References to what the block has of that version and of n_before before it, for another block. On the
   block's shard. */
struct block_content hosted_block_lend(struct hosted_block *block, uint64_t version, uint32_t n_before);

/* In the place of hosted_block_restore: the block takes references of its own to what another block of the
   same elements has of the version, and of the versions before it that this run needs, laid out as the layout
   says of a checkpoint. Slots that it keeps otherwise are its own, and what the other has of them is copied.
   False, after which nothing has changed: the content lacks something, its sizes are others, or there is no
   memory. Before any thread touches the block. */
bool hosted_block_adopt(struct hosted_block *block, const struct block_layout *layout,
                        const struct block_content *content);
/* Its buffer of that version, NULL if it has none; the block's. On the block's shard. */
struct buffer *hosted_block_find(const struct hosted_block *block, uint64_t version);
void hosted_block_fini(struct hosted_block *block); /* any thread; nothing is parked any more */

/* Counts a part that came, or with is_push false a version that goes, in the run's traffic. Any thread. */
void hosted_block_count(struct hosted_block *block, bool is_push, size_t size_bytes, bool is_shared);

/* Whether workers get its versions in another form than f32. */
bool hosted_block_compresses(const struct hosted_block *block);
/* What workers get of a version, whose weights are given: these, or what the run's compressor makes of them.
   The block's. NULL when out of memory. */
struct buffer *hosted_block_sent(struct hosted_block *block, uint64_t version, struct buffer *weights);
void hosted_block_drop_sent(struct hosted_block *block);

/* What calls do. Each of them is answered or parked. */
void hosted_block_push(struct hosted_block *block, struct parameters_call *call);
void hosted_block_pull(struct hosted_block *block, struct parameters_call *call);
/* Its client has gone: a parked call is finished. */
void hosted_block_forget(struct hosted_block *block, struct parameters_call *call);
/* The run's blocks have all come to its hold, on every server, and the block is there: it keeps the newest
   version alone, and nothing for the next one. Nothing happens where the hold was raised. */
void hosted_block_rest(struct hosted_block *block);
/* The run's hold was raised, or a version made: what the block has kept may make its next one. */
void hosted_block_go_on(struct hosted_block *block);
void hosted_block_refuse_parked(struct hosted_block *block, const struct err *err);
/* Its run is unloaded: refuses all that is parked, and ends the snapshot. */
void hosted_block_cancel(struct hosted_block *block, const struct err *err);

/* What becomes of parts. */
/* Takes the part (or finds that it is late, or covered already), makes each version that is due by then, and
   says in *version which one a worker that waits shall get. Errors: INVALID: all is as before, or the part is
   sound and the update that it completes is not; NO_MEMORY: the part is kept or not, and may come again. */
int hosted_block_take(struct hosted_block *block, const struct part *part, uint64_t *version,
                      struct err *err);
/* Makes each version whose parts are all there, as far as no hold or evaluation is in the way. Errors: those
   of the update. */
int hosted_block_make_versions(struct hosted_block *block, struct err *err);
/* Makes sure that there is memory for the next version, and drops what nobody needs any more: before each
   update, in the same job. Errors: NO_MEMORY. */
int hosted_block_reserve(struct hosted_block *block, struct err *err);
/* The round of a parameter block is complete: the next version is made, once, by clipping and the run's
   optimizer; now, or when the totals are there that it takes. Errors: INVALID, now and for every part that
   still comes, where sums are not finite. */
int hosted_block_complete(struct hosted_block *block, struct err *err);
/* The round of what is kept is complete: the next version is the mean over the replicas, which is their
   parts' sum. */
void hosted_block_complete_kept(struct hosted_block *block);
/* The next version becomes the newest; who waited for it is answered. */
void hosted_block_advance(struct hosted_block *block);
/* True if the present version waits for an evaluation's rows here. */
bool hosted_block_evaluates(const struct hosted_block *block);
/* The present version is the last that is to be computed for now. */
bool hosted_block_is_held(const struct hosted_block *block);
/* It has come to the run's last version, and there is nothing to evaluate here. */
bool hosted_block_is_finished(const struct hosted_block *block);

/* The block is written into a snapshot, in the place of the one before: at once, or when it comes to that
   version. */
void hosted_block_arm(struct hosted_block *block, struct snapshot *snapshot);

/* Marks what the present step lacks here (marks.h); the others' marks stay. chunks: of the evaluation of the
   present version. On the block's shard. */
void hosted_block_missing(const struct hosted_block *block, uint64_t *microbatches, uint64_t *chunks);

/* What the files of this block do for each other. */
/* The version that the part proves to be complete on every server. */
uint64_t hosted_block_proof(const struct hosted_block *block, const struct part *part);
/* A part of a parameter block whose mode applies microbatches by themselves: the update is made, unless the
   part is marked as applied, and so is each version that is complete by then. Errors: INVALID, STALE,
   NO_MEMORY: all is as before. */
int hosted_block_apply_unit(struct hosted_block *block, const struct part *part, struct err *err);
uint32_t hosted_block_mark_elems(const struct hosted_block *block); /* 0: it has none */
/* Which microbatches of the present step were not applied. */
void hosted_block_unmarked(const struct hosted_block *block, uint64_t *microbatches);
/* In a block that begins with the slots of another optimizer: updates are counted anew, marks stay. */
void hosted_block_take_marks(struct hosted_block *block, const void *marks, bool has_slots);
/* The update to be made: of the step's gradient f32[elems], which is clipped, the count-th since the slots
   began. */
void hosted_block_prepare(struct hosted_block *block, uint64_t step, uint64_t count, float *grad);
/* Makes it, of the current weights and slots into the next ones, which are reserved. */
void hosted_block_update(struct hosted_block *block);
/* The next weights are the newest ones; those before stay as far as the mode says. */
void hosted_block_renew(struct hosted_block *block);
/* Its newest version is the one after, whose weights are there. */
void hosted_block_count_version(struct hosted_block *block);
/* Again, whoever waits: more can be answered than before. */
void hosted_block_answer_parked(struct hosted_block *block);
struct round_listener hosted_block_listener(struct block_round *round); /* it reports doubts */
/* Of a step that is not over. */
struct block_round *hosted_block_round(const struct hosted_block *block, uint64_t step);
struct statistics *hosted_block_statistics(const struct hosted_block *block, uint64_t step);
/* f32[elems] of the present step, to be changed in place; NULL while parts are missing. */
float *hosted_block_gradient(const struct hosted_block *block);
int hosted_block_init_update(struct hosted_block *block, const struct model *model, struct err *err);
/* Memory for weights and slots where there is none yet. Errors: NO_MEMORY. */
int hosted_block_allocate(struct hosted_block *block, struct err *err);
int hosted_block_no_memory(const struct hosted_block *block, struct err *err); /* sets it */
/* Before somebody else refers to the slots: an update that waits for totals has reserved its memory already,
   for slots that nothing referred to. On the block's shard. Errors: NO_MEMORY. */
int hosted_block_reserve_slots(struct hosted_block *block, struct err *err);
void hosted_block_fini_update(struct hosted_block *block);
bool hosted_block_slots_are_moved(const struct hosted_block *block); /* the update writes to next_slots */
/* There will be no next version, and err says why. */
bool hosted_block_is_faulty(const struct hosted_block *block, struct err *err);
float *hosted_block_average(const struct hosted_block *block, const struct buffer *slots);

/* For the exchange. set_fault: there will be no totals; on the exchange's shard, while the block waits.
   take_totals comes after it, on the block's shard: the totals of the phase are where the sums were, unless a
   fault was set. */
void hosted_block_set_fault(struct hosted_block *block, const struct err *err);
void hosted_block_take_totals(struct hosted_block *block);

#endif

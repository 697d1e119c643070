/* A run's steps without a network, a group or a loader. */
#include "tests/support/worker/steps_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/message.h"

static struct fixture *fixture; /* of the test that runs: what the steps call has no argument for it */

void steps_fixture_send(const struct transfer_item *item) {
  assert_true(fixture->n_sent < SENT_MAX);
  fixture->sent[fixture->n_sent++] = *item;
  block_pool_give(fixture->run.pool, item->block, item->buffer);
}

void steps_fixture_give(struct outlet *outlet, const struct transfer_item *item) {
  (void)outlet;
  assert_true(fixture->n_given < SENT_MAX);
  fixture->given[fixture->n_given++] = *item;
  block_pool_give(fixture->run.pool, item->block, item->buffer);
}

struct fixture *steps_fixture_new(const struct mode *mode, uint64_t steps) {
  struct fixture *f = fixture = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  f->train.n_values = f->eval.n_values = 4;
  f->params[0] = (struct param){.name = "a", .elems = 3, .train_value = 1, .eval_value = 1};
  f->blocks[0] = (struct block){.kind = BLOCK_PARAMETERS, .begin = 0, .elems = 3};
  f->blocks[1] = (struct block){.kind = BLOCK_STATISTICS, .begin = 0, .elems = METRICS};
  f->model = (struct model){.train = &f->train,
                            .eval = &f->eval,
                            .params = f->params,
                            .n_params = 1,
                            .blocks = f->blocks,
                            .n_blocks = BLOCKS,
                            .n_param_blocks = 1,
                            .n_summed_blocks = 1,
                            .param_elems = 3,
                            .row_elems = METRICS};
  block_map_init(&f->map, &f->model);
  weir__load_run__init(&f->load);
  f->load.run = "test";
  f->run.load = &f->load;
  f->run.loaded.model = &f->model;
  f->run.loaded.plan = (struct plan){.steps = steps, .microbatches = MICROBATCHES};
  f->run.owner = f->owner;
  f->run.pool = block_pool_new(&f->model, backend_find("ref"), 0);
  f->run.phase = RUN_WORKING;
  f->run.is_loaded = true;
  pthread_mutex_init(&f->run.lock, NULL);
  pthread_cond_init(&f->run.changed, NULL);
  steps_init(&f->run, mode);
  assert_int_equal(weights_new(&f->model, f->run.bounds.sets, &f->run.weights, &err), 0);
  return f;
}

void steps_fixture_free(struct fixture *f) {
  steps_clear(&f->run);
  steps_fini(&f->run);
  weights_free(f->run.weights);
  block_pool_free(f->run.pool);
  block_map_fini(&f->map);
  pthread_cond_destroy(&f->run.changed);
  pthread_mutex_destroy(&f->run.lock);
  reissues_clear(&f->run.reissues);
  free(f);
}

void assign(struct fixture *f, uint32_t begin, uint32_t end) {
  f->run.share.microbatches = (struct task_range){begin, end};
  steps_assign(&f->run);
}

void join(struct fixture *f, uint64_t step, struct task_range share) {
  f->run.share.microbatches = share;
  steps_join(&f->run, step);
}

void arrive(struct fixture *f, uint64_t version) {
  for (uint32_t b = 0; b < BLOCKS; b++) {
    float *place = steps_claim_block(&f->run, version, b);
    assert_non_null(place);
    memset(place, 0, f->blocks[b].elems * sizeof *place);
    steps_landed(&f->run, b);
  }
}

struct work begin(struct fixture *f, uint64_t step, uint32_t index) {
  struct work work;
  assert_true(steps_begin(&f->run, NULL, &work));
  assert_int_equal(work.step, step);
  assert_int_equal(work.index, index);
  return work;
}

void deliver(struct fixture *f, const struct work *work) {
  struct tree_node node = {work->index, 0};
  struct buffer *sum = block_pool_take(f->run.pool, 0), *sibling;
  struct reducer_send send;
  while ((sibling = reducer_take(steps_reducer(&f->run, work->step), 0, &node)))
    block_pool_give(f->run.pool, 0, sibling);
  if (reducer_place(steps_reducer(&f->run, work->step), 0, node, sum, &send))
    steps_fixture_send(&(struct transfer_item){
        .block = 0, .step = work->step, .node = send.node, .wait = send.wait, .buffer = sum});
}

int sent_parts(const struct fixture *f, uint64_t step, uint32_t first, uint32_t level) {
  int n = 0;
  for (int i = 0; i < f->n_sent; i++) {
    const struct transfer_item *item = &f->sent[i];
    n += item->kind == TRANSFER_PUSH && item->block == 0 && item->step == step && item->node.first == first &&
         item->node.level == level;
  }
  return n;
}

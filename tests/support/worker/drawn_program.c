/* Programs that are drawn. */
#include "tests/support/worker/drawn_program.h"

#include <stdlib.h>
#include <string.h>

int drawn_below(struct drawn_program *drawn, int n) {
  drawn->state = drawn->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((drawn->state >> 33) % (uint64_t)n);
}

void drawn_program_begin(struct drawn_program *drawn, uint64_t seed, int n_nodes) {
  memset(drawn, 0, sizeof *drawn);
  drawn->state = seed * 2 + 1;
  drawn->program = (struct replay_program){.steps = drawn->steps, .roots = drawn->roots, .n_forward = -1};
  drawn->staged = (struct staged_program){&drawn->program, drawn->spans, n_nodes};
}

int drawn_root(struct drawn_program *drawn, size_t size_bytes, bool is_planned) {
  CHECK(drawn->program.n_roots < DRAWN_ROOTS_MAX);
  drawn->roots[drawn->program.n_roots] = (struct replay_root){size_bytes, is_planned};
  return drawn->program.n_roots++;
}

int drawn_step(struct drawn_program *drawn, int first, int last) {
  int step = drawn->program.n_steps++;
  CHECK(step < DRAWN_STEPS_MAX);
  drawn->steps[step] = (struct replay_step){.uses = drawn->uses[step], .cost = 1 + drawn_below(drawn, 50)};
  drawn->spans[step] = (struct stage_span){first, last};
  return step;
}

void drawn_use(struct drawn_program *drawn, int step, int root, bool is_written) {
  CHECK(drawn->steps[step].n_uses < DRAWN_USES_MAX);
  drawn->uses[step][drawn->steps[step].n_uses++] = (struct replay_use){root, is_written};
}

void drawn_forward_end(struct drawn_program *drawn) {
  drawn->program.n_forward = drawn->program.n_steps;
}

int drawn_step_of(struct drawn_program *drawn, int node, struct drawn_reads reads, size_t size_bytes) {
  int step = drawn_step(drawn, node, node), root = drawn_root(drawn, size_bytes, true);
  drawn_use(drawn, step, reads.root, false);
  if (reads.also >= 0)
    drawn_use(drawn, step, reads.also, false);
  drawn_use(drawn, step, root, true);
  return root;
}

static bool step_uses(const struct replay_step *step, int root, bool is_written) {
  for (int u = 0; u < step->n_uses; u++)
    if (step->uses[u].root == root && step->uses[u].is_written == is_written)
      return true;
  return false;
}

static int content_add(struct drawn_program *drawn, int root, int maker) {
  drawn->contents[drawn->n_contents] = (struct drawn_content){root, maker, false};
  return drawn->n_contents++;
}

/* held: by root. */
static void use_settle(struct drawn_program *drawn, int s, int u, int *held) {
  const struct replay_use *use = &drawn->uses[s][u];
  drawn->contents_of[s][u] = -1;
  drawn->is_written[use->root] |= use->is_written;
  if (!drawn->roots[use->root].is_planned)
    return;
  int content = held[use->root];
  if (!use->is_written && content < 0) {
    drawn->is_input[use->root] = true;
    content = content_add(drawn, use->root, -1);
  } else if (use->is_written && content >= 0 && !step_uses(&drawn->steps[s], use->root, false)) {
    drawn->is_added[s][u] = true;
    drawn->contents[content].maker = s;
    drawn->contents[content].is_shared = true;
  } else if (use->is_written) {
    content = content_add(drawn, use->root, s);
  }
  drawn->contents_of[s][u] = held[use->root] = content;
}

void drawn_program_settle(struct drawn_program *drawn) {
  static int held[DRAWN_ROOTS_MAX];
  memset(held, -1, sizeof held);
  if (drawn->program.n_forward < 0)
    drawn_forward_end(drawn);
  for (int s = 0; s < drawn->program.n_steps; s++)
    for (int pass = 0; pass < 2; pass++)
      for (int u = 0; u < drawn->steps[s].n_uses; u++)
        if (drawn->uses[s][u].is_written == (pass == 1))
          use_settle(drawn, s, u, held);
  for (int r = 0; r < drawn->program.n_roots; r++)
    drawn->is_of_context[r] = drawn->roots[r].is_planned;
  for (int s = 0; s < drawn->program.n_steps; s++)
    for (int u = 0; u < drawn->steps[s].n_uses; u++)
      drawn->is_of_context[drawn->uses[s][u].root] |=
          drawn->uses[s][u].is_written && drawn->spans[s].first >= 0;
}

/* What a program is drawn with. */
struct pen {
  struct drawn_program *drawn;
  bool is_plain;
  int known[DRAWN_ROOTS_MAX], n_known; /* planned roots that hold something */
  int hosts[4], weights[4], n_weights; /* weights[]: what its fetch writes; -1: not fetched yet */
};

/* The last ones are drawn more often. */
static int draw_known(struct pen *pen) {
  int n = pen->n_known, near = n < 4 ? n : 4;
  return pen
      ->known[n - 1 -
              (drawn_below(pen->drawn, 6) ? drawn_below(pen->drawn, near) : drawn_below(pen->drawn, n))];
}

static int draw_new(struct pen *pen, int step) {
  int root = drawn_root(pen->drawn, (size_t)(1 + drawn_below(pen->drawn, 20)) * 8, true);
  drawn_use(pen->drawn, step, root, true);
  pen->known[pen->n_known++] = root;
  return root;
}

/* A weight, behind the step of nobody that fetches it if nobody did before. */
static int draw_weight(struct pen *pen) {
  struct drawn_program *drawn = pen->drawn;
  int w = drawn_below(drawn, pen->n_weights);
  if (pen->weights[w] < 0) {
    int fetch = drawn_step(drawn, -1, -1);
    pen->weights[w] = drawn_root(drawn, 40, false);
    drawn->steps[fetch].is_once = true;
    drawn_use(drawn, fetch, pen->hosts[w], false);
    drawn_use(drawn, fetch, pen->weights[w], true);
  }
  return pen->weights[w];
}

/* A reorder: of nobody, mostly into a root of its own. */
static void draw_nobody(struct pen *pen) {
  struct drawn_program *drawn = pen->drawn;
  int step = drawn_step(drawn, -1, -1), from = draw_known(pen);
  drawn_use(drawn, step, from, false);
  if (drawn_below(drawn, 4) == 0)
    drawn_use(drawn, step, draw_known(pen), false);
  if (drawn_below(drawn, 8) == 0)
    drawn_use(drawn, step, from, true);
  else
    draw_new(pen, step);
}

static void draw_delivery(struct pen *pen, const struct stage_span *span) {
  struct drawn_program *drawn = pen->drawn;
  int step = drawn_step(drawn, span->first, span->last);
  drawn->steps[step].is_once = true;
  drawn_use(drawn, step, draw_known(pen), false);
}

/* Over what it reads, added to what is there, or anew. */
static void draw_writes(struct pen *pen, int step) {
  struct drawn_program *drawn = pen->drawn;
  int old = drawn->uses[step][0].root, kind = drawn_below(drawn, 40);
  if (kind < 10) {
    drawn_use(drawn, step, old, true);
  } else if (kind == 10 && !pen->is_plain) {
    drawn_use(drawn, step, draw_known(pen), true);
  } else if (kind == 11 && !pen->is_plain) {
    int kept = drawn_root(drawn, 32, false);
    drawn_use(drawn, step, kept, true);
    pen->known[pen->n_known++] = kept;
  } else {
    for (int writes = 1 + (kind > 35); writes > 0; writes--)
      draw_new(pen, step);
  }
}

/* also: what it reads besides; -1. */
static void draw_step(struct pen *pen, const struct stage_span *span, int also) {
  struct drawn_program *drawn = pen->drawn;
  int weight = drawn_below(drawn, 3) == 0 ? draw_weight(pen) : -1;
  int step = drawn_step(drawn, span->first, span->last);
  drawn_use(drawn, step, draw_known(pen), false);
  if (drawn_below(drawn, 2))
    drawn_use(drawn, step, draw_known(pen), false);
  if (also >= 0)
    drawn_use(drawn, step, also, false);
  if (weight >= 0)
    drawn_use(drawn, step, weight, false);
  draw_writes(pen, step);
  if (drawn_below(drawn, 6) == 0)
    draw_nobody(pen);
  if (drawn_below(drawn, 8) == 0)
    draw_delivery(pen, span);
}

static void draw_forward(struct pen *pen) {
  struct drawn_program *drawn = pen->drawn;
  int n_nodes = drawn->staged.n_nodes;
  for (int node = 0; node < n_nodes;) {
    struct stage_span span = {node, node};
    if (drawn_below(drawn, 8) == 0)
      span.last += drawn_below(drawn, 3);
    if (drawn_below(drawn, 25) == 0)
      span.first = span.last = drawn_below(drawn, node + 1);
    span.last = span.last < n_nodes ? span.last : n_nodes - 1;
    for (int steps = 1 + drawn_below(drawn, 2); steps > 0; steps--)
      draw_step(pen, &span, -1);
    node = (span.last < node ? node : span.last) + 1;
  }
}

/* For each forward step with nodes, from the last one, some that read what it wrote. */
static void draw_backward(struct pen *pen) {
  struct drawn_program *drawn = pen->drawn;
  for (int s = drawn->program.n_forward - 1; s >= 0; s--) {
    const struct replay_step *step = &drawn->steps[s];
    int written = drawn->uses[s][step->n_uses - 1].root;
    if (drawn->spans[s].first < 0 || !drawn->roots[written].is_planned)
      continue;
    if (drawn_below(drawn, 6) == 0)
      draw_nobody(pen);
    for (int steps = drawn_below(drawn, 3); steps > 0; steps--)
      draw_step(pen, &drawn->spans[s], drawn_below(drawn, 4) ? written : -1);
  }
}

/* Deliveries may read on until their bytes are written over. */
static void draw_until(struct drawn_program *drawn) {
  for (int s = 0; s < drawn->program.n_steps; s++) {
    struct replay_step *step = &drawn->steps[s];
    int until = s, wanted = s + drawn_below(drawn, 20);
    if (!step->is_once || step->n_uses != 1)
      continue;
    while (until < wanted && until + 1 < drawn->program.n_steps &&
           !step_uses(&drawn->steps[until + 1], step->uses[0].root, true))
      until++;
    step->until = until;
  }
}

void drawn_program_draw(struct drawn_program *drawn, uint64_t seed, bool is_plain) {
  struct pen pen = {.drawn = drawn, .is_plain = is_plain};
  drawn_program_begin(drawn, seed, 1);
  drawn->staged.n_nodes = 2 + drawn_below(drawn, 24);
  for (int i = 1 + drawn_below(drawn, 3); i > 0; i--)
    pen.known[pen.n_known++] = drawn_root(drawn, 48, true);
  for (pen.n_weights = 0; pen.n_weights < 4; pen.n_weights++) {
    pen.hosts[pen.n_weights] = drawn_root(drawn, 24, false);
    pen.weights[pen.n_weights] = -1;
  }
  draw_forward(&pen);
  drawn_forward_end(drawn);
  if (drawn_below(drawn, 10))
    draw_backward(&pen);
  draw_until(drawn);
  drawn_program_settle(drawn);
}

uint64_t drawn_step_hash(const struct drawn_program *drawn, int s, unsigned char *const *data) {
  const struct replay_step *step = &drawn->steps[s];
  uint64_t hash = 0xcbf29ce484222325u + (uint64_t)s;
  for (int u = 0; u < step->n_uses; u++)
    for (size_t i = 0; i < drawn->roots[step->uses[u].root].size_bytes && !step->uses[u].is_written; i++)
      hash = (hash ^ data[u][i]) * 0x100000001b3u;
  return hash;
}

static void bytes_fill(unsigned char *bytes, size_t size_bytes, uint64_t hash) {
  for (size_t i = 0; i < size_bytes; i++) {
    hash = hash * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = (unsigned char)(hash >> 56);
  }
}

/* What it adds to keeps its second half. */
uint64_t drawn_step_run(const struct drawn_program *drawn, int s, unsigned char *const *data) {
  const struct replay_step *step = &drawn->steps[s];
  uint64_t hash = drawn_step_hash(drawn, s, data);
  for (int u = 0; u < step->n_uses; u++) {
    size_t size_bytes = drawn->roots[step->uses[u].root].size_bytes;
    if (step->uses[u].is_written)
      bytes_fill(data[u], drawn->is_added[s][u] ? size_bytes / 2 : size_bytes, hash + (uint64_t)u);
  }
  return hash;
}

void drawn_root_fill(const struct drawn_program *drawn, int root, int microbatch, unsigned char *data) {
  size_t size_bytes = drawn->roots[root].size_bytes;
  if (drawn->is_input[root] || !drawn->is_written[root])
    bytes_fill(data, size_bytes,
               (uint64_t)root + (drawn->is_input[root] ? 1000000u * (uint64_t)microbatch : 0));
  else
    memset(data, 0xa5, size_bytes);
}

void drawn_program_run(const struct drawn_program *drawn, int microbatch, uint64_t *seen) {
  static unsigned char *data[DRAWN_ROOTS_MAX];
  for (int r = 0; r < drawn->program.n_roots; r++) {
    data[r] = mem_new(drawn->roots[r].size_bytes + 1);
    drawn_root_fill(drawn, r, microbatch, data[r]);
  }
  for (int s = 0; s < drawn->program.n_steps; s++) {
    unsigned char *arguments[DRAWN_USES_MAX];
    for (int u = 0; u < drawn->steps[s].n_uses; u++)
      arguments[u] = data[drawn->uses[s][u].root];
    seen[s] = drawn_step_run(drawn, s, arguments);
  }
  for (int r = 0; r < drawn->program.n_roots; r++)
    free(data[r]);
}

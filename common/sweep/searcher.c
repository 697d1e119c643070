/* The table of searchers. */
#include "common/sweep/searcher.h"

#include "common/base/def_table.h"

#define SEARCHER(name) extern const struct searcher_def searcher_##name;
#include "common/sweep/searcher.def"
#undef SEARCHER

static const struct searcher_def *const defs[] = {
#define SEARCHER(name) &searcher_##name,
#include "common/sweep/searcher.def"
#undef SEARCHER
};
static const struct def_table searchers = DEF_TABLE(defs);

const struct searcher_def *searcher_find(const char *name) {
  return def_find(&searchers, name);
}

const struct searcher_def *searcher_at(int index) {
  return def_at(&searchers, index);
}

int searcher_settle(Weir__SweepSearch *options, const struct space *space, struct err *err) {
  static const char *const shared[] = {"name", "seed", NULL};
  const struct searcher_def *searcher = searcher_find(options->name);
  char known[DEF_NAMES_SIZE];
  struct option_table table = {.path = "search", .row = options->name, .shared = shared};
  if (!searcher)
    return err_set(err, ERR_INVALID, "search.name: unknown searcher '%.60s'; known: %s", options->name,
                   def_names(&searchers, ", ", known));
  table.rules = searcher->options;
  if (options_settle(options, &table, err))
    return err->code;
  return searcher->check ? searcher->check(space, options, err) : 0;
}

int search_suggest(const struct search *search, double *point, struct err *err) {
  if (searcher_find(search->options->name)->suggest(search, point, err))
    return err->code;
  space_activate(search->space, point);
  CHECK(space_holds(search->space, point));
  return 0;
}

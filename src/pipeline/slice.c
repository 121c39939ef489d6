#include "pipeline/slice.h"

#include <stdlib.h>

struct slice *slice_new(size_t ndestinations, struct budget *budget)
{
    struct slice *s = xcalloc(1, sizeof *s);
    s->seqs = xcalloc(ndestinations, sizeof *s->seqs);
    s->ndestinations = ndestinations;
    s->budget = budget;
    return s;
}

void slice_free(struct slice *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->nroutes; i++)
        route_unref(s->routes[i]);
    budget_release(s->budget, &s->permit);
    buf_free(&s->frames);
    free(s->routes);
    free(s->seqs);
    free(s);
}

uint32_t slice_route(struct slice *s, struct route *route)
{
    for (uint32_t i = s->nroutes; i > 0; i--) /* the newest first: rows come in runs */
        if (s->routes[i - 1] == route)
            return i - 1;
    if (s->nroutes == s->routes_cap) {
        s->routes_cap = s->routes_cap == 0 ? 8 : 2 * s->routes_cap;
        s->routes = xrealloc(s->routes, s->routes_cap * sizeof(struct route *));
    }
    s->routes[s->nroutes] = route_ref(route);
    return s->nroutes++;
}

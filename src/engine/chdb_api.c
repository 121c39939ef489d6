#include "engine/chdb_api.h"

#include "base/buf.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where script/setup puts it, below the checkout. */
static const char *const deps_names[] = {".deps/libchdb.so",
                                         ".deps/node_modules/@chdb/lib-linux-x64-gnu/libchdb.so"};

/* Opens one place; a failure is noted in `tried`. */
static void *library_try(const char *path, struct buf *tried)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib == NULL)
        buf_printf(tried, "%s%s", tried->len > 0 ? "; " : "", dlerror());
    return lib;
}

/* The package that script/setup puts beside a checkout's build directory. */
static void *library_try_deps(struct buf *tried)
{
    char exe[PATH_MAX], path[PATH_MAX + 128];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = 0;
    /* beside the program, then beside its directory */
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (slash == NULL)
            return NULL;
        *slash = 0;
        for (size_t i = 0; i < LENGTH(deps_names); i++) {
            snprintf(path, sizeof path, "%s/%s", exe, deps_names[i]);
            void *lib = access(path, R_OK) == 0 ? library_try(path, tried) : NULL;
            if (lib != NULL)
                return lib;
        }
    }
    return NULL;
}

static void *library_open(const char *library, struct buf *tried)
{
    if (library == NULL || library[0] == 0)
        library = getenv("WALSHADOW_LIBCHDB");
    if (library != NULL && library[0] != 0)
        return library_try(library, tried); /* named: no other one is taken in its place */
    void *lib = library_try("libchdb.so", tried);
    return lib != NULL ? lib : library_try_deps(tried);
}

enum status chdb_api_load(const char *library, struct chdb_api *ret_api, struct error *err)
{
    CLEANUP_BUF struct buf tried = {0};
    void *lib = library_open(library, &tried);
    if (lib == NULL)
        return error_set(
            err, ERR_CONFIG,
            "libchdb.so cannot be loaded (%s); run script/setup, or name it with --libchdb",
            buf_cstr(&tried));
    struct chdb_api api;
#define CHDB_API_RESOLVE(name, ret, args)                                                          \
    *(void **)&api.name = dlsym(lib, #name);                                                       \
    if (api.name == NULL)                                                                          \
        return error_set(err, ERR_CONFIG,                                                          \
                         "libchdb.so lacks %s: version 26.7.0 or later is needed", #name);
    CHDB_API_FUNCTIONS(CHDB_API_RESOLVE)
#undef CHDB_API_RESOLVE
    *ret_api = api;
    return OK;
}

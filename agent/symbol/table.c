/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "symbol/demangle.h"

#define MAX_FUNCTIONS (1U << 20)
#define SYMBOL_BYTES  2100
/* Names of one place that are looked at, of which the best is taken. */
#define MAX_ALIASES 16
/* Places whose names are kept. */
#define NAMES_MAX 512

struct function {
    uint64_t start : 63;
    uint64_t local : 1;
    uint32_t size; /* 0 = up to the next one */
    uint32_t name;
};

struct ltn_symtab {
    int fd;
    struct ltn_elf *elf;
    unsigned which; /* LTN_ELF_DYNSYM or LTN_ELF_SYMTAB */
    struct function *functions;
    size_t count;
    size_t room;
    struct ltn_map names; /* place -> its name as it was told, "" = none */
};

static int add(void *arg, const struct ltn_elf_function *f)
{
    struct ltn_symtab *t = arg;
    if (t->count == t->room) {
        size_t room = t->room == 0 ? 256 : t->room * 2;
        if (room > MAX_FUNCTIONS) {
            return LTN_ERR_COUNT;
        }
        struct function *more = realloc(t->functions, room * sizeof(*more));
        if (more == NULL) {
            return -ENOMEM;
        }
        t->functions = more;
        t->room = room;
    }
    t->functions[t->count++] = (struct function){
        .start = f->file_offset & (UINT64_MAX >> 1),
        .local = f->rank == 0,
        .size = f->size_bytes < UINT32_MAX ? (uint32_t)f->size_bytes : UINT32_MAX,
        .name = f->name,
    };
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct function *x = a;
    const struct function *y = b;
    if (x->start != y->start) {
        return x->start < y->start ? -1 : 1;
    }
    if (x->local != y->local) {
        return x->local ? 1 : -1; /* what is exported comes first */
    }
    return x->name < y->name ? -1 : x->name > y->name;
}

static void arrange(struct ltn_symtab *t)
{
    if (t->count == 0) {
        return;
    }
    qsort(t->functions, t->count, sizeof(*t->functions), by_start);
    struct function *less = realloc(t->functions, t->count * sizeof(*less));
    if (less != NULL) {
        t->functions = less;
        t->room = t->count;
    }
}

static int load(struct ltn_symtab *t)
{
    static const unsigned tables[] = {LTN_ELF_SYMTAB, LTN_ELF_DYNSYM};
    int rc = ltn_elf_open_fd(t->fd, &t->elf);
    for (size_t i = 0; rc == 0 && t->count == 0 && i < LTN_ARRAY_SIZE(tables); i++) {
        t->which = tables[i];
        rc = ltn_elf_functions(t->elf, t->which, add, t);
    }
    if (rc == 0) {
        arrange(t);
    }
    return rc;
}

int ltn_symtab_open(int fd, struct ltn_symtab **ret)
{
    struct ltn_symtab *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        (void)close(fd);
        return -ENOMEM;
    }
    t->fd = fd;
    ltn_map_init(&t->names, NAMES_MAX);
    int rc = load(t);
    if (rc < 0) {
        ltn_symtab_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void ltn_symtab_free(struct ltn_symtab *t)
{
    if (t == NULL) {
        return;
    }
    ltn_symtab_rest(t);
    ltn_map_done(&t->names, free);
    free(t->functions);
    free(t);
}

void ltn_symtab_rest(struct ltn_symtab *t)
{
    ltn_elf_free(t->elf);
    t->elf = NULL;
    if (t->fd >= 0) {
        (void)close(t->fd);
        t->fd = -1;
    }
}

int ltn_symtab_wake(struct ltn_symtab *t, int fd)
{
    if (t->fd >= 0) {
        (void)close(fd);
        return 0;
    }
    t->fd = fd;
    int rc = ltn_elf_open_fd(fd, &t->elf);
    if (rc < 0) {
        ltn_symtab_rest(t);
    }
    return rc;
}

/* First of the functions that start together, last before or at the place; count when there is
 * none. */
static size_t find(const struct ltn_symtab *t, uint64_t file_offset)
{
    size_t low = 0;
    size_t high = t->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->functions[middle].start <= file_offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return t->count;
    }
    size_t first = low - 1;
    while (first > 0 && t->functions[first - 1].start == t->functions[first].start) {
        first--;
    }
    return first;
}

/* Is a a better name than b? The library's own aliases begin with underscores. */
static bool is_better(const char *a, const char *b)
{
    size_t x = strspn(a, "_");
    size_t y = strspn(b, "_");
    if (x != y) {
        return x < y;
    }
    return strcmp(a, b) < 0;
}

static int read_name(const struct ltn_symtab *t, uint64_t file_offset, char *out, size_t size)
{
    char best[SYMBOL_BYTES] = "";
    size_t first = find(t, file_offset);
    if (first == t->count) {
        return LTN_ERR_NOT_FOUND;
    }
    const struct function *f = &t->functions[first];
    bool holds = false;
    for (size_t i = 0; first + i < t->count && i < MAX_ALIASES && f[i].start == f->start; i++) {
        char name[SYMBOL_BYTES];
        holds = holds || f[i].size == 0 || file_offset - f->start < f[i].size;
        if (f[i].local != f->local && best[0] != '\0') {
            continue;
        }
        int rc = ltn_elf_name(t->elf, t->which, f[i].name, name, sizeof(name));
        if (rc < 0) {
            return rc;
        }
        if (name[0] != '\0' && (best[0] == '\0' || is_better(name, best))) {
            memcpy(best, name, sizeof(best));
        }
    }
    if (!holds || best[0] == '\0') {
        return LTN_ERR_NOT_FOUND;
    }
    ltn_demangle(best, out, size);
    return 0;
}

/* Without room for it the name is read again next time. */
static void keep_name(struct ltn_symtab *t, uint64_t key, const char *name)
{
    char *copy = t->names.len < NAMES_MAX ? strdup(name) : NULL;
    if (copy != NULL && ltn_map_put_u64(&t->names, key, copy) != 0) {
        free(copy);
    }
}

int ltn_symtab_name(struct ltn_symtab *t, uint64_t file_offset, char *out, size_t size)
{
    const char *known = ltn_map_get_u64(&t->names, file_offset);
    if (known != NULL) {
        (void)snprintf(out, size, "%s", known);
        return known[0] != '\0' ? 0 : LTN_ERR_NOT_FOUND;
    }
    if (t->elf == NULL) {
        return -EBADF;
    }
    int rc = read_name(t, file_offset, out, size);
    if (rc == 0 || rc == LTN_ERR_NOT_FOUND) {
        keep_name(t, file_offset, rc == 0 ? out : "");
    }
    return rc;
}

const struct ltn_elf_info *ltn_symtab_info(const struct ltn_symtab *t)
{
    return t->elf != NULL ? ltn_elf_info(t->elf) : NULL;
}

size_t ltn_symtab_bytes(const struct ltn_symtab *t)
{
    return sizeof(*t) + t->room * sizeof(*t->functions);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "symbol/demangle.h"

#define MAX_FUNCTIONS (1U << 20)
#define SYMBOL_BYTES  2100
/* While sorting, the lowest bits of the start say how good the name is. */
#define RANK_BITS 2

struct function {
    uint64_t start;
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
        .start = f->file_offset << RANK_BITS | (uint64_t)(3 - f->rank),
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
    return x->name < y->name ? -1 : x->name > y->name;
}

/* Sorts, and keeps the best name of each place. */
static void arrange(struct ltn_symtab *t)
{
    if (t->count == 0) {
        return;
    }
    qsort(t->functions, t->count, sizeof(*t->functions), by_start);
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct function f = t->functions[i];
        f.start >>= RANK_BITS;
        if (n == 0 || t->functions[n - 1].start != f.start) {
            t->functions[n++] = f;
        } else if (t->functions[n - 1].size < f.size) {
            t->functions[n - 1].size = f.size;
        }
    }
    t->count = n;
    struct function *less = realloc(t->functions, n * sizeof(*less));
    if (less != NULL) {
        t->functions = less;
        t->room = n;
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
    ltn_elf_free(t->elf);
    (void)close(t->fd);
    free(t->functions);
    free(t);
}

/* The last function that starts at or before the place; NULL when there is none. */
static const struct function *at_or_before(const struct ltn_symtab *t, uint64_t file_offset)
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
    return low > 0 ? &t->functions[low - 1] : NULL;
}

int ltn_symtab_name(const struct ltn_symtab *t, uint64_t file_offset, char *out, size_t size)
{
    char symbol[SYMBOL_BYTES];
    const struct function *f = at_or_before(t, file_offset);
    if (f == NULL || (f->size != 0 && file_offset - f->start >= f->size)) {
        return LTN_ERR_NOT_FOUND;
    }
    int rc = ltn_elf_name(t->elf, t->which, f->name, symbol, sizeof(symbol));
    if (rc < 0) {
        return rc;
    }
    if (symbol[0] == '\0') {
        return LTN_ERR_NOT_FOUND;
    }
    ltn_demangle(symbol, out, size);
    return 0;
}

const struct ltn_elf_info *ltn_symtab_info(const struct ltn_symtab *t)
{
    return ltn_elf_info(t->elf);
}

size_t ltn_symtab_bytes(const struct ltn_symtab *t)
{
    return sizeof(*t) + t->room * sizeof(*t->functions);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_codes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "symbol/python_line.h"
#include "symbol/python_text.h"

#define MAX_CODES       65536u
#define MAX_TABLE_BYTES (LTN_PYTHON_PARTS * LTN_PYTHON_PART_BYTES)

/* One code object; file, function and table lie behind it. */
struct code {
    uint64_t identity;
    struct ltn_python_table table;
    uint32_t first_traceable;
    size_t bytes; /* of this allocation */
    bool used;    /* since the table of codes was last full */
    char *file;
    char *function;
    uint8_t *lines;
};

struct ltn_python_codes {
    struct ltn_map by_identity;
    size_t max_bytes;
    struct ltn_python_codes_stats stats;
};

struct ltn_python_codes *ltn_python_codes_new(size_t max_bytes)
{
    struct ltn_python_codes *c = calloc(1, sizeof(*c));
    if (c != NULL) {
        ltn_map_init(&c->by_identity, MAX_CODES);
        c->max_bytes = max_bytes;
    }
    return c;
}

void ltn_python_codes_free(struct ltn_python_codes *c)
{
    if (c != NULL) {
        ltn_map_done(&c->by_identity, free);
        free(c);
    }
}

static void forget(struct ltn_python_codes *c, uint64_t identity)
{
    struct code *code = ltn_map_del_u64(&c->by_identity, identity);
    if (code != NULL) {
        c->stats.bytes_now -= code->bytes;
        c->stats.codes_now--;
        free(code);
    }
}

/* Lets go of what was not asked for since the last time; 0 or -ENOMEM. */
static int let_unused_go(struct ltn_python_codes *c)
{
    uint64_t *gone = calloc(c->stats.codes_now + 1, sizeof(*gone));
    if (gone == NULL) {
        return -ENOMEM;
    }
    size_t count = 0;
    size_t pos = 0;
    struct code *code;
    while ((code = ltn_map_next(&c->by_identity, &pos)) != NULL) {
        if (!code->used) {
            gone[count++] = code->identity;
        }
        code->used = false;
    }
    for (size_t i = 0; i < count; i++) {
        forget(c, gone[i]);
    }
    c->stats.dropped_total += count;
    free(gone);
    return 0;
}

static bool fits(const struct ltn_python_codes *c, size_t bytes)
{
    return c->stats.bytes_now + bytes <= c->max_bytes && c->stats.codes_now < MAX_CODES;
}

/* First what nobody asked for lately goes, then the rest. */
static int make_room(struct ltn_python_codes *c, size_t bytes)
{
    int rc = 0;
    for (int round = 0; round < 2 && rc == 0 && !fits(c, bytes); round++) {
        rc = let_unused_go(c);
    }
    return rc == 0 && !fits(c, bytes) ? LTN_ERR_COUNT : rc;
}

static bool is_sound(const struct ltn_event_python_code *e, size_t size)
{
    bool widths = (e->file_kind == 1 || e->file_kind == 2 || e->file_kind == 4) &&
                  (e->name_kind == 1 || e->name_kind == 2 || e->name_kind == 4);
    return size == sizeof(*e) && e->identity != 0 && e->part_bytes <= LTN_PYTHON_PART_BYTES &&
           e->part_at <= MAX_TABLE_BYTES - LTN_PYTHON_PART_BYTES &&
           (uint64_t)e->part_at + e->part_bytes <= e->table_bytes &&
           (e->part_at != 0 || (widths && e->file_bytes <= LTN_PYTHON_FILE_BYTES &&
                                e->name_bytes <= LTN_PYTHON_NAME_BYTES));
}

/* A text as clean UTF-8, marked when it had to be cut. */
static size_t text_of(char out[LTN_PYTHON_TEXT_BYTES], const char *data, size_t n, unsigned width,
                      bool cut)
{
    static const char more[] = "\xe2\x80\xa6";
    size_t room = LTN_PYTHON_TEXT_BYTES - sizeof(more);
    size_t len = ltn_python_text(out, room, data, n, width);
    if (cut) {
        memcpy(out + len, more, sizeof(more));
        len += sizeof(more) - 1;
    }
    return len;
}

static struct code *code_alloc(const struct ltn_event_python_code *e)
{
    char file[LTN_PYTHON_TEXT_BYTES];
    char name[LTN_PYTHON_TEXT_BYTES];
    size_t file_len = text_of(file, e->file, e->file_bytes, e->file_kind, e->file_cut != 0);
    size_t name_len = text_of(name, e->name, e->name_bytes, e->name_kind, e->name_cut != 0);
    size_t lines = e->table_bytes < MAX_TABLE_BYTES ? e->table_bytes : MAX_TABLE_BYTES;
    size_t bytes = sizeof(struct code) + file_len + name_len + 2 + lines;
    struct code *code = calloc(1, bytes);
    if (code == NULL) {
        return NULL;
    }
    char *at = (char *)(code + 1);
    *code = (struct code){
        .identity = e->identity,
        .table = {.version = e->version, .first_line = e->first_line, .whole = e->table_bytes},
        .first_traceable = e->first_traceable,
        .bytes = bytes,
        .file = at,
        .function = at + file_len + 1,
        .lines = (uint8_t *)at + file_len + name_len + 2,
    };
    memcpy(code->file, file, file_len);
    memcpy(code->function, name, name_len);
    code->table.data = code->lines;
    return code;
}

static int add_first(struct ltn_python_codes *c, const struct ltn_event_python_code *e)
{
    struct code *code = code_alloc(e);
    if (code == NULL) {
        return -ENOMEM;
    }
    forget(c, e->identity); /* told again: as the kernel forgot that it told us */
    int rc = make_room(c, code->bytes);
    if (rc == 0) {
        rc = ltn_map_put_u64(&c->by_identity, e->identity, code);
    }
    if (rc < 0) {
        free(code);
        return rc;
    }
    memcpy(code->lines, e->part, e->part_bytes);
    code->table.size = e->part_bytes;
    c->stats.bytes_now += code->bytes;
    c->stats.codes_now++;
    c->stats.added_total++;
    return 0;
}

/* The table grows only where it ended: a part that follows a missing one is no use. */
static int add_part(struct ltn_python_codes *c, const struct ltn_event_python_code *e)
{
    struct code *code = ltn_map_get_u64(&c->by_identity, e->identity);
    if (code == NULL || code->table.whole != e->table_bytes) {
        return LTN_ERR_MALFORMED;
    }
    if (code->table.size == e->part_at) {
        memcpy(code->lines + e->part_at, e->part, e->part_bytes);
        code->table.size += e->part_bytes;
    }
    return 0;
}

int ltn_python_codes_add(struct ltn_python_codes *c, const struct ltn_event_python_code *e,
                         size_t size)
{
    int rc = LTN_ERR_MALFORMED;
    if (is_sound(e, size)) {
        rc = e->part_at == 0 ? add_first(c, e) : add_part(c, e);
    }
    c->stats.malformed_total += rc == LTN_ERR_MALFORMED;
    return rc;
}

int ltn_python_codes_name(struct ltn_python_codes *c, const struct ltn_python_frame *f,
                          struct ltn_python_line *ret)
{
    struct code *code = f->identity != 0 ? ltn_map_get_u64(&c->by_identity, f->identity) : NULL;
    if (code == NULL) {
        c->stats.unknown_total++;
        return LTN_ERR_NOT_FOUND;
    }
    code->used = true;
    struct ltn_python_line line = {
        .file = code->file, .function = code->function, .line = code->table.first_line};
    if ((f->flags & LTN_PYTHON_NO_OFFSET) != 0) {
        *ret = line;
        return 0;
    }
    int32_t offset = (int32_t)f->offset;
    if ((f->flags & LTN_PYTHON_GENERATOR) == 0 && code->first_traceable != 0 &&
        offset / 2 < (int64_t)code->first_traceable) {
        return LTN_ERR_CLOSED;
    }
    int rc = ltn_python_line(&code->table, offset, &line.line);
    if (rc < 0 && rc != LTN_ERR_NOT_FOUND) {
        c->stats.rejected_total++;
        return LTN_ERR_MALFORMED;
    }
    line.exact = rc == 0;
    *ret = line;
    return 0;
}

struct ltn_python_codes_stats ltn_python_codes_stats(const struct ltn_python_codes *c)
{
    return c->stats;
}

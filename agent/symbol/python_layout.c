/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol/python_layout.h"

#include <string.h>

#include "base/err.h"

#define NO_C_FRAME   0xffff
#define NO_OWNER     15 /* a word that is always 0 */
#define WORD_BYTES   8
#define TABLE_BEFORE 80 /* the bytes of a code object that identify it end with its line table */
#define TAG_BITS     7ULL

/* What differs by version; the names are those of struct ltn_python_process. */
struct layout {
    uint32_t version;
    uint16_t interpreters;
    uint16_t key;
    uint16_t interpreter_next;
    uint16_t interpreter_threads;
    uint16_t thread_id;
    uint16_t thread_frame;
    uint16_t c_frame_first;
    uint16_t frame_bytes;
    uint16_t code; /* these four in a frame */
    uint16_t previous;
    uint16_t position;
    uint16_t owner;
    uint16_t object_bytes; /* header of an object */
    uint16_t code_first_line;
    uint16_t code_first_traceable;
    uint16_t code_file;
    uint16_t code_name;
    uint16_t code_table;
    uint16_t code_bytes;
    uint16_t text_ascii;
    uint16_t text_compact;
    uint8_t kind_bit;
    uint8_t position_scale;
    uint32_t flags;
    bool tagged;
};

#define OLD (LTN_PYTHON_KEY_STAYS | LTN_PYTHON_CODE_REUSED)

/* clang-format off */
static const struct layout layouts[] = {
    {LTN_PYTHON_VERSION(3, 9), 32, 584, 0, 8, 176, 24, NO_C_FRAME, 112, 32, 24, 104, 0,
     16, 40, 0, 104, 112, 120, 0, 48, 72, 2, 0, OLD | LTN_PYTHON_LAST_INDEX, false},
    {LTN_PYTHON_VERSION(3, 10), 32, 584, 0, 8, 176, 24, NO_C_FRAME, 112, 32, 24, 96, 0,
     16, 40, 0, 104, 112, 120, 0, 48, 72, 2, 1, OLD | LTN_PYTHON_LAST_INDEX, false},
    {LTN_PYTHON_VERSION(3, 11), 40, 592, 0, 16, 152, 56, 8, 80, 32, 48, 56, 69,
     16, 72, 168, 112, 128, 136, 184, 48, 72, 2, 0, OLD, false},
    {LTN_PYTHON_VERSION(3, 12), 40, 1544, 0, 72, 136, 56, 0, 80, 0, 8, 56, 70,
     16, 68, 176, 112, 128, 136, 192, 40, 56, 2, 0, 0, false},
    {LTN_PYTHON_VERSION(3, 13), 632, 2160, 7264, 7344, 152, 72, NO_C_FRAME, 80, 0, 8, 56, 70,
     16, 68, 184, 112, 128, 136, 200, 40, 56, 2, 0, 0, false},
    {LTN_PYTHON_VERSION(3, 14), 808, 2336, 7272, 7344, 152, 72, NO_C_FRAME, 80, 0, 8, 56, 74,
     16, 68, 192, 112, 128, 136, 208, 40, 56, 2, 0, 0, true},
    {LTN_PYTHON_VERSION(3, 15), 936, 0, 7264, 7336, 176, 72, NO_C_FRAME, 80, 0, 8, 56, 74,
     16, 68, 192, 112, 128, 136, 208, 40, 56, 2, 0, 0, true},
    {LTN_PYTHON_VERSION(3, 13) | LTN_PYTHON_FREE_THREADED, 632, 2160, 7264, 7344, 152, 72, NO_C_FRAME, 80, 0, 8, 56, 70,
     32, 84, 200, 128, 144, 152, 216, 56, 72, 2, 0, 0, false},
    {LTN_PYTHON_VERSION(3, 14) | LTN_PYTHON_FREE_THREADED, 808, 2336, 7272, 7344, 152, 72, NO_C_FRAME, 80, 0, 8, 56, 78,
     32, 84, 208, 128, 144, 152, 232, 56, 72, 8, 0, 0, true},
};
/* clang-format on */

static void set_frame(struct ltn_python_process *p, unsigned code, unsigned previous,
                      unsigned position, unsigned owner)
{
    p->code_word = (ltn_u8)(code / WORD_BYTES);
    p->previous_word = (ltn_u8)(previous / WORD_BYTES);
    p->position_word = (ltn_u8)(position / WORD_BYTES);
    p->owner_word = owner == 0 ? NO_OWNER : (ltn_u8)(owner / WORD_BYTES);
    p->owner_shift = (ltn_u8)(owner % WORD_BYTES * 8);
}

static void set_table(struct ltn_python_process *p, unsigned table, unsigned first_line)
{
    p->code_table = (ltn_u16)table;
    p->code_first_line = (ltn_u16)first_line;
    p->code_identity = (ltn_u16)(table - TABLE_BEFORE);
    p->first_line_word = (ltn_u8)((first_line - p->code_identity) / WORD_BYTES);
    p->first_line_shift = (ltn_u8)((first_line - p->code_identity) % WORD_BYTES * 8);
}

static void fill(const struct layout *l, struct ltn_python_process *p)
{
    *p = (struct ltn_python_process){
        .code_mask = l->tagged ? ~TAG_BITS : ~0ULL,
        .key = l->key,
        .interpreters = l->interpreters,
        .interpreter_next = l->interpreter_next,
        .interpreter_threads = l->interpreter_threads,
        .thread_next = 8,
        .thread_id = l->thread_id,
        .thread_frame = l->thread_frame,
        .c_frame_first = l->c_frame_first,
        .frame_bytes = l->frame_bytes,
        .position_scale = l->position_scale,
        .kind_bit = l->kind_bit,
        .compact_bit = (ltn_u8)(l->kind_bit + 3),
        .ascii_bit = (ltn_u8)(l->kind_bit + 4),
        .object_type = (ltn_u16)(l->object_bytes - WORD_BYTES),
        .code_first_traceable = l->code_first_traceable,
        .code_file = l->code_file,
        .code_name = l->code_name,
        .code_bytes = l->code_bytes,
        .text_length = l->object_bytes,
        .text_ascii = l->text_ascii,
        .text_compact = l->text_compact,
        .bytes_size = l->object_bytes,
        .bytes_data = (ltn_u16)(l->object_bytes + 2 * WORD_BYTES),
        .flags = l->flags,
        .version = l->version,
    };
    set_frame(p, l->code, l->previous, l->position, l->owner);
    set_table(p, l->code_table, l->code_first_line);
}

int ltn_python_layout_get(uint32_t version, struct ltn_python_process *ret)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(layouts); i++) {
        if (layouts[i].version == version) {
            fill(&layouts[i], ret);
            return 0;
        }
    }
    return LTN_ERR_UNSUPPORTED;
}

/* ---- the interpreter's own table ---------------------------------------------------------------
 */

static const char cookie[] = "xdebugpy";

static uint64_t word_at(const uint8_t *runtime, size_t size, unsigned at)
{
    uint64_t v = UINT64_MAX;
    if (at + sizeof(v) <= size) {
        memcpy(&v, runtime + at, sizeof(v));
    }
    return v;
}

uint32_t ltn_python_layout_version(const uint8_t *runtime, size_t size)
{
    if (size < 24 || memcmp(runtime, cookie, sizeof(cookie) - 1) != 0) {
        return 0;
    }
    uint64_t hex = word_at(runtime, size, 8);
    if (hex > UINT32_MAX) {
        return 0;
    }
    return (uint32_t)(hex >> 16) | (word_at(runtime, size, 16) == 1 ? LTN_PYTHON_FREE_THREADED : 0);
}

/* Where the table has what, by minor version: its own layout is no more stable than the rest. */
struct published {
    uint32_t minor;
    uint16_t interpreters;
    uint16_t interpreter_next;
    uint16_t interpreter_threads;
    uint16_t thread_next;
    uint16_t thread_frame;
    uint16_t thread_id;
    uint16_t previous;
    uint16_t code;
    uint16_t position;
    uint16_t owner;
    uint16_t file;
    uint16_t name;
    uint16_t table;
    uint16_t first_line;
    uint16_t bytecode;
    uint16_t text_length;
    uint16_t text_ascii;
    uint16_t bytes_size;
    uint16_t bytes_data;
};

static const struct published tables[] = {
    {13,  40,  64,  72,  168, 184, 192, 232, 240, 248,
     264, 280, 296, 304, 312, 344, 552, 560, 520, 528},
    {14,  40,  64,  72,  192, 208, 216, 256, 264, 272,
     288, 320, 336, 344, 352, 384, 632, 640, 600, 608},
    {15,  40,  64,  72,  192, 208, 240, 320, 328, 336,
     352, 384, 400, 408, 416, 448, 728, 736, 696, 704},
};

/* One published offset: kept when it fits where it goes. */
static bool take(const uint8_t *runtime, size_t size, unsigned at, unsigned max, unsigned *ret)
{
    uint64_t v = word_at(runtime, size, at);
    if (v > max) {
        return false;
    }
    *ret = (unsigned)v;
    return true;
}

static bool adopt_frame(const uint8_t *r, size_t n, const struct published *t,
                        struct ltn_python_process *p)
{
    unsigned last = (unsigned)p->frame_bytes - WORD_BYTES;
    unsigned code = 0;
    unsigned previous = 0;
    unsigned position = 0;
    unsigned owner = 0;
    if (!take(r, n, t->code, last, &code) || !take(r, n, t->previous, last, &previous) ||
        !take(r, n, t->position, last, &position) ||
        !take(r, n, t->owner, last + WORD_BYTES - 1, &owner) || code % WORD_BYTES != 0 ||
        previous % WORD_BYTES != 0 || position % WORD_BYTES != 0 || owner == 0) {
        return false;
    }
    set_frame(p, code, previous, position, owner);
    return true;
}

static bool adopt_code(const uint8_t *r, size_t n, const struct published *t,
                       struct ltn_python_process *p)
{
    unsigned table = 0;
    unsigned first_line = 0;
    if (!take(r, n, t->table, 4096, &table) || !take(r, n, t->first_line, 4096, &first_line) ||
        table < TABLE_BEFORE || first_line + TABLE_BEFORE < table || first_line > table ||
        first_line % 4 != 0) {
        return false;
    }
    set_table(p, table, first_line);
    return true;
}

/* Both tables are lists of the same things, so one place says which field each is. */
static bool adopt_plain(const uint8_t *r, size_t n, const struct published *t,
                        struct ltn_python_process *p)
{
    const struct {
        unsigned at;
        ltn_u16 *to;
    } fields[] = {
        {t->interpreters, &p->interpreters},
        {t->interpreter_next, &p->interpreter_next},
        {t->interpreter_threads, &p->interpreter_threads},
        {t->thread_next, &p->thread_next},
        {t->thread_frame, &p->thread_frame},
        {t->thread_id, &p->thread_id},
        {t->file, &p->code_file},
        {t->name, &p->code_name},
        {t->bytecode, &p->code_bytes},
        {t->text_length, &p->text_length},
        {t->text_ascii, &p->text_ascii},
        {t->bytes_size, &p->bytes_size},
        {t->bytes_data, &p->bytes_data},
    };
    for (size_t i = 0; i < LTN_ARRAY_SIZE(fields); i++) {
        unsigned v = 0;
        if (!take(r, n, fields[i].at, UINT16_MAX - 1, &v)) {
            return false;
        }
        *fields[i].to = (ltn_u16)v;
    }
    /* What else is not ASCII has two more words before its data. */
    p->text_compact = (ltn_u16)(p->text_ascii + 2 * WORD_BYTES);
    return true;
}

int ltn_python_layout_adopt(const uint8_t *runtime, size_t size, struct ltn_python_process *p,
                            bool *ret_agreed)
{
    const struct published *t = NULL;
    for (size_t i = 0; i < LTN_ARRAY_SIZE(tables); i++) {
        if (tables[i].minor == (p->version & 0xff)) {
            t = &tables[i];
        }
    }
    if (t == NULL || ltn_python_layout_version(runtime, size) != p->version) {
        return LTN_ERR_UNSUPPORTED;
    }
    struct ltn_python_process own = *p;
    if (!adopt_frame(runtime, size, t, &own) || !adopt_code(runtime, size, t, &own) ||
        !adopt_plain(runtime, size, t, &own)) {
        return LTN_ERR_UNSUPPORTED;
    }
    *ret_agreed = memcmp(&own, p, sizeof(own)) == 0;
    *p = own;
    return 0;
}

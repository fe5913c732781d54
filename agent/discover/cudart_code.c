/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/cudart_code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "discover/elf_internal.h"

#define MAX_FUNCTIONS (4u * 1024 * 1024)
#define MAX_CALLBACKS 1024u
#define CHUNK_BYTES   (1u << 20)
/* The word is asked for within the first instructions, the number used a little later. */
#define WORD_WITHIN_BYTES   512u
#define NUMBER_WITHIN_BYTES 4096u
/* Bytes looked at in one file, those looked at twice counted twice: a third of a second. */
#define MAX_WORK_BYTES (512u * 1024 * 1024)

/* Public callback numbers of the runtime's functions. */
static const struct {
    const char *name;
    unsigned number;
} callbacks[] = {
#define LTN_CUDART_CALLBACK(name, number) {#name, number},
#include "discover/cudart_callbacks.def"
};

/* ---- where functions begin ---- */

/* The search table of .eh_frame_hdr: pairs of signed 32-bit distances from its own address, by
 * ascending function. */
struct bounds {
    uint64_t base; /* address that they count from */
    size_t count;
    int32_t (*pairs)[2];
};

#define EH_VERSION     1
#define EH_COUNT_U32   0x03
#define EH_TABLE_S32   0x3b
#define EH_PTR_S32     0x1b
#define EH_HEADER_ROOM 12 /* version, three encodings, pointer, count */

static int read_table(struct ltn_elf *e, const Elf64_Phdr *p, struct bounds *ret)
{
    uint8_t head[EH_HEADER_ROOM];
    uint32_t count;
    if (p->p_filesz < sizeof(head)) {
        return LTN_ERR_MALFORMED;
    }
    int rc = ltn_elf_read_at(e, p->p_offset, head, sizeof(head));
    if (rc < 0) {
        return rc;
    }
    if (head[0] != EH_VERSION || head[1] != EH_PTR_S32 || head[2] != EH_COUNT_U32 ||
        head[3] != EH_TABLE_S32) {
        return LTN_ERR_UNSUPPORTED;
    }
    memcpy(&count, head + 8, sizeof(count));
    if (count > MAX_FUNCTIONS) {
        return LTN_ERR_COUNT;
    }
    if (count == 0 || count > (p->p_filesz - sizeof(head)) / sizeof(ret->pairs[0])) {
        return LTN_ERR_MALFORMED;
    }
    ret->pairs = calloc(count, sizeof(ret->pairs[0]));
    if (ret->pairs == NULL) {
        return -ENOMEM;
    }
    ret->base = p->p_vaddr;
    ret->count = count;
    rc = ltn_elf_read_at(e, p->p_offset + sizeof(head), ret->pairs, count * sizeof(ret->pairs[0]));
    if (rc < 0) {
        free(ret->pairs);
    }
    return rc;
}

static int read_bounds(struct ltn_elf *e, struct bounds *ret)
{
    for (size_t i = 0; i < e->phdr_count; i++) {
        if (e->phdrs[i].p_type == PT_GNU_EH_FRAME) {
            return read_table(e, &e->phdrs[i], ret);
        }
    }
    return LTN_ERR_UNSUPPORTED;
}

/* ---- what a function says of itself ---- */

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* "mov disp(base), reg; test reg, reg": the callback whose word is looked at, or 0. *ret_len: bytes
 * of both. */
static unsigned word_asked_for(const uint8_t *c, size_t n, size_t *ret_len)
{
    if (n < 10 || c[0] != 0x8b || (c[1] & 7) == 4) {
        return 0;
    }
    unsigned mod = c[1] >> 6;
    unsigned reg = (c[1] >> 3) & 7;
    if (mod != 1 && mod != 2) {
        return 0;
    }
    uint32_t disp = mod == 1 ? c[2] : u32_at(c + 2);
    const uint8_t *next = c + (mod == 1 ? 3 : 6);
    if (*next == 0x45) { /* the register is one of r8 to r15 */
        next++;
    }
    if ((mod == 1 && disp > 0x7f) || disp % 4 != 0 || disp / 4 >= MAX_CALLBACKS ||
        next[0] != 0x85 || next[1] != (0xc0 | reg << 3 | reg)) {
        return 0;
    }
    *ret_len = (size_t)(next + 2 - c);
    return disp / 4;
}

/* "mov $number, %edi" and a store of the number to the frame. */
static bool hands_on(const uint8_t *c, size_t n, unsigned number)
{
    bool as_argument = false;
    bool as_store = false;
    for (size_t i = 0; i + 5 <= n && !(as_argument && as_store); i++) {
        if (c[i] == 0xbf && u32_at(c + i + 1) == number) {
            as_argument = true;
        } else if (c[i] == 0xc7 && i + 10 <= n) { /* mov $imm32, disp8(reg) or disp32(reg) */
            unsigned mod = c[i + 1] >> 6;
            size_t at = (c[i + 1] & 7) == 4 ? i + 3 : i + 2;
            at += mod == 1 ? 1 : 4;
            as_store =
                as_store || ((mod == 1 || mod == 2) && at + 4 <= n && u32_at(c + at) == number);
        }
    }
    return as_argument && as_store;
}

/* Callback number of a public function of the runtime, or 0. Adds to *work what it looked at. */
static unsigned callback_of(const uint8_t *code, size_t n, uint64_t *work)
{
    size_t len;
    *work += n < WORD_WITHIN_BYTES ? n : WORD_WITHIN_BYTES;
    for (size_t i = 0; i < n && i < WORD_WITHIN_BYTES; i++) {
        unsigned number = word_asked_for(code + i, n - i, &len);
        *work += number != 0 ? n : 0;
        if (number != 0 && hands_on(code + i + len, n - i - len, number)) {
            return number;
        }
    }
    return 0;
}

/* ---- all functions ---- */

struct hits {
    uint64_t address[MAX_CALLBACKS];
    uint8_t times[MAX_CALLBACKS];
};

/* A piece of the file, read ahead. */
struct window {
    uint8_t *data;
    uint64_t off;
    size_t len;
    uint64_t work; /* so far, for MAX_WORK_BYTES */
};

static const uint8_t *code_at(struct ltn_elf *e, struct window *w, uint64_t off, size_t n)
{
    if (w->len < n || off < w->off || off - w->off > w->len - n) {
        uint64_t left = e->file_size - off;
        w->len = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        w->off = off;
        w->work += w->len;
        if (ltn_elf_read_at(e, off, w->data, w->len) < 0) {
            w->len = 0;
            return NULL;
        }
    }
    return w->data + (off - w->off);
}

static void look_at(struct ltn_elf *e, struct window *w, const struct bounds *b, size_t i,
                    struct hits *h)
{
    uint64_t addr = b->base + (uint64_t)(int64_t)b->pairs[i][0];
    uint64_t off;
    uint64_t room;
    if (!ltn_elf_offset_of(e, addr, true, &off, &room)) {
        return;
    }
    uint64_t n = room < NUMBER_WITHIN_BYTES ? room : NUMBER_WITHIN_BYTES;
    if (i + 1 < b->count && b->pairs[i + 1][0] > b->pairs[i][0]) {
        uint64_t size = (uint64_t)((int64_t)b->pairs[i + 1][0] - b->pairs[i][0]);
        n = size < n ? size : n;
    }
    const uint8_t *code = code_at(e, w, off, (size_t)n);
    unsigned number = code == NULL ? 0 : callback_of(code, (size_t)n, &w->work);
    if (number != 0) {
        h->address[number] = addr;
        h->times[number] = h->times[number] == 0 ? 1 : 2; /* more than one is no answer */
    }
}

static int find_all(struct ltn_elf *e, struct hits *h)
{
    struct bounds b = {0};
    struct window w = {0};
    int rc = read_bounds(e, &b);
    if (rc < 0) {
        return rc;
    }
    w.data = malloc(CHUNK_BYTES);
    for (size_t i = 0; i < b.count && w.data != NULL && w.work <= MAX_WORK_BYTES; i++) {
        look_at(e, &w, &b, i, h);
    }
    rc = w.data == NULL ? -ENOMEM : w.work > MAX_WORK_BYTES ? LTN_ERR_TOO_LARGE : 0;
    free(w.data);
    free(b.pairs);
    return rc;
}

static unsigned number_of(const char *name)
{
    for (size_t i = 0; i < LTN_ARRAY_SIZE(callbacks); i++) {
        if (strcmp(callbacks[i].name, name) == 0) {
            return callbacks[i].number;
        }
    }
    return 0;
}

/* Only what one function alone claims to be. */
static int fill(struct ltn_elf *e, const struct hits *h, struct ltn_elf_sym *s)
{
    unsigned number = s->found ? 0 : number_of(s->name);
    uint64_t room;
    uint64_t off;
    if (number == 0 || h->times[number] != 1 ||
        !ltn_elf_offset_of(e, h->address[number], true, &off, &room)) {
        return 0;
    }
    s->found = true;
    s->local = true;
    s->file_offset = off;
    s->code_len = (uint8_t)(room < LTN_ELF_CODE_BYTES ? room : LTN_ELF_CODE_BYTES);
    return ltn_elf_read_at(e, off, s->code, s->code_len);
}

int ltn_cudart_find_code(struct ltn_elf *e, struct ltn_elf_sym *syms, size_t count,
                         unsigned *ret_found)
{
    if (e->info.machine != EM_X86_64) {
        return LTN_ERR_UNSUPPORTED;
    }
    struct hits *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        return -ENOMEM;
    }
    unsigned found = 0;
    int rc = find_all(e, h);
    for (unsigned i = 1; rc == 0 && i < MAX_CALLBACKS; i++) {
        found += h->times[i] == 1;
    }
    for (size_t i = 0; rc == 0 && found >= LTN_CUDART_FUNCTIONS_MIN && i < count; i++) {
        rc = fill(e, h, &syms[i]);
    }
    free(h);
    if (rc == 0) {
        *ret_found = found;
    }
    return rc;
}

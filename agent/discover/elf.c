/* SPDX-License-Identifier: Apache-2.0 */
#include "discover/elf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/map.h"
#include "base/text.h"

/* Ceilings. The largest real libraries have some 10^6 symbols and 200 MB of names. */
#define MAX_PHDRS       256u
#define MAX_SHDRS       4096u
#define MAX_SYMBOLS     (8u * 1024 * 1024)
#define MAX_STRTAB      (256u * 1024 * 1024)
#define MAX_NOTES       (64u * 1024)
#define MAX_DYNAMIC     (64u * 1024)
#define MAX_NAMES       65536u
#define MAX_NAME_BYTES  4096u
#define SYMBOLS_A_CHUNK 4096u
#define STRINGS_A_CHUNK (1u << 20)
#define MAX_PLACES      65536u              /* of wanted names in a string table */
#define MAX_COMPARED    (64u * 1024 * 1024) /* ends of strings looked at closely: about a second */

int ltn_elf_read_at(const struct ltn_elf *e, uint64_t off, void *out, size_t n)
{
    char *at = out;
    if (off > e->file_size || n > e->file_size - off) {
        return LTN_ERR_MALFORMED;
    }
    while (n > 0) {
        ssize_t got = pread(e->fd, at, n, (off_t)off);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        if (got == 0) {
            return LTN_ERR_MALFORMED;
        }
        at += got;
        off += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int check_header(const Elf64_Ehdr *h)
{
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) {
        return LTN_ERR_MALFORMED;
    }
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
        (h->e_machine != EM_X86_64 && h->e_machine != EM_AARCH64) ||
        (h->e_type != ET_DYN && h->e_type != ET_EXEC)) {
        return LTN_ERR_UNSUPPORTED;
    }
    if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0) {
        return LTN_ERR_MALFORMED;
    }
    if (h->e_phnum > MAX_PHDRS || h->e_shnum > MAX_SHDRS) {
        return LTN_ERR_COUNT;
    }
    return 0;
}

/* Finds the GNU build id among the notes of one segment or section. */
static void scan_notes(struct ltn_elf *e, uint64_t off, uint64_t size)
{
    if (size > MAX_NOTES || e->info.build_id_len > 0) {
        return;
    }
    uint8_t *notes = malloc(size == 0 ? 1 : size);
    if (notes == NULL || ltn_elf_read_at(e, off, notes, size) < 0) {
        free(notes);
        return;
    }
    uint64_t at = 0;
    while (size - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, notes + at, sizeof(n));
        at += sizeof(n);
        uint64_t name_room = ((uint64_t)n.n_namesz + 3) & ~(uint64_t)3;
        uint64_t desc_room = ((uint64_t)n.n_descsz + 3) & ~(uint64_t)3;
        if (name_room > size - at || n.n_descsz > size - at - name_room) {
            break;
        }
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(notes + at, "GNU", 4) == 0 &&
            n.n_descsz > 0 && n.n_descsz <= LTN_ELF_BUILD_ID_BYTES) {
            memcpy(e->info.build_id, notes + at + name_room, n.n_descsz);
            e->info.build_id_len = n.n_descsz;
            break;
        }
        if (desc_room > size - at - name_room) {
            break;
        }
        at += name_room + desc_room;
    }
    free(notes);
}

/* Clean NUL-terminated text out of the string table; "" when it is not inside. */
static void read_soname(struct ltn_elf *e, uint64_t str_off, uint64_t str_size, uint64_t name)
{
    char raw[LTN_ELF_SONAME_BYTES];
    if (name >= str_size) {
        return;
    }
    uint64_t room = str_size - name;
    size_t n = room < sizeof(raw) ? (size_t)room : sizeof(raw);
    if (str_off > UINT64_MAX - name || ltn_elf_read_at(e, str_off + name, raw, n) < 0) {
        return;
    }
    ltn_text_clean(e->info.soname, sizeof(e->info.soname), raw, strnlen(raw, n));
}

bool ltn_elf_offset_of(const struct ltn_elf *e, uint64_t addr, bool exec_only, uint64_t *ret_off,
                       uint64_t *ret_room)
{
    for (size_t i = 0; i < e->phdr_count; i++) {
        const Elf64_Phdr *p = &e->phdrs[i];
        if (p->p_type != PT_LOAD || (exec_only && (p->p_flags & PF_X) == 0)) {
            continue;
        }
        if (addr < p->p_vaddr || addr - p->p_vaddr >= p->p_filesz) {
            continue;
        }
        uint64_t in = addr - p->p_vaddr;
        if (p->p_offset >= e->file_size || in >= e->file_size - p->p_offset) {
            continue;
        }
        uint64_t left_in_file = e->file_size - p->p_offset - in;
        uint64_t left_in_segment = p->p_filesz - in;
        *ret_off = p->p_offset + in;
        *ret_room = left_in_segment < left_in_file ? left_in_segment : left_in_file;
        return true;
    }
    return false;
}

/* SONAME from the dynamic segment, which stays when section headers are stripped. */
static void read_dynamic(struct ltn_elf *e, const Elf64_Phdr *p)
{
    if (p->p_filesz > MAX_DYNAMIC) {
        return;
    }
    size_t count = p->p_filesz / sizeof(Elf64_Dyn);
    Elf64_Dyn *dyn = calloc(count + 1, sizeof(*dyn));
    if (dyn == NULL || ltn_elf_read_at(e, p->p_offset, dyn, count * sizeof(*dyn)) < 0) {
        free(dyn);
        return;
    }
    uint64_t strtab = 0;
    uint64_t strsz = 0;
    uint64_t soname = UINT64_MAX;
    for (size_t i = 0; i < count && dyn[i].d_tag != DT_NULL; i++) {
        if (dyn[i].d_tag == DT_STRTAB) {
            strtab = dyn[i].d_un.d_ptr;
        } else if (dyn[i].d_tag == DT_STRSZ) {
            strsz = dyn[i].d_un.d_val;
        } else if (dyn[i].d_tag == DT_SONAME) {
            soname = dyn[i].d_un.d_val;
        }
    }
    free(dyn);
    uint64_t off;
    uint64_t room;
    if (soname != UINT64_MAX && ltn_elf_offset_of(e, strtab, false, &off, &room)) {
        read_soname(e, off, strsz < room ? strsz : room, soname);
    }
}

static int read_segments(struct ltn_elf *e, const Elf64_Ehdr *h)
{
    e->phdr_count = h->e_phnum;
    e->phdrs = calloc(e->phdr_count, sizeof(*e->phdrs));
    if (e->phdrs == NULL) {
        return -ENOMEM;
    }
    int rc = ltn_elf_read_at(e, h->e_phoff, e->phdrs, e->phdr_count * sizeof(*e->phdrs));
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < e->phdr_count; i++) {
        if (e->phdrs[i].p_type == PT_NOTE) {
            scan_notes(e, e->phdrs[i].p_offset, e->phdrs[i].p_filesz);
        } else if (e->phdrs[i].p_type == PT_DYNAMIC) {
            read_dynamic(e, &e->phdrs[i]);
        }
    }
    return 0;
}

/* Takes a symbol section and its string section; false when they do not fit the file. */
static bool take_table(const struct ltn_elf *e, const Elf64_Shdr *sh, size_t count, size_t index,
                       struct table *t)
{
    const Elf64_Shdr *sym = &sh[index];
    if (sym->sh_entsize != sizeof(Elf64_Sym) || sym->sh_link >= count || t->sym_count > 0) {
        return false;
    }
    const Elf64_Shdr *str = &sh[sym->sh_link];
    if (str->sh_type != SHT_STRTAB || str->sh_offset > e->file_size ||
        str->sh_size > e->file_size - str->sh_offset || sym->sh_offset > e->file_size ||
        sym->sh_size > e->file_size - sym->sh_offset) {
        return false;
    }
    *t = (struct table){.sym_off = sym->sh_offset,
                        .sym_count = sym->sh_size / sizeof(Elf64_Sym),
                        .str_off = str->sh_offset,
                        .str_size = str->sh_size};
    for (size_t i = 0; i < count; i++) {
        if (sh[i].sh_type == SHT_GNU_versym && sh[i].sh_link == index &&
            sh[i].sh_offset <= e->file_size && sh[i].sh_size <= e->file_size - sh[i].sh_offset) {
            t->ver_off = sh[i].sh_offset;
            t->ver_count = sh[i].sh_size / sizeof(uint16_t);
            break;
        }
    }
    return t->sym_count > 0;
}

static int read_sections(struct ltn_elf *e, const Elf64_Ehdr *h)
{
    size_t count = h->e_shnum;
    if (count == 0) {
        return 0;
    }
    if (h->e_shentsize != sizeof(Elf64_Shdr)) {
        return LTN_ERR_MALFORMED;
    }
    Elf64_Shdr *sh = calloc(count, sizeof(*sh));
    if (sh == NULL) {
        return -ENOMEM;
    }
    int rc = ltn_elf_read_at(e, h->e_shoff, sh, count * sizeof(*sh));
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (sh[i].sh_type == SHT_DYNSYM) {
            e->info.has_dynsym |= take_table(e, sh, count, i, &e->dynsym);
        } else if (sh[i].sh_type == SHT_SYMTAB) {
            e->info.has_symtab |= take_table(e, sh, count, i, &e->symtab);
        } else if (sh[i].sh_type == SHT_NOTE) {
            scan_notes(e, sh[i].sh_offset, sh[i].sh_size);
        }
    }
    free(sh);
    return rc;
}

static int open_elf(int fd, bool owns_fd, struct ltn_elf **ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < 0) {
        return LTN_ERR_UNSUPPORTED;
    }
    struct ltn_elf *e = calloc(1, sizeof(*e));
    if (e == NULL) {
        return -ENOMEM;
    }
    e->fd = fd;
    e->file_size = (uint64_t)st.st_size;
    Elf64_Ehdr h;
    int rc = ltn_elf_read_at(e, 0, &h, sizeof(h));
    if (rc == 0) {
        rc = check_header(&h);
    }
    if (rc == 0) {
        e->info.machine = h.e_machine;
        e->info.type = h.e_type;
        rc = read_segments(e, &h);
    }
    if (rc == 0) {
        rc = read_sections(e, &h);
    }
    if (rc < 0) {
        ltn_elf_free(e);
        return rc;
    }
    e->owns_fd = owns_fd;
    *ret = e;
    return 0;
}

int ltn_elf_open_fd(int fd, struct ltn_elf **ret)
{
    return open_elf(fd, false, ret);
}

int ltn_elf_open(const char *path, struct ltn_elf **ret)
{
    /* O_NONBLOCK: a path that turns out to be a fifo must not hold the agent up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return -errno;
    }
    int rc = open_elf(fd, true, ret);
    if (rc < 0) {
        (void)close(fd);
    }
    return rc;
}

void ltn_elf_free(struct ltn_elf *e)
{
    if (e == NULL) {
        return;
    }
    if (e->owns_fd) {
        (void)close(e->fd);
    }
    free(e->phdrs);
    free(e);
}

const struct ltn_elf_info *ltn_elf_info(const struct ltn_elf *e)
{
    return &e->info;
}

/* What one pass needs. String tables may be larger than the memory that the agent should take, so
 * they are read through once for the places of the wanted names. */
struct pass {
    struct ltn_elf *elf;
    const struct table *table;
    struct ltn_map *wanted; /* name -> first entry of that name */
    struct ltn_map places;  /* where such a name stands in the string table -> that entry */
    struct ltn_elf_sym *syms;
    uint8_t *rank;     /* how good the match so far is; 0 = none */
    uint16_t *lengths; /* that wanted names have, each once */
    size_t length_count;
    size_t longest;
    uint8_t *tails; /* bit for each pair of last bytes that a wanted name has */
    uint64_t compared;
    bool from_symtab;
    bool objects;
};

#define TAILS_BYTES (65536 / 8)

static unsigned tail_of(const char *end)
{
    return (unsigned)(unsigned char)end[-2] << 8 | (unsigned char)end[-1];
}

static void want_tail(struct pass *p, unsigned tail)
{
    p->tails[tail / 8] = (uint8_t)(p->tails[tail / 8] | 1u << tail % 8);
}

/* Takes note of how a wanted name ends and how long it is. */
static void want_name(struct pass *p, const char *name, size_t len)
{
    for (unsigned before = 0; len == 1 && before < 256; before++) {
        want_tail(p, before << 8 | (unsigned char)name[0]);
    }
    if (len > 1) {
        want_tail(p, tail_of(name + len));
    }
    p->longest = len > p->longest ? len : p->longest;
    for (size_t i = 0; i < p->length_count; i++) {
        if (p->lengths[i] == len) {
            return;
        }
    }
    if (len > 0) {
        p->lengths[p->length_count++] = (uint16_t)len;
    }
}

static bool is_wanted_type(const struct pass *p, unsigned type)
{
    return p->objects ? type == STT_OBJECT || type == STT_NOTYPE
                      : type == STT_FUNC || type == STT_GNU_IFUNC;
}

/* 0 = not defined here, or no function (object); larger is better. Default versions beat hidden
 * ones, .dynsym beats .symtab (it is looked at first and ranks higher), global beats local. */
static uint8_t rank_of(const struct pass *p, const Elf64_Sym *s, uint16_t version)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);
    unsigned bind = ELF64_ST_BIND(s->st_info);
    if (!is_wanted_type(p, type) || s->st_shndx == SHN_UNDEF || s->st_value == 0) {
        return 0;
    }
    if (bind != STB_GLOBAL && bind != STB_WEAK && bind != STB_LOCAL) {
        return 0;
    }
    uint8_t rank = p->from_symtab ? 1 : 4;
    if (bind != STB_LOCAL) {
        rank = (uint8_t)(rank + 1);
    }
    if ((version & 0x8000) == 0) {
        rank = (uint8_t)(rank + 1);
    }
    return rank;
}

static void take_symbol(struct pass *p, const Elf64_Sym *s, uint16_t version)
{
    uint8_t rank = rank_of(p, s, version);
    if (rank == 0 || s->st_name >= p->table->str_size) {
        return;
    }
    struct ltn_elf_sym *want = ltn_map_get_u64(&p->places, s->st_name);
    if (want == NULL) {
        return;
    }
    size_t index = (size_t)(want - p->syms);
    uint64_t off = 0;
    uint64_t code_room = 0;
    if (rank <= p->rank[index]) {
        return;
    }
    if (!p->objects && !ltn_elf_offset_of(p->elf, s->st_value, true, &off, &code_room)) {
        return;
    }
    p->rank[index] = rank;
    want->found = true;
    want->weak = ELF64_ST_BIND(s->st_info) == STB_WEAK;
    want->local = ELF64_ST_BIND(s->st_info) == STB_LOCAL;
    want->file_offset = off;
    want->address = s->st_value;
    want->size_bytes = s->st_size;
    want->code_len = (uint8_t)(code_room < LTN_ELF_CODE_BYTES ? code_room : LTN_ELF_CODE_BYTES);
}

static int walk_symbols(struct pass *p)
{
    const struct table *t = p->table;
    Elf64_Sym *chunk = malloc(SYMBOLS_A_CHUNK * sizeof(*chunk));
    uint16_t *versions = malloc(SYMBOLS_A_CHUNK * sizeof(*versions));
    int rc = chunk == NULL || versions == NULL ? -ENOMEM : 0;
    for (uint64_t at = 0; rc == 0 && at < t->sym_count; at += SYMBOLS_A_CHUNK) {
        uint64_t left = t->sym_count - at;
        size_t n = left < SYMBOLS_A_CHUNK ? (size_t)left : SYMBOLS_A_CHUNK;
        rc = ltn_elf_read_at(p->elf, t->sym_off + at * sizeof(*chunk), chunk, n * sizeof(*chunk));
        bool versioned = t->ver_off != 0 && at + n <= t->ver_count;
        if (rc == 0 && versioned) {
            rc = ltn_elf_read_at(p->elf, t->ver_off + at * sizeof(*versions), versions,
                                 n * sizeof(*versions));
        }
        for (size_t i = 0; rc == 0 && i < n; i++) {
            take_symbol(p, &chunk[i], versioned ? versions[i] : 0);
        }
    }
    free(versions);
    free(chunk);
    return rc;
}

/* The string that ends before text[end] may be, or end in, a wanted name. base: place of text. */
static int take_string(struct pass *p, const char *text, size_t end, uint64_t base)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->length_count; i++) {
        size_t len = p->lengths[i];
        struct ltn_elf_sym *want =
            len <= end ? ltn_map_get(p->wanted, text + end - len, len) : NULL;
        if (want != NULL && p->places.len < MAX_PLACES) {
            rc = ltn_map_put_u64(&p->places, base + end - len, want);
        }
    }
    p->compared += p->length_count;
    return rc;
}

/* All strings whose end lies behind `from`. */
static int take_strings(struct pass *p, const char *text, size_t from, size_t n, uint64_t base)
{
    int rc = 0;
    for (size_t at = from; rc == 0 && at < n && p->compared < MAX_COMPARED; at++) {
        const char *end = memchr(text + at, '\0', n - at);
        if (end == NULL) {
            break;
        }
        at = (size_t)(end - text);
        unsigned tail = at >= 2 ? tail_of(end) : at == 1 ? (unsigned char)text[0] : 0;
        if (at > 0 && (p->tails[tail / 8] & 1u << tail % 8) != 0) {
            rc = take_string(p, text, at, base);
        }
    }
    return p->compared < MAX_COMPARED ? rc : LTN_ERR_TOO_LARGE;
}

/* Reads the string table in pieces, each with so much of the one before that no name is cut. */
static int find_places(struct pass *p)
{
    const struct table *t = p->table;
    size_t room = STRINGS_A_CHUNK + p->longest;
    char *text = malloc(room);
    size_t kept = 0;
    int rc = text == NULL ? -ENOMEM : 0;
    for (uint64_t at = 0; rc == 0 && at < t->str_size;) {
        uint64_t left = t->str_size - at;
        size_t n = left < STRINGS_A_CHUNK ? (size_t)left : STRINGS_A_CHUNK;
        rc = ltn_elf_read_at(p->elf, t->str_off + at, text + kept, n);
        if (rc == 0) {
            rc = take_strings(p, text, kept, kept + n, at - kept);
        }
        at += n;
        size_t keep = kept + n < p->longest ? kept + n : p->longest;
        memmove(text, text + kept + n - keep, keep);
        kept = keep;
    }
    free(text);
    return rc;
}

static int one_table(struct pass *p, const struct table *t)
{
    if (t->sym_count == 0) {
        return 0;
    }
    if (t->sym_count > MAX_SYMBOLS || t->str_size > MAX_STRTAB) {
        return LTN_ERR_TOO_LARGE;
    }
    p->table = t;
    ltn_map_init(&p->places, MAX_PLACES);
    int rc = find_places(p);
    if (rc == 0 && p->places.len > 0) {
        rc = walk_symbols(p);
    }
    ltn_map_done(&p->places, NULL);
    return rc;
}

/* Fills code and alias_of of what was found. Names asked for twice share the first one's answer. */
static int finish_lookup(struct pass *p, size_t count)
{
    struct ltn_map by_offset;
    ltn_map_init(&by_offset, count);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct ltn_elf_sym *s = &p->syms[i];
        const struct ltn_elf_sym *first = ltn_map_get_str(p->wanted, s->name);
        if (first != NULL && first != s) {
            const char *name = s->name;
            *s = *first;
            s->name = name;
        }
        if (!s->found || p->objects) {
            continue;
        }
        rc = ltn_elf_read_at(p->elf, s->file_offset, s->code, s->code_len);
        struct ltn_elf_sym *same = ltn_map_get_u64(&by_offset, s->file_offset);
        if (same != NULL) {
            s->alias_of = (uint32_t)(same - p->syms) + 1;
        } else if (rc == 0) {
            rc = ltn_map_put_u64(&by_offset, s->file_offset, s);
        }
    }
    ltn_map_done(&by_offset, NULL);
    return rc;
}

int ltn_elf_lookup(struct ltn_elf *e, unsigned tables, struct ltn_elf_sym *syms, size_t count)
{
    if (count == 0) {
        return 0;
    }
    if (count > MAX_NAMES) {
        return LTN_ERR_TOO_LARGE;
    }
    struct ltn_map wanted;
    ltn_map_init(&wanted, count);
    struct pass p = {.elf = e,
                     .wanted = &wanted,
                     .syms = syms,
                     .rank = calloc(count, 1),
                     .lengths = calloc(count, sizeof(uint16_t)),
                     .tails = calloc(TAILS_BYTES, 1),
                     .objects = (tables & LTN_ELF_OBJECTS) != 0};
    int rc = p.rank == NULL || p.lengths == NULL || p.tails == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        syms[i] = (struct ltn_elf_sym){.name = syms[i].name};
        size_t len = strnlen(syms[i].name, MAX_NAME_BYTES + 1);
        if (len > MAX_NAME_BYTES) {
            rc = LTN_ERR_TOO_LARGE;
        } else if (ltn_map_get(&wanted, syms[i].name, len) == NULL) {
            rc = ltn_map_put(&wanted, syms[i].name, len, &syms[i]);
        }
        if (rc == 0) {
            want_name(&p, syms[i].name, len);
        }
    }
    if (rc == 0 && (tables & LTN_ELF_DYNSYM) != 0) {
        rc = one_table(&p, &e->dynsym);
    }
    if (rc == 0 && (tables & LTN_ELF_SYMTAB) != 0) {
        p.from_symtab = true;
        rc = one_table(&p, &e->symtab);
    }
    if (rc == 0) {
        rc = finish_lookup(&p, count);
    }
    free(p.tails);
    free(p.lengths);
    free(p.rank);
    ltn_map_done(&wanted, NULL);
    return rc;
}

int ltn_elf_bias(const struct ltn_elf *e, uint64_t map_start, uint64_t pgoff_bytes,
                 uint64_t *ret_bias)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < e->phdr_count; i++) {
        const Elf64_Phdr *p = &e->phdrs[i];
        if (p->p_type == PT_LOAD && (p->p_offset & ~(page - 1)) == pgoff_bytes) {
            *ret_bias = map_start - (p->p_vaddr & ~(page - 1));
            return 0;
        }
    }
    return LTN_ERR_NOT_FOUND;
}

int ltn_elf_read_at_address(const struct ltn_elf *e, uint64_t address, void *out, size_t n)
{
    uint64_t off;
    uint64_t room;
    if (!ltn_elf_offset_of(e, address, false, &off, &room) || n > room) {
        return LTN_ERR_NOT_FOUND;
    }
    return ltn_elf_read_at(e, off, out, n);
}

/* ---- from addresses to names ---- */

static const struct table *table_of(const struct ltn_elf *e, unsigned table)
{
    return table == LTN_ELF_SYMTAB ? &e->symtab : &e->dynsym;
}

uint64_t ltn_elf_symbol_count(const struct ltn_elf *e, unsigned table)
{
    return table_of(e, table)->sym_count;
}

static bool as_function(const struct ltn_elf *e, const Elf64_Sym *s, struct ltn_elf_function *f)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);
    unsigned bind = ELF64_ST_BIND(s->st_info);
    uint64_t room;
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || s->st_shndx == SHN_UNDEF ||
        s->st_value == 0 || !ltn_elf_offset_of(e, s->st_value, true, &f->file_offset, &room)) {
        return false;
    }
    f->size_bytes = s->st_size < room ? s->st_size : room;
    f->name = s->st_name;
    f->rank = bind == STB_LOCAL ? 0 : bind == STB_WEAK ? 1 : 2;
    return true;
}

int ltn_elf_functions(struct ltn_elf *e, unsigned table,
                      int (*fn)(void *arg, const struct ltn_elf_function *f), void *arg)
{
    const struct table *t = table_of(e, table);
    if (t->sym_count > MAX_SYMBOLS) {
        return LTN_ERR_TOO_LARGE;
    }
    Elf64_Sym *chunk = malloc(SYMBOLS_A_CHUNK * sizeof(*chunk));
    int rc = chunk == NULL ? -ENOMEM : 0;
    for (uint64_t at = 0; rc == 0 && at < t->sym_count; at += SYMBOLS_A_CHUNK) {
        uint64_t left = t->sym_count - at;
        size_t n = left < SYMBOLS_A_CHUNK ? (size_t)left : SYMBOLS_A_CHUNK;
        rc = ltn_elf_read_at(e, t->sym_off + at * sizeof(*chunk), chunk, n * sizeof(*chunk));
        for (size_t i = 0; rc == 0 && i < n; i++) {
            struct ltn_elf_function f;
            rc = as_function(e, &chunk[i], &f) ? fn(arg, &f) : 0;
        }
    }
    free(chunk);
    return rc < 0 ? rc : 0;
}

int ltn_elf_name(const struct ltn_elf *e, unsigned table, uint32_t name, char *out, size_t size)
{
    const struct table *t = table_of(e, table);
    if (size == 0 || name >= t->str_size) {
        return LTN_ERR_MALFORMED;
    }
    uint64_t room = t->str_size - name;
    size_t n = room < size - 1 ? (size_t)room : size - 1;
    int rc = ltn_elf_read_at(e, t->str_off + name, out, n);
    if (rc < 0) {
        return rc;
    }
    out[n] = '\0';
    out[strcspn(out, "@")] = '\0';
    return 0;
}

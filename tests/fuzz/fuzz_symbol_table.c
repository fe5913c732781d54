/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ELF file whose functions are looked up by place, and as a symbol. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbol/demangle.h"
#include "symbol/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_symbol(const uint8_t *data, size_t size)
{
    char symbol[512] = "_Z";
    char out[128];
    size_t n = size < sizeof(symbol) - 3 ? size : sizeof(symbol) - 3;
    memcpy(symbol + 2, data, n);
    ltn_demangle(symbol, out, sizeof(out));
    if (strnlen(out, sizeof(out)) == sizeof(out)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ltn_symtab *t;
    char name[256];
    as_symbol(data, size);
    int fd = memfd_create("elf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return 0;
    }
    if (ltn_symtab_open(fd, &t) < 0) {
        return 0;
    }
    for (uint64_t at = 0; at < size + 64; at += 1 + size / 64) {
        memset(name, 'x', sizeof(name));
        if (ltn_symtab_name(t, at, name, sizeof(name)) == 0 &&
            strnlen(name, sizeof(name)) == sizeof(name)) {
            abort();
        }
    }
    if (ltn_symtab_name(t, UINT64_MAX, name, sizeof(name)) == 0 && size == 0) {
        abort();
    }
    ltn_symtab_free(t);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of /proc/PID/maps, taken apart and told by file name whether they are of interest. Pure,
 * thread-safe. */
#ifndef LTN_DISCOVER_MAPS_H
#define LTN_DISCOVER_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct ltn_map_line {
    uint64_t start;
    uint64_t end;
    uint64_t pgoff_bytes;
    uint64_t ino;
    uint32_t dev_major;
    uint32_t dev_minor;
    bool readable;
    bool executable;
    bool deleted;     /* the kernel marked the path "(deleted)" */
    const char *path; /* inside the line, not terminated; without " (deleted)" */
    size_t path_len;  /* 0 = anonymous */
};

/* Takes one line (len bytes, without its newline) apart. 0 or LTN_ERR_MALFORMED. */
int ltn_map_line_parse(const char *line, size_t len, struct ltn_map_line *ret) ltn_must_check;

/* Most bytes of a maps file that are looked at (some 40,000 lines). */
#define LTN_MAPS_MAX_BYTES (4u * 1024 * 1024)

/* Next parseable line of a maps text: start with *pos = 0; false at the end. A last line without
 * newline is left out (the text was cut there). */
bool ltn_maps_next(const char *text, size_t len, size_t *pos, struct ltn_map_line *ret);

/* Libraries the agent looks for. */
enum ltn_lib_kind {
    LTN_LIB_NONE,
    LTN_LIB_CUDART,   /* libcudart.so*, libcudart-<hash>.so* */
    LTN_LIB_CUDA,     /* libcuda.so* (the driver's user side) */
    LTN_LIB_NCCL,     /* libnccl.so* */
    LTN_LIB_EMBEDDED, /* another file that carries cudart or NCCL functions of its own */
};
#define LTN_LIB_KINDS 5

/* "cudart", "cuda", "nccl", "embedded", "none"; static storage. */
const char *ltn_lib_kind_name(enum ltn_lib_kind kind);

/* Kind by the file's name (the part after the last slash); LTN_LIB_NONE for anything else. Never
 * gives LTN_LIB_EMBEDDED, which takes a look inside. */
enum ltn_lib_kind ltn_lib_kind_of_path(const char *path, size_t path_len);

/* True for shared files known to carry NCCL or cudart inside in some builds (libtorch_cuda*.so),
 * which are therefore worth a look. */
bool ltn_lib_may_embed(const char *path, size_t path_len);

#endif /* LTN_DISCOVER_MAPS_H */

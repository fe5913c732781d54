/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the agent's BPF maps whole. Thread-safe: the state is the caller's. */
#ifndef LTN_CAPTURE_KERNEL_MAPS_H
#define LTN_CAPTURE_KERNEL_MAPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* Calls fn with each key and value of a hash map, in batches. Entries that come and go meanwhile
 * may or may not be seen. The keys and values are valid during the call. 0 or -errno. */
int ltn_kernel_map_each(int fd, size_t key_bytes, size_t value_bytes,
                        void (*fn)(const void *key, const void *value, void *arg),
                        void *arg) ltn_must_check;

/* Sums a per-CPU array of 64-bit counters into out[count]. 0 or -errno. */
int ltn_kernel_counters(int fd, uint64_t *out, size_t count) ltn_must_check;

#endif /* LTN_CAPTURE_KERNEL_MAPS_H */

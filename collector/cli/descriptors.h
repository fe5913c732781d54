/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors: connections are many, and the limit that shells and containers give is often
 * 1024. */
#ifndef LTN_COLLECTOR_DESCRIPTORS_H
#define LTN_COLLECTOR_DESCRIPTORS_H

#include <stdint.h>

/* Raises the soft limit to the hard one, as far as wanted connections and what else is open need.
 * Returns how many connections the limit has room for, with some kept back for readers and health,
 * at most wanted. Before threads are started. */
uint32_t ltn_collector_descriptors(uint32_t wanted);

#endif /* LTN_COLLECTOR_DESCRIPTORS_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks. CLOCK_MONOTONIC is what BPF's bpf_ktime_get_ns() reads, so both sides of a probe
 * share it. Thread-safe. */
#ifndef LTN_BASE_CLOCK_H
#define LTN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC, CLOCK_REALTIME (since the Unix epoch) and of this process's CPU
 * time. */
uint64_t ltn_now_mono_ns(void);
uint64_t ltn_now_unix_ns(void);
uint64_t ltn_cpu_self_ns(void);

/* Turns a monotonic time stamp into Unix time with the present difference of the two clocks. */
uint64_t ltn_mono_to_unix_ns(uint64_t mono_ns);

/* Writes "2026-01-31T12:00:00.123Z" (RFC 3339, UTC, milliseconds) with its terminator into out. */
#define LTN_RFC3339_BYTES 32
void ltn_format_rfc3339(uint64_t unix_ns, char out[LTN_RFC3339_BYTES]);

#endif /* LTN_BASE_CLOCK_H */

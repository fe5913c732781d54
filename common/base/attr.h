/* SPDX-License-Identifier: Apache-2.0 */
/* Compiler attributes and small macros used everywhere. */
#ifndef LTN_BASE_ATTR_H
#define LTN_BASE_ATTR_H

#define ltn_must_check       __attribute__((warn_unused_result))
#define ltn_printf(fmt, arg) __attribute__((format(printf, fmt, arg)))

#define LTN_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The text of a macro's value. */
#define LTN_STRING_OF(x) #x
#define LTN_STRING(x)    LTN_STRING_OF(x)

#define LTN_NS_PER_S  1000000000ULL
#define LTN_NS_PER_MS 1000000ULL
#define LTN_NS_PER_US 1000ULL

#endif /* LTN_BASE_ATTR_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the headers it wants before it. */
#ifndef LTN_TESTS_CMOCKA_ALL_H
#define LTN_TESTS_CMOCKA_ALL_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#define LTN_RUN_TESTS(tests) cmocka_run_group_tests(tests, NULL, NULL)

#endif /* LTN_TESTS_CMOCKA_ALL_H */

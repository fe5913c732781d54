/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of JSON text. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "otlp/json_lex.h"

/* Exponents beyond this give 0 or no double at all, whatever the digits. */
#define EXPONENT_MAX 1000000

static bool is_digit(const uint8_t *p, const uint8_t *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* Appends digits from p on; fraction: they stand behind the point. */
static const uint8_t *take_digits(const uint8_t *p, const uint8_t *end, bool fraction,
                                  struct ltn_jlex_num *num)
{
    for (; is_digit(p, end); p++) {
        unsigned d = *p - (unsigned)'0';
        if (num->digits < UINT64_MAX / 10 ||
            (num->digits == UINT64_MAX / 10 && d <= UINT64_MAX % 10)) {
            num->digits = num->digits * 10 + d;
            num->exp10 -= fraction ? 1 : 0;
        } else {
            /* From the first digit that does not fit on, none may be taken. */
            for (; is_digit(p, end); p++) {
                num->cut = num->cut || *p != '0';
                num->exp10 += fraction ? 0 : 1;
            }
            break;
        }
    }
    return p;
}

/* The exponent behind the e at p; NULL when malformed. */
static const uint8_t *take_exponent(const uint8_t *p, const uint8_t *end, struct ltn_jlex_num *num)
{
    int64_t e = 0;
    bool negative = false;
    p++;
    if (p < end && (*p == '+' || *p == '-')) {
        negative = *p == '-';
        p++;
    }
    if (!is_digit(p, end)) {
        return NULL;
    }
    for (; is_digit(p, end); p++) {
        e = e < EXPONENT_MAX ? e * 10 + (*p - '0') : EXPONENT_MAX;
    }
    num->exp10 += negative ? -e : e;
    return p;
}

int ltn_jlex_number(struct ltn_jlex *l, struct ltn_jlex_num *ret)
{
    const uint8_t *p = l->p;
    const uint8_t *end = l->end;
    struct ltn_jlex_num num = {.p = p};
    if (p < end && *p == '-') {
        num.negative = true;
        p++;
    }
    if (!is_digit(p, end) || (*p == '0' && is_digit(p + 1, end))) {
        return LTN_ERR_MALFORMED;
    }
    p = take_digits(p, end, false, &num);
    if (p < end && *p == '.') {
        if (!is_digit(p + 1, end)) {
            return LTN_ERR_MALFORMED;
        }
        /* Digits were dropped already: those behind the point can only be dropped as well. */
        bool full = num.exp10 > 0 || num.cut;
        struct ltn_jlex_num rest = {.digits = full ? UINT64_MAX : num.digits, .cut = num.cut};
        p = take_digits(p + 1, end, true, &rest);
        num.digits = full ? num.digits : rest.digits;
        num.exp10 += rest.exp10;
        num.cut = rest.cut;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p = take_exponent(p, end, &num);
        if (p == NULL) {
            return LTN_ERR_MALFORMED;
        }
    }
    num.n = (size_t)(p - l->p);
    if (num.n > LTN_JLEX_NUMBER_MAX) {
        return LTN_ERR_MALFORMED;
    }
    l->p = p;
    *ret = num;
    return 0;
}

#define EXACT_MAX 27 /* 10^27 = 5^27 * 2^27, and 5^27 has 63 bits */

#if LDBL_MANT_DIG == 64
static const long double powers[EXACT_MAX + 1] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                                  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                                  1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                                  1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};

/* Digits and power are exact in 64 bits, so this is the true value rounded once to 64 bits.
 * Rounding that to the 53 of a double gives what the true value gives, except from just the middle
 * of two doubles: there the first rounding has hidden on which side the true value lies. */
static bool rounded(uint64_t digits, int64_t exp10, double *ret)
{
    long double v = (long double)digits;
    uint64_t mantissa;
    if (exp10 < -EXACT_MAX || exp10 > EXACT_MAX) {
        return false;
    }
    v = exp10 < 0 ? v / powers[-exp10] : v * powers[exp10];
    memcpy(&mantissa, &v, sizeof(mantissa));
    if ((mantissa & 0x7ff) == 0x400) {
        return false;
    }
    *ret = (double)v;
    return true;
}
#else
static bool rounded(uint64_t digits, int64_t exp10, double *ret)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    /* Both operands are exact, so one operation rounds once. */
    if (digits >> 53 != 0 || exp10 < -22 || exp10 > 22) {
        return false;
    }
    *ret = exp10 < 0 ? (double)digits / powers[-exp10] : (double)digits * powers[exp10];
    return true;
}
#endif

bool ltn_jlex_f64(const struct ltn_jlex_num *num, double *ret)
{
    double v = 0;
    if (num->digits == 0 && !num->cut) {
        v = 0;
    } else if (num->cut || !rounded(num->digits, num->exp10, &v)) {
        char text[LTN_JLEX_NUMBER_MAX + 1];
        const char *from = num->negative ? text + 1 : text;
        memcpy(text, num->p, num->n);
        text[num->n] = '\0';
        v = strtod(from, NULL);
        if (isinf(v)) {
            return false;
        }
    }
    *ret = num->negative ? -v : v;
    return true;
}

bool ltn_jlex_int(const struct ltn_jlex_num *num, uint64_t *ret_magnitude)
{
    uint64_t v = num->digits;
    int64_t exp10 = num->exp10;
    if (num->cut) {
        return false;
    }
    for (; exp10 > 0 && v != 0; exp10--) {
        if (v > UINT64_MAX / 10) {
            return false;
        }
        v *= 10;
    }
    for (; exp10 < 0 && v != 0; exp10++) {
        if (v % 10 != 0) {
            return false;
        }
        v /= 10;
    }
    *ret_magnitude = v;
    return true;
}

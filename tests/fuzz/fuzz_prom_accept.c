/* SPDX-License-Identifier: Apache-2.0 */
/* Accept headers: whatever they are, the answer is one of the few that there are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "prom/accept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct ltn_prom_choice c;
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    ltn_prom_choose(text, &c);
    static const char *const types[] = {LTN_PROM_TYPE_TEXT, LTN_PROM_TYPE_TEXT_1,
                                        LTN_PROM_TYPE_OPENMETRICS, LTN_PROM_TYPE_OPENMETRICS_0};
    bool known = false;
    for (size_t i = 0; i < 4; i++) {
        size_t n = strlen(types[i]);
        const char *rest = c.content_type + n;
        if (strncmp(c.content_type, types[i], n) == 0)
            known = rest[0] == '\0' || strcmp(rest, "; escaping=allow-utf-8") == 0 ||
                    strcmp(rest, "; escaping=underscores") == 0;
        if (known && (c.format == LTN_PROM_OPENMETRICS) != (i >= 2))
            abort();
        if (known)
            break;
    }
    if (!known)
        abort();
    free(text);
    return 0;
}

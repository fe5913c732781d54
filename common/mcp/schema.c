/* SPDX-License-Identifier: Apache-2.0 */
/* The part of JSON Schema that the tools' arguments need. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "mcp/mcp.h"

static bool is_type(const char *type, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return strcmp(type, "object") == 0;
    case JSON_ARRAY:
        return strcmp(type, "array") == 0;
    case JSON_STRING:
        return strcmp(type, "string") == 0;
    case JSON_INTEGER:
        return strcmp(type, "integer") == 0 || strcmp(type, "number") == 0;
    case JSON_REAL:
        return strcmp(type, "number") == 0;
    case JSON_TRUE:
    case JSON_FALSE:
        return strcmp(type, "boolean") == 0;
    case JSON_NULL:
        return strcmp(type, "null") == 0;
    default:
        return false;
    }
}

/* "type" is a name or a list of names. */
static bool type_fits(const json_t *type, const json_t *v)
{
    size_t i;
    const json_t *t;
    if (json_is_string(type)) {
        return is_type(json_string_value(type), v);
    }
    json_array_foreach(type, i, t)
    {
        if (json_is_string(t) && is_type(json_string_value(t), v)) {
            return true;
        }
    }
    return !json_is_array(type);
}

static bool enum_fits(const json_t *list, const json_t *v)
{
    size_t i;
    const json_t *one;
    json_array_foreach(list, i, one)
    {
        if (json_equal(one, v)) {
            return true;
        }
    }
    return false;
}

/* Characters, not bytes. */
static size_t text_chars(const json_t *v)
{
    size_t n = 0;
    const char *s = json_string_value(v);
    for (size_t i = 0; i < json_string_length(v); i++) {
        n += ((unsigned char)s[i] & 0xc0) != 0x80 ? 1 : 0;
    }
    return n;
}

/* One value without what it holds; where is its name for people. */
static bool check_one(const json_t *schema, const json_t *v, const char *where, char *why,
                      size_t size)
{
    const json_t *type = json_object_get(schema, "type");
    const json_t *list = json_object_get(schema, "enum");
    const json_t *min = json_object_get(schema, "minimum");
    const json_t *max = json_object_get(schema, "maximum");
    const json_t *chars = json_object_get(schema, "maxLength");
    const json_t *items = json_object_get(schema, "maxItems");
    if (type != NULL && !type_fits(type, v)) {
        (void)snprintf(why, size, "%s: expected %s", where,
                       json_is_string(type) ? json_string_value(type) : "another type");
    } else if (list != NULL && !enum_fits(list, v)) {
        (void)snprintf(why, size, "%s: not one of the allowed values", where);
    } else if (min != NULL && json_is_number(v) && json_number_value(v) < json_number_value(min)) {
        (void)snprintf(why, size, "%s: below %g", where, json_number_value(min));
    } else if (max != NULL && json_is_number(v) && json_number_value(v) > json_number_value(max)) {
        (void)snprintf(why, size, "%s: above %g", where, json_number_value(max));
    } else if (chars != NULL && json_is_string(v) &&
               text_chars(v) > (size_t)json_integer_value(chars)) {
        (void)snprintf(why, size, "%s: longer than %lld characters", where,
                       (long long)json_integer_value(chars));
    } else if (items != NULL && json_array_size(v) > (size_t)json_integer_value(items)) {
        (void)snprintf(why, size, "%s: more than %lld items", where,
                       (long long)json_integer_value(items));
    } else {
        return true;
    }
    return false;
}

static bool check_required(const json_t *schema, const json_t *v, char *why, size_t size)
{
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(schema, "required"), i, name)
    {
        if (json_object_get(v, json_string_value(name)) == NULL) {
            (void)snprintf(why, size, "%s is missing", json_string_value(name));
            return false;
        }
    }
    return true;
}

static bool check_items(const json_t *schema, const json_t *v, const char *where, char *why,
                        size_t size)
{
    size_t i;
    const json_t *one;
    const json_t *of = json_object_get(schema, "items");
    json_array_foreach(v, i, one)
    {
        if (of != NULL && !check_one(of, one, where, why, size)) {
            return false;
        }
    }
    return true;
}

/* Two levels are enough for arguments: an object of values and of lists of values. */
bool ltn_mcp_schema_check(const json_t *schema, const json_t *value, char *why, size_t size)
{
    const char *key;
    json_t *v;
    char where[64];
    const json_t *known = json_object_get(schema, "properties");
    if (!check_one(schema, value, "arguments", why, size) ||
        !check_required(schema, value, why, size)) {
        return false;
    }
    /* The iterator does not change the object. */
    json_object_foreach((json_t *)(uintptr_t)value, key, v)
    {
        const json_t *s = json_object_get(known, key);
        ltn_text_clean(where, sizeof(where), key, strlen(key));
        if (s == NULL && json_is_false(json_object_get(schema, "additionalProperties"))) {
            (void)snprintf(why, size, "%s: no such argument", where);
            return false;
        }
        if (s != NULL &&
            (!check_one(s, v, where, why, size) || !check_items(s, v, where, why, size))) {
            return false;
        }
    }
    return true;
}

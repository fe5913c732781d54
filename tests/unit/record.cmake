# SPDX-License-Identifier: Apache-2.0
ltn_test(test_conf_sources test_conf_sources.c)
target_link_libraries(test_conf_sources PRIVATE ltn_conf)
ltn_test(test_sql_db test_sql_db.c)
target_link_libraries(test_sql_db PRIVATE ltn_sql)
ltn_test(test_sql_failures test_sql_failures.c)
target_link_libraries(test_sql_failures PRIVATE ltn_sql)
ltn_test(test_sql_query test_sql_query.c)
target_link_libraries(test_sql_query PRIVATE ltn_sql)

//! Fragments of SQL that several modules use: names with their schema, the server's time, and
//! planner settings.

/// SQL expression for the time of the server, in milliseconds since the Unix epoch.
pub(super) const NOW_MS: &str = "(floor(extract(epoch from clock_timestamp()) * 1000))::bigint";

/// Planner settings for each connection to a real PostgreSQL.
///
/// A plan is made once for each connection, possibly when the tables are still empty, and a
/// sequential scan is the cheapest plan for an empty table. But every statement has a plan that is
/// right for tables of any size: nested loops with index lookups. JIT compilation is off: without
/// statistics about the rows, the planner overestimates the costs, and compilation takes up to a
/// second on each connection.
pub(super) const PLANNER: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// Names of tables, to which [`in_schema`] adds the schema.
pub(super) const NAMES: [&str; 4] = ["kvstore_meta", "kvstore_family", "kvstore_row", "kvstore_unsettled"];

/// Returns the SET statement after which table names without a schema refer to `schema`.
///
/// A statement on a table that may be missing follows it in the same request, and is not changed by
/// [`in_schema`]. A role that may not use the schema then gets the same answer as for a missing
/// table.
pub(super) fn search_path(schema: &str) -> String {
    format!("SET search_path = {}", quoted(schema))
}

/// Returns the statement with `schema` added to the names of tables ([`NAMES`]). The `search_path`
/// alone is not sufficient: a pooler that does not keep sessions may run the statement on a
/// connection with the `search_path` of another store.
pub(super) fn in_schema(schema: &str, sql: &str) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut named = String::with_capacity(2 * sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find("kvstore_") {
        let (before, from) = rest.split_at(at);
        let (name, after) = from.split_at(from.find(|c| !is_of_name(c)).unwrap_or(from.len()));
        named.push_str(before);
        if NAMES.contains(&name) && !before.ends_with(|c| is_of_name(c) || c == '.') {
            let schema = quoted(schema);
            // The name of a table may also be in a string literal.
            named.push_str(&if before.ends_with('\'') { schema.replace('\'', "''") } else { schema });
            named.push('.');
        }
        named.push_str(name);
        rest = after;
    }
    named + rest
}

/// Returns a name as a quoted identifier of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_added_to_table_names_only() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT 1"),
            ("LOCK TABLE kvstore_row", "LOCK TABLE \"o'\"\"x\".kvstore_row"),
            (
                "UPDATE kvstore_row SET value = kvstore_row.value FROM kvstore_family f",
                "UPDATE \"o'\"\"x\".kvstore_row SET value = \"o'\"\"x\".kvstore_row.value FROM \"o'\"\"x\".kvstore_family f",
            ),
            ("SELECT 'kvstore_meta'::regclass", "SELECT '\"o''\"\"x\".kvstore_meta'::regclass"),
            ("SAVEPOINT kvstore; SELECT a.kvstore_row, kvstore_rows, kvstore_row_expiry, my_kvstore_row", ""),
            ("kvstore_unsettled", "\"o'\"\"x\".kvstore_unsettled"),
        ] {
            let expected = if expected.is_empty() { sql } else { expected };
            assert_eq!(in_schema("o'\"x", sql), expected);
        }
    }
}

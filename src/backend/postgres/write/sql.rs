//! Statements that write to a family, and the fragments from which all statements are built.
//!
//! A statement returns one row, or none if the family does not exist. The row contains the outcome,
//! as one of the constants of this module, or a number of rows. An unconditional put returns no
//! row; the server reports the number of rows written.

use crate::backend::postgres::Db;

/// Two texts of one statement: `alone` for use outside the caller's transaction, and `inside` for
/// use inside it.
pub(in crate::backend::postgres) struct Text {
    pub(in crate::backend::postgres) alone: &'static str,
    pub(in crate::backend::postgres) inside: &'static str,
}

impl Text {
    pub(in crate::backend::postgres) fn on(&self, db: &Db) -> &'static str {
        if db.is_alone() { self.alone } else { self.inside }
    }
}

/// Outcome of a conditional write: nothing was written, because the key is missing or expired, or
/// because the condition of the write is not met.
pub(super) const NOT: i32 = 0;
pub(super) const DONE: i32 = 1;
/// Outcome: another client has changed the row during the statement, which must be run again.
pub(super) const AGAIN: i32 = 2;
/// Outcome of an increment or a change of the expiry time: the key is live, but was not changed,
/// because the sum is out of range or the condition is not met.
pub(super) const REFUSED: i32 = 3;
/// Outcome of an increment: the value is not a decimal integer of 64 bits.
pub(super) const NO_NUMBER: i32 = 4;

/// SQL expression for the server's time in milliseconds, from one of PostgreSQL's clock functions.
macro_rules! ms {
    ($clock:literal) => {
        concat!("(floor(extract(epoch from ", $clock, "()) * 1000))::bigint")
    };
}

/// SQL expression for the current time in milliseconds. Each evaluation returns another value, so
/// an index cannot be searched by it.
macro_rules! clock {
    () => {
        $crate::backend::postgres::write::sql::ms!("clock_timestamp")
    };
}

/// SQL expression for the time in milliseconds at which the statement arrived at the server. It is
/// one value for the whole statement, so an index can be searched by it.
macro_rules! came {
    () => {
        $crate::backend::postgres::write::sql::ms!("statement_timestamp")
    };
}

/// Common table expression `f`: the family with the name `$1`.
macro_rules! with_family {
    () => {
        "WITH f AS MATERIALIZED (SELECT id, default_ttl_ms, track_writes FROM kvstore_family WHERE name = $1)"
    };
}

/// Condition: row `r` has the key `$2` and belongs to the family `f`.
macro_rules! row {
    () => {
        "r.family = f.id AND r.key = $2"
    };
}

/// Condition: row `r` is live at the time `$now`.
macro_rules! live {
    ($now:expr) => {
        concat!("(r.expire_ms IS NULL OR r.expire_ms > ", $now, ")")
    };
}

/// SQL expression for the time `$millis` milliseconds after `$moment`, or the last possible time if
/// that is earlier.
macro_rules! after {
    ($moment:expr, $millis:expr) => {
        concat!($moment, " + LEAST(", $millis, ", 9223372036854775807 - ", $moment, ")")
    };
}

/// SQL condition that must follow the FROM item [`row_locked`]. It uses the result of the locking
/// subquery, and is always true.
macro_rules! and_locked {
    () => {
        " AND l.rows >= 0"
    };
}

pub(in crate::backend::postgres) use {after, and_locked, came, clock, live, ms, with_family};

/// SQL expression for the expiry time of a put:
/// - `$4` if `$5` is NULL;
/// - `$5` milliseconds after `$now` if `$5` is not negative;
/// - the default TTL of the family after `$now` if `$5` is [`BY_DEFAULT`]; NULL if the family has
///   none.
macro_rules! put_end {
    ($now:expr) => {
        concat!(
            "CASE WHEN $5::bigint IS NULL THEN $4::bigint WHEN $5 >= 0 THEN ",
            after!($now, "$5"),
            " WHEN f.default_ttl_ms > 0 THEN ",
            $now,
            " + f.default_ttl_ms END"
        )
    };
}

/// Value of a TTL or expiry time parameter that selects the default TTL of the family.
pub(super) const BY_DEFAULT: i64 = -1;

/// SELECT of a row to be put: `$3` is the value, `$4` the expiry time, `$5` the TTL that replaces
/// `$4` unless it is NULL, and `$6` the write time.
macro_rules! new_row {
    () => {
        concat!(
            "SELECT f.id, $2::bytea, $3::bytea, ",
            put_end!(came!()),
            ", ",
            "CASE WHEN f.track_writes THEN coalesce($6::bigint, ",
            clock!(),
            ") END"
        )
    };
}

/// FROM item that locks the row of key `$2` in the snapshot, if there is one, before the statement
/// inserts a row.
///
/// In the caller's transaction, `INSERT … ON CONFLICT` needs this. If another client has deleted
/// the row since the snapshot, the INSERT finds no conflict and inserts a second row. The
/// transaction has seen the first row and still sees it, and would nevertheless be committed. With
/// the lock, the statement fails with a serialization failure (SQLSTATE 40001). (If another client
/// has inserted or changed the row, the INSERT fails without the lock: PostgreSQL's
/// `ExecCheckTIDVisible`.)
macro_rules! row_locked {
    () => {
        concat!(
            " CROSS JOIN LATERAL (SELECT count(*) AS rows FROM (SELECT FROM kvstore_row r WHERE ",
            row!(),
            " FOR UPDATE) l) l"
        )
    };
}

/// Both texts of a statement that inserts, from the macro `$sql`. Its arguments are the fragment
/// that locks the row and the condition that must follow it; outside the caller's transaction, both
/// are empty.
macro_rules! insert_text {
    ($sql:ident) => {
        Text { alone: $sql!("", ""), inside: $sql!(row_locked!(), and_locked!()) }
    };
}

/// Both texts of a put. The arguments are SQL expressions: the expiry time, the write time, and the
/// expiry time if the key has a row already. The statement returns no row, because returning one
/// costs a tenth of the server's work; the server reports one row as written.
macro_rules! put {
    ($expire_ms:expr, $written_ms:expr, $new_expire_ms:expr) => {
        Text {
            alone: put!($expire_ms, $written_ms, $new_expire_ms, "", ""),
            inside: put!($expire_ms, $written_ms, $new_expire_ms, row_locked!(), and_locked!()),
        }
    };
    ($expire_ms:expr, $written_ms:expr, $new_expire_ms:expr, $lock:expr, $locked:expr) => {
        concat!(
            "INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) SELECT f.id, $2::bytea, $3::bytea, ",
            $expire_ms,
            ", CASE WHEN f.track_writes THEN coalesce(",
            $written_ms,
            ", ",
            clock!(),
            ") END FROM kvstore_family f",
            $lock,
            " WHERE f.name = $1",
            $locked,
            " ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, ",
            "written_ms = EXCLUDED.written_ms, expire_ms = ",
            $new_expire_ms
        )
    };
}

/// Put with the expiry time `$4` and the write time `$5`.
pub(super) const PUT: Text = put!("$4::bigint", "$5::bigint", "EXCLUDED.expire_ms");

/// Put with the default TTL of the family, and the write time `$4`.
pub(super) const PUT_BY_DEFAULT: Text = put!(
    concat!("CASE WHEN f.default_ttl_ms > 0 THEN ", came!(), " + f.default_ttl_ms END"),
    "$4::bigint",
    "EXCLUDED.expire_ms"
);

/// Put with a TTL of `$4` milliseconds, less than [`LONGEST_LIFE`], and the write time `$5`.
pub(super) const PUT_FOR: Text = put!(concat!(came!(), " + $4::bigint"), "$5::bigint", "EXCLUDED.expire_ms");

/// Smallest TTL, in milliseconds, for which a put without other options sets the last possible
/// expiry time instead of computing one.
pub(super) const LONGEST_LIFE: i64 = i64::MAX >> 1;

/// Put with all options except a condition. `$4` is the expiry time, `$5` the TTL that replaces
/// `$4` unless it is NULL, and `$6` the write time. `$7`: whether a live key keeps its expiry time.
pub(super) const PUT_WITH: Text = put!(
    put_end!(came!()),
    "$6::bigint",
    concat!("CASE WHEN $7::boolean AND ", live!(clock!()), " THEN r.expire_ms ELSE EXCLUDED.expire_ms END")
);

/// Text of the statement [`PUT_IF_ABSENT`]. `$lock` is the fragment that locks the row first, and
/// `$locked` the condition that must follow it. Both are empty outside the caller's transaction.
macro_rules! put_if_absent {
    ($lock:expr, $locked:expr) => { concat!(
    with_family!(),
    ", w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    new_row!(),
    " FROM f",
    $lock,
    " WHERE NOT EXISTS (SELECT FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(clock!()),
    ")",
    $locked,
    " ON CONFLICT (family, key) DO UPDATE SET value = EXCLUDED.value, written_ms = EXCLUDED.written_ms, ",
    "expire_ms = EXCLUDED.expire_ms WHERE r.expire_ms <= ",
    clock!(),
    " RETURNING 1) SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 ELSE 0 END FROM f"
) } }

/// Puts the key if it is missing or expired. If the key is live in the snapshot of the statement,
/// the statement locks and writes nothing.
pub(super) const PUT_IF_ABSENT: Text = insert_text!(put_if_absent);

/// SELECT of the outcome of the write `w`: [`DONE`] if it has written a row; else [`AGAIN`] if the
/// row in the snapshot meets `$condition`, so that another client has changed it since; else
/// [`NOT`].
macro_rules! done_or {
    ($condition:expr) => {
        concat!(
            "SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 WHEN EXISTS (SELECT FROM kvstore_row r WHERE ",
            row!(),
            " AND ",
            $condition,
            ") THEN 2 ELSE 0 END FROM f"
        )
    };
}

pub(super) const PUT_IF_PRESENT: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET value = $3::bytea, expire_ms = CASE WHEN $7::boolean THEN r.expire_ms ",
    "ELSE ",
    put_end!(clock!()),
    " END, ",
    "written_ms = CASE WHEN f.track_writes THEN coalesce($6::bigint, ",
    clock!(),
    ") END ",
    "FROM f WHERE ",
    row!(),
    " AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(live!(came!()))
);

pub(super) const DELETE: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE ",
    row!(),
    " RETURNING ",
    live!(clock!()),
    " AS live) ",
    "SELECT CASE WHEN EXISTS (SELECT FROM w) THEN (SELECT CASE WHEN live THEN 1 ELSE 0 END FROM w) ",
    "WHEN EXISTS (SELECT FROM kvstore_row r WHERE ",
    row!(),
    ") THEN 2 ELSE 0 END FROM f"
);

/// Deletes the keys from `$2` (inclusive) to `$3` (exclusive) of a family; [`DELETE_FROM`] deletes
/// all keys from `$2` on.
pub(super) const DELETE_BETWEEN: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE r.family = f.id AND r.key >= $2 AND r.key < $3 ",
    "RETURNING ",
    live!(clock!()),
    " AS live) SELECT (SELECT count(*) FROM w WHERE live) FROM f"
);
pub(super) const DELETE_FROM: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE r.family = f.id AND r.key >= $2 ",
    "RETURNING ",
    live!(clock!()),
    " AS live) SELECT (SELECT count(*) FROM w WHERE live) FROM f"
);

/// SQL expression for the expiry time of a write. The parameter is NULL for a key that never
/// expires, and [`BY_DEFAULT`] for the default TTL of family `f`.
macro_rules! end_or_default {
    ($parameter:literal) => {
        concat!(
            "CASE WHEN ",
            $parameter,
            "::bigint IS DISTINCT FROM -1 THEN ",
            $parameter,
            " WHEN f.default_ttl_ms > 0 THEN ",
            clock!(),
            " + f.default_ttl_ms END"
        )
    };
}

/// Replaces the value of a live key by `$4` if it equals `$3`. `$5` is the new expiry time: NULL
/// for a key that never expires, [`BY_DEFAULT`] for the default TTL of the family.
pub(super) const SWAP: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET value = $4::bytea, expire_ms = ",
    end_or_default!("$5"),
    ", written_ms = CASE WHEN f.track_writes THEN ",
    clock!(),
    " END FROM f WHERE ",
    row!(),
    " AND r.value = $3::bytea AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(concat!("r.value = $3 AND ", live!(came!())))
);

pub(super) const DELETE_IF_EQUAL: &str = concat!(
    with_family!(),
    ", w AS (DELETE FROM kvstore_row r USING f WHERE ",
    row!(),
    " AND r.value = $3::bytea AND ",
    live!(clock!()),
    " RETURNING 1) ",
    done_or!(concat!("r.value = $3 AND ", live!(came!())))
);

/// SQL expression for the number in the value of row `r`, as Rust parses it; NULL if it is not an
/// integer of 64 bits.
macro_rules! number {
    () => {
        concat!(
            "(SELECT CASE WHEN x.t ~ '^[+-]?[0-9]+$' AND length(ltrim(x.t, '+-0')) <= 19 THEN CASE WHEN x.t::numeric BETWEEN ",
            "-9223372036854775808 AND 9223372036854775807 THEN x.t::numeric END END FROM (SELECT encode(r.value, 'escape') AS t) x)"
        )
    };
}

/// Text of the statement [`INCREMENT`]. `$lock` is the fragment that locks the row first, and
/// `$locked` the condition that must follow it. Both are empty outside the caller's transaction.
macro_rules! increment {
    ($lock:expr, $locked:expr) => { concat!(
    with_family!(),
    ", w AS (INSERT INTO kvstore_row AS r (family, key, value, expire_ms, written_ms) ",
    "SELECT f.id, $2::bytea, convert_to($3::bigint::text, 'UTF8'), ",
    end_or_default!("$4"),
    ", CASE WHEN f.track_writes THEN ",
    clock!(),
    " END FROM f",
    $lock,
    " WHERE true",
    $locked,
    " ON CONFLICT (family, key) DO UPDATE SET written_ms = EXCLUDED.written_ms, (value, expire_ms) = (SELECT ",
    "CASE WHEN d.dead THEN EXCLUDED.value ELSE convert_to((",
    number!(),
    " + $3)::text, 'UTF8') END, ",
    "CASE WHEN d.dead THEN EXCLUDED.expire_ms ELSE r.expire_ms END ",
    "FROM (SELECT coalesce(r.expire_ms <= ",
    clock!(),
    ", false) AS dead) d) ",
    "WHERE r.expire_ms <= ",
    clock!(),
    " OR ",
    number!(),
    " + $3 BETWEEN -9223372036854775808 AND 9223372036854775807 ",
    "RETURNING value) SELECT CASE WHEN EXISTS (SELECT FROM w) THEN 1 ELSE coalesce((SELECT CASE WHEN ",
    number!(),
    " IS NULL THEN 4 WHEN ",
    number!(),
    " + $3 BETWEEN -9223372036854775808 AND 9223372036854775807 THEN 2 ELSE 3 END ",
    "FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(came!()),
    "), 2) END, (SELECT value FROM w) FROM f"
) } }

/// Adds `$3` to the number in the value. A key that is missing or expired counts as 0, and gets the
/// expiry time `$4`, or the default TTL of the family for [`BY_DEFAULT`]. Whether the old row is
/// expired is determined once for its value and its expiry time.
pub(super) const INCREMENT: Text = insert_text!(increment);

/// SQL condition on the current expiry time of row `r` and the new one, `$3`, where NULL means that
/// the key never expires. `$4` selects the condition: 0 is always true; 1: the key never expires;
/// 2: it has an expiry time; 3: it has one, and the new one is later; otherwise: the new one is
/// earlier.
macro_rules! condition {
    () => {
        concat!(
            "CASE $4::integer WHEN 0 THEN true WHEN 1 THEN r.expire_ms IS NULL WHEN 2 THEN r.expire_ms IS NOT NULL ",
            "WHEN 3 THEN r.expire_ms IS NOT NULL AND ($3 IS NULL OR $3 > r.expire_ms) ",
            "ELSE $3 IS NOT NULL AND (r.expire_ms IS NULL OR $3 < r.expire_ms) END"
        )
    };
}

/// Common table expressions that set the expiry time `$3` of those rows `r` that meet `$condition`,
/// which refers to the rows of `$from`: `w` sets it, or `d` removes the rows if that time has
/// passed.
macro_rules! change_end {
    ($from:literal, $condition:expr) => {
        concat!(
            ", n AS MATERIALIZED (SELECT ",
            clock!(),
            " AS ms), ",
            "d AS (DELETE FROM kvstore_row r USING ",
            $from,
            ", n WHERE $3::bigint <= n.ms AND ",
            $condition,
            " RETURNING 1), ",
            "w AS (UPDATE kvstore_row r SET expire_ms = $3 FROM ",
            $from,
            ", n WHERE ($3 IS NULL OR $3 > n.ms) AND ",
            $condition,
            " RETURNING 1) "
        )
    };
}

pub(super) const EXPIRE: &str = concat!(
    with_family!(),
    change_end!("f", concat!(row!(), " AND ", live!(clock!()), " AND ", condition!())),
    "SELECT CASE WHEN EXISTS (SELECT FROM w) OR EXISTS (SELECT FROM d) THEN 1 ELSE coalesce((SELECT CASE WHEN ",
    condition!(),
    " THEN 2 ELSE 3 END FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(came!()),
    "), 0) END FROM f"
);

/// Sets the expiry time `$3` of a live key. Returns the value, and what an undo needs: the old
/// expiry time, the write time, and whether the row was removed. They are read from the locked row,
/// because the row can have another expiry time in the snapshot.
pub(super) const GET_AND_EXPIRE: &str = concat!(
    with_family!(),
    ", l AS MATERIALIZED (SELECT v.* FROM f CROSS JOIN LATERAL (SELECT r.family, r.key, r.value, r.expire_ms, r.written_ms ",
    "FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(clock!()),
    " FOR UPDATE) v LIMIT 1)",
    change_end!("l", "r.family = l.family AND r.key = l.key"),
    "SELECT CASE WHEN EXISTS (SELECT FROM w) OR EXISTS (SELECT FROM d) THEN 1 WHEN EXISTS (SELECT FROM kvstore_row r WHERE ",
    row!(),
    " AND ",
    live!(came!()),
    ") THEN 2 ELSE 0 END, l.value, l.expire_ms, l.written_ms, EXISTS (SELECT FROM d) FROM f LEFT JOIN l ON true"
);

/// Undoes [`GET_AND_EXPIRE`]: restores the expiry time `$4` if the key still has the expiry time
/// `$5`, which that statement set, and the value `$3`, which it returned.
pub(super) const UNDO_EXPIRE: &str = concat!(
    with_family!(),
    ", w AS (UPDATE kvstore_row r SET expire_ms = $4::bigint FROM f WHERE ",
    row!(),
    " AND r.value = $3::bytea ",
    "AND r.expire_ms IS NOT DISTINCT FROM $5::bigint RETURNING 1) SELECT 1 FROM f"
);

/// Statement that deletes up to `$3` rows for which `$due` is true, the first ones in the order
/// `$order`, and skips locked rows. Returns the number of deleted rows, and the number of those for
/// which `$counts` is true. The constant limit of 256 tells the planner the maximum number of rows.
macro_rules! delete_locked {
    ($due:expr, $order:literal, $counts:expr) => {
        concat!(
            with_family!(), ", d AS MATERIALIZED (SELECT v.family, v.key FROM f CROSS JOIN LATERAL (SELECT r.family, r.key FROM kvstore_row r ",
            "WHERE r.family = f.id AND ", $due, " ORDER BY ", $order, ", r.key LIMIT $3 FOR UPDATE SKIP LOCKED) v LIMIT 256), ",
            "w AS (DELETE FROM kvstore_row r USING d WHERE r.family = d.family AND r.key = d.key RETURNING ", $counts, " AS counts) ",
            "SELECT (SELECT count(*) FROM w), (SELECT count(*) FROM w WHERE counts) FROM f"
        )
    };
}

/// Removes up to `$3` rows with an expiry time of `$2` or earlier that have expired.
pub(super) const PURGE: &str =
    delete_locked!(concat!("r.expire_ms <= LEAST($2::bigint, ", came!(), ")"), "r.expire_ms", "true");

/// Removes up to `$3` rows that were written at `$2` or earlier, live or expired.
pub(super) const SWEEP: &str = delete_locked!("r.written_ms <= $2::bigint", "r.written_ms", live!(clock!()));

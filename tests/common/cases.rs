//! Tests that run once per row of a table. Each row has a name, which a failure prints.

use std::fmt::Display;

/// The row engines, each with its value for `Config::sql_engine`.
pub const ENGINES: [(&str, bool); 2] = [("B-tree engine", false), ("SQL engine", true)];

/// Values: one that is stored in its row, and one that is not.
pub fn values() -> [(&'static str, Vec<u8>); 2] {
    [("small value", b"small".to_vec()), ("large value", vec![7; 5_000])]
}

/// Runs `test` for each row of `table`. A row is a name and the argument of `test`.
pub fn each_case<N: Display, T>(table: impl IntoIterator<Item = (N, T)>, mut test: impl FnMut(T)) {
    for (name, case) in table {
        let _row = Row(name);
        test(case);
    }
}

/// The row in progress. Prints its name if the test fails.
struct Row<N: Display>(N);

impl<N: Display> Drop for Row<N> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed case: {}", self.0);
        }
    }
}

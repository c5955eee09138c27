//! Bounded stores (`Store::set_size_limit`): which keys are evicted, and that the file stays within
//! the limit.

mod bursts;
mod flash;
mod least_used;
mod lengths;
mod model;
mod processes;
mod rules;

use kvstore::Config;

/// A configuration for each row engine.
fn engines() -> [Config; 2] {
    [Config::new(), Config::new().sql_engine(true)]
}

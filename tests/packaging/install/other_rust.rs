//! Another static library in Rust that a C program links together with kvstore. It contains a
//! second copy of Rust's standard library.

use std::panic::catch_unwind;

/// Returns 1 if a panic was caught, which shows that the unwinder works.
#[unsafe(no_mangle)]
pub extern "C" fn other_rust_catches_a_panic() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = catch_unwind(|| {
        let numbers: Vec<i32> = Vec::new();
        numbers[std::process::id() as usize]
    });
    i32::from(caught.is_err())
}

//! A static library in Rust that a C program links beside ours: it has a copy of Rust's library, too.

use std::panic::catch_unwind;

/// 1 if a panic was caught, as it is with one working unwinder.
#[unsafe(no_mangle)]
pub extern "C" fn other_rust_catches_a_panic() -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = catch_unwind(|| {
        let numbers: Vec<i32> = Vec::new();
        numbers[std::process::id() as usize]
    });
    i32::from(caught.is_err())
}

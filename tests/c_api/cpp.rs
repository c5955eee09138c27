//! The C++ headers (`bindings/cpp`): behaviour, compilers and standards, and coverage of the C API. Each
//! scenario is a function in `tests/cpp/*.cpp`, and runs with the address, leak and undefined-behaviour sanitizers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::c_programs::{compiler, found, library_dir, root, run};

/// Test files, which `everything.cpp` includes.
const AREAS: [&str; 14] = [
    "batches",
    "callbacks",
    "conditional",
    "data",
    "encryption",
    "errors",
    "iteration",
    "maintenance",
    "moved",
    "ranges",
    "results",
    "threads",
    "transactions",
    "ttl",
];

const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++23"];

/// Functions of the C API that the C++ headers do not call, with the reason.
const NOT_CALLED: [(&str, &str); 4] = [
    ("kvstore_errmsg", "its advice is in the words of C; what() is made of the reason and the hint"),
    ("kvstore_malloc", "C++ allocates by itself, and no call takes ownership of memory"),
    ("kvstore_put_for", "see kvstore_cf_put_for"),
    (
        "kvstore_cf_put_for",
        "put tells durations by their type, also of 0 and less, and reads the store's clock",
    ),
];

/// Returns a C++ compiler with the include path of the headers.
fn cpp(name: &str, standard: &str) -> Command {
    let mut command = compiler(name, standard);
    command.args(["-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast"]);
    command.arg("-I").arg(root().join("bindings/cpp/include"));
    command
}

/// Functions `kvstore_…` for the default family that the C++ headers do not call. A store has a handle of
/// its default family, with which it calls `kvstore_cf_…`.
const CALLED_AS_CF: [&str; 23] = [
    "put_with",
    "compare_and_swap",
    "compare_and_delete",
    "increment",
    "expire",
    "persist",
    "expire_time",
    "get_and_expire",
    "set_default_ttl",
    "get_default_ttl",
    "count_live",
    "purge_before",
    "set_write_tracking",
    "get_write_tracking",
    "write_time",
    "sweep",
    "range_iterator_create",
    "row_iterator_create",
    "expiring_iterator_create",
    "get_into",
    "get_many",
    "delete_many",
    "delete_range",
];

/// Options for programs without exceptions and run-time type information.
const NO_EXCEPTIONS: [&str; 2] = ["-fno-exceptions", "-fno-rtti"];

/// Returns the compilers to test with: g++, and clang++ if it is installed.
fn compilers() -> impl Iterator<Item = String> {
    ["g++".to_owned()].into_iter().chain(clang())
}

/// Links the preceding inputs with the library of this build.
fn link(command: &mut Command) -> &mut Command {
    let library = library_dir();
    command
        .arg("-L")
        .arg(&library)
        .arg("-lkvstore")
        .arg("-Wl,--disable-new-dtags")
        .arg(format!("-Wl,-rpath,{}", library.display()))
}

fn source(name: &str) -> PathBuf {
    root().join("tests/cpp").join(name)
}

/// Returns the name of a clang++ that supports C++20, as found by `.ci/clang`.
fn clang() -> Option<String> {
    let output = Command::new(root().join(".ci/clang")).output().unwrap();
    let name = String::from_utf8(output.stdout).unwrap();
    found("a clang++ for C++20", output.status.success()).then(|| name.trim().to_owned())
}

/// Runs one scenario, or all, in an empty directory.
fn run_program(program: &Path, scenario: Option<&str>) {
    let directory = tempfile::tempdir().unwrap();
    run(Command::new(program)
        .args(scenario)
        .env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1")
        .current_dir(&directory));
}

/// Program with all scenarios and sanitizers, built once and used by each test.
static SANITIZED: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp");
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join("sanitized");
    let mut compiler = cpp("g++", "c++17");
    compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    run(link(compiler.arg("-o").arg(&program).arg(source("everything.cpp"))));
    program
});

/// Defines a test for each scenario, of the same name, and the list of them.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run_program(&SANITIZED, Some(stringify!($name))); })*
        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
    };
}

scenarios! {
    batch_commits_atomically_and_is_reusable
    failed_batch_keeps_its_writes
    batch_rejects_bad_keys_and_foreign_families
    backup_cancelled_by_exception_of_progress_rethrows_it
    wait_hook_ends_the_wait_for_a_lock
    clock_that_throws_keeps_its_last_time
    clock_that_throws_when_set_is_rejected
    clock_is_kept_while_a_thread_may_call_it
    callback_that_calls_its_store_gets_misuse
    put_if_absent_writes_only_missing_and_expired_keys
    put_with_obeys_each_option
    compare_and_swap_and_erase_require_the_expected_value
    increment_adds_and_keeps_the_ttl
    expire_changes_expiry_only_if_condition_holds
    get_and_expire_extends_a_session
    get_returns_what_was_put
    null_view_is_an_empty_value
    keys_and_values_convert_from_any_byte_type
    get_into_fills_buffer_and_returns_full_length
    get_buffer_returns_library_memory_and_frees_it
    get_many_returns_values_in_key_order
    erase_returns_whether_the_key_existed
    erase_many_returns_number_of_live_keys
    generated_keys_are_kept_for_the_call
    keys_of_a_cursor_are_kept_for_the_call
    keys_that_outlive_the_call_are_not_copied
    key_range_that_closes_the_store_gets_misuse
    erase_range_and_clear_remove_all_keys_in_them
    families_have_separate_keys
    families_are_created_opened_listed_and_dropped
    data_in_a_file_survives_reopening
    config_settings_reach_the_store
    get_returns_any_container_of_bytes
    row_keys_keep_partitions_contiguous
    library_reports_its_versions
    encrypted_store_changes_and_loses_its_password
    plain_store_opened_with_password_is_encrypted_in_place
    wrong_password_throws_and_changes_nothing
    reencrypt_fails_while_store_is_open_elsewhere
    store_that_cannot_be_encrypted_leaves_no_file
    raw_key_is_hex_text_of_32_bytes
    is_encrypted_throws_on_closed_store
    build_without_encryption_throws_and_keeps_store_plain
    error_has_code_text_and_retryable
    error_has_hint_and_advice_in_cpp_words
    every_hint_has_advice_without_names_of_c_or_rust
    failed_open_reports_its_reason
    length_beyond_int_is_rejected_not_truncated
    objects_of_a_closed_store_throw_misuse
    objects_may_outlive_their_store
    range_for_over_items_is_ordered
    range_for_over_a_family
    values_are_in_key_order
    keys_end_with_their_prefix_and_read_no_values
    range_includes_lower_excludes_upper_by_default
    rows_iterate_over_one_partition
    expiring_is_in_order_of_expiry
    cursor_moves_in_both_directions
    fetch_returns_several_entries
    range_begins_at_the_cursor
    writing_and_erasing_during_iteration
    error_during_iteration_is_an_exception
    objects_are_small
    cpp17_algorithms_accept_ranges
    map_is_constructed_from_a_range
    key_view_converts_to_string
    stored_entries_own_their_bytes
    iteration_continues_without_its_source
    find_returns_iterator_at_live_key_or_end
    range_shows_state_at_fetch_and_steps_current_state
    iteration_reads_every_row_once_at_any_size
    end_of_iteration_stays_the_end
    iterators_outlive_cursor_and_throw_on_closed_store
    view_of_an_iterator_is_valid_until_next_step
    cursor_and_its_range_move_together
    exception_in_an_algorithm_is_passed_on
    iteration_sees_its_transaction_and_continues_after_it
    expiring_is_a_range
    cpp20_ranges_and_views_accept_ranges
    result_holds_a_value_or_a_failure
    try_open_returns_a_store_or_the_reason
    try_writes_return_what_they_did
    try_reads_return_values_in_results
    try_calls_on_expiry_return_results
    try_set_clock_replaces_the_clock
    try_cursor_steps_return_results
    iteration_until_error_visits_every_entry
    iteration_until_error_ends_at_the_failure
    try_find_returns_iterator_at_live_key_or_end
    try_batch_commits_or_keeps_its_writes
    transaction_is_rolled_back_by_its_destructor
    try_transaction_commits_only_a_success
    try_families_return_handles_or_reasons
    try_maintenance_returns_results
    try_backup_and_copy_report_progress
    try_recover_saves_rows_unless_cancelled
    try_encryption_returns_results
    try_calls_on_closed_and_moved_objects_are_misuse
    stats_count_calls
    recover_saves_readable_rows_of_damaged_file
    store_is_synced_checkpointed_vacuumed_and_checked
    small_profile_keeps_the_wal_short
    secure_delete_overwrites_deleted_data
    store_with_limit_evicts_or_throws_full
    integrity_check_names_first_inconsistency
    backup_is_a_store_with_all_expiry_times
    backup_is_cancelled_by_false
    copy_has_all_expiry_times
    cleaner_starts_and_stops
    handles_are_movable_not_copyable
    moved_from_store_throws_on_every_call
    moved_from_family_throws_on_every_call
    moved_from_cursor_throws_on_every_call
    moved_from_batch_and_transaction_throw
    assigning_a_store_closes_the_old_one
    objects_follow_their_store_when_it_is_moved
    threads_share_a_store_and_a_family
    clock_is_replaced_while_threads_call_it
    transaction_commits_over_all_families
    transaction_without_commit_is_rolled_back
    second_begin_fails_and_first_continues
    transaction_function_commits_or_rolls_back_on_exception
    nested_transaction_fails_and_outer_continues
    transaction_function_that_ends_it_gets_misuse
    failed_commit_rolls_back_and_store_stays_usable
    snapshot_is_stable_and_rejects_writes
    second_writer_gets_retryable_busy
    close_rolls_back_and_transaction_stays_safe
    key_expires_exactly_after_its_ttl
    ttl_of_any_duration_type_rounds_up
    ttl_of_zero_or_less_expires_at_once
    ttl_that_is_too_large_saturates
    ttl_that_is_not_a_number_is_rejected
    expiry_time_of_any_precision_rounds_up
    key_without_ttl_differs_from_missing_key
    default_ttl_applies_to_plain_puts
    next_expiry_returns_earliest_expiry_time
    purges_remove_only_expired_keys
    sweep_removes_keys_written_before_max_age
    store_returns_to_the_system_clock
    every_past_moment_is_accepted_whatever_the_clock
}

#[test]
fn every_scenario_is_a_test() {
    let listed = run(Command::new(&*SANITIZED).arg("--list")).stdout;
    let listed: BTreeSet<_> = std::str::from_utf8(&listed).unwrap().lines().collect();
    assert_eq!(listed, SCENARIOS.iter().copied().collect());
}

#[test]
fn sanitizer_detects_leak() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("leak.cpp");
    fs::write(&file, "int main() { static_cast<void>(*new volatile int(1)); }\n").unwrap();
    let program = directory.path().join("leak");
    run(cpp("g++", "c++17").args(["-fsanitize=address", "-o"]).arg(&program).arg(&file));
    let output = Command::new(program).env("ASAN_OPTIONS", "detect_leaks=1").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("detected memory leaks"), "{output:?}");
}

/// Compiles all scenarios in each standard, and runs them in one.
fn run_in_one_standard(compiler: &str, standard_to_run: &str) {
    let directory = tempfile::tempdir().unwrap();
    for standard in STANDARDS {
        let mut command = cpp(compiler, standard);
        if standard == standard_to_run {
            let program = directory.path().join(standard);
            run(link(command.arg("-o").arg(&program).arg(source("everything.cpp"))));
            run_program(&program, None);
        } else {
            run(command.arg("-fsyntax-only").arg(source("everything.cpp")));
        }
    }
}

// The tests of each scenario run it with g++ in C++17.

#[test]
fn all_programs_compile_with_gcc_and_run_in_cpp23() {
    run_in_one_standard("g++", "c++23");
}

#[test]
fn all_programs_compile_with_clang_and_run_in_cpp20() {
    if let Some(clang) = clang() {
        run_in_one_standard(&clang, "c++20");
    }
}

#[test]
fn results_need_no_exceptions_and_no_type_information() {
    let directory = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        let program = directory.path().join(&compiler);
        let mut command = cpp(&compiler, "c++17");
        command.args(NO_EXCEPTIONS).arg("-o").arg(&program).arg(source("without_exceptions.cpp"));
        run(link(&mut command));
        run_program(&program, None);
        for standard in &STANDARDS[1..] {
            let mut command = cpp(&compiler, standard);
            run(command.args(NO_EXCEPTIONS).arg("-fsyntax-only").arg(source("without_exceptions.cpp")));
        }
    }
}

/// Compiles a file of `tests/cpp` to an object file in the directory.
fn object(directory: &Path, name: &str, options: &[&str]) -> PathBuf {
    let object = directory.join(name).with_extension("o");
    // Not optimised, so that the linker chooses one definition of each inline function.
    run(cpp("g++", "c++17").args(options).arg("-c").arg("-o").arg(&object).arg(source(name)));
    object
}

#[test]
fn files_with_and_without_exceptions_link_together() {
    let directory = tempfile::tempdir().unwrap();
    let without = object(directory.path(), "results.cpp", &NO_EXCEPTIONS);
    let with = ["main.cpp", "errors.cpp", "iteration.cpp"].map(|name| object(directory.path(), name, &[]));
    for without_first in [true, false] {
        let program = directory.path().join("mixed");
        let mut command = cpp("g++", "c++17");
        command.arg("-o").arg(&program);
        if without_first {
            command.arg(&without).args(&with);
        } else {
            command.args(&with).arg(&without);
        }
        run(link(&mut command));
        run_program(&program, None);
    }
}

/// Returns the declarations of a header that are compiled only with exceptions, and the others.
fn split_by_exceptions(header: &str) -> (String, String) {
    let (mut with, mut without) = (String::new(), String::new());
    let mut depth = 0; // of #if inside "#if KVSTORE_EXCEPTIONS"
    let mut inverted = false;
    for line in header.lines() {
        match depth {
            0 if line.trim() == "#if KVSTORE_EXCEPTIONS" => depth = 1,
            0 => without += &format!("{line}\n"),
            _ if line.starts_with("#if") => depth += 1,
            _ if line.starts_with("#endif") => (depth, inverted) = (depth - 1, false),
            1 if line.starts_with("#else") => inverted = true,
            _ => *(if inverted { &mut without } else { &mut with }) += &format!("{line}\n"),
        }
    }
    (with, without)
}

/// Returns the code of a header without comments.
fn without_comments(header: &str) -> String {
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| format!("{line}\n")).collect()
}

/// Returns the identifiers in code.
fn identifiers(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

#[test]
fn every_function_that_throws_has_one_that_returns_a_result() {
    let (mut with, mut without) = (String::new(), String::new());
    for header in fs::read_dir(root().join("bindings/cpp/include/kvstore")).unwrap() {
        let header = fs::read_to_string(header.unwrap().path()).unwrap();
        let (throwing, other) = split_by_exceptions(&without_comments(&header));
        with += &throwing;
        without += &other;
    }
    let words = identifiers(&without);
    for word in ["throw", "try", "catch", "rethrow_exception"] {
        assert!(!words.contains(word), "{word} is used without exceptions");
    }
    let tried = |code| identifiers(code).into_iter().filter(|word| word.starts_with("try_"));
    // store::transaction calls begin() and commit(), because its result may be a reference.
    let returning: BTreeSet<_> = tried(&without).filter(|name| *name != "try_transaction").collect();
    assert_eq!(returning, tried(&with).collect());
    let throwing = identifiers(&with);
    for name in &returning {
        let name = name.trim_start_matches("try_");
        assert!(throwing.contains(name) || name == "open", "no function is called {name}");
    }
    assert!(returning.len() > 80, "{returning:?}");
}

#[test]
fn functions_that_throw_are_not_declared_without_exceptions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls.cpp");
    for call in ["db.put(key, key);", "kvstore::store other(key);", "db.try_put(key, key).value();"] {
        let program = "#include <kvstore.hpp>\nextern kvstore::store db;\nextern std::string key;\n";
        fs::write(&file, format!("{program}int main() {{ {call} }}\n")).unwrap();
        run(cpp("g++", "c++17").arg("-fsyntax-only").arg(&file));
        let mut without = cpp("g++", "c++17");
        let output = without.args(NO_EXCEPTIONS).arg("-fsyntax-only").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("error: no matching") || said.contains("has no member named"), "{call} {said}");
    }
}

#[test]
fn two_translation_units_that_include_the_header_link() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("linked");
    let mut compiler = cpp("g++", "c++17");
    compiler.arg("-o").arg(&program).args(["main.cpp", "batches.cpp", "transactions.cpp"].map(source));
    run(link(&mut compiler));
    run_program(&program, None);
}

#[test]
fn each_header_compiles_alone() {
    let folder = root().join("bindings/cpp/include");
    let headers = fs::read_dir(folder.join("kvstore")).unwrap().map(|entry| entry.unwrap().path());
    for header in headers.chain([folder.join("kvstore.hpp")]) {
        let name = header.strip_prefix(&folder).unwrap().display().to_string();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("alone.cpp");
        fs::write(&file, format!("#include <{name}>\n#include <{name}>\n")).unwrap();
        run(cpp("g++", "c++17").arg("-fsyntax-only").arg(&file));
    }
}

#[test]
fn each_header_starts_with_its_purpose() {
    let folder = root().join("bindings/cpp/include");
    let headers = fs::read_dir(folder.join("kvstore")).unwrap().map(|entry| entry.unwrap().path());
    for header in headers.chain([folder.join("kvstore.hpp")]) {
        let text = fs::read_to_string(&header).unwrap();
        assert!(text.starts_with("/// @file\n/// "), "{}", header.display());
        assert!(text.lines().count() <= 700, "{} is too long: split it", header.display());
    }
}

/// Function-like macros of Apple's `AssertMacros.h`, which many of its headers include.
const MACROS_OF_APPLE: [&str; 19] = [
    "check",
    "check_noerr",
    "check_noerr_string",
    "check_string",
    "require",
    "require_action",
    "require_action_quiet",
    "require_action_string",
    "require_noerr",
    "require_noerr_action",
    "require_noerr_quiet",
    "require_noerr_string",
    "require_quiet",
    "require_string",
    "verify",
    "verify_action",
    "verify_noerr",
    "verify_noerr_string",
    "verify_string",
];

#[test]
fn headers_compile_with_macros_of_windows_and_apple() {
    let folder = root().join("bindings/cpp/include/kvstore");
    let headers = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text: String = headers.map(|header| fs::read_to_string(header).unwrap()).collect();
    // Standard headers come first: only the headers of this library must tolerate such macros.
    let standard: BTreeSet<_> =
        text.lines().filter(|line| line.starts_with("#include <") && !line.contains('.')).collect();
    assert!(standard.contains("#include <limits>"), "{standard:?}");
    let mut program = String::new();
    for include in standard {
        let name = include.trim_start_matches("#include ");
        program += &format!("#if __has_include({name})\n{include}\n#endif\n");
    }
    program += "#define min(a, b) (((a) < (b)) ? (a) : (b))\n\
                #define max(a, b) (((a) > (b)) ? (a) : (b))\n\
                #define small char\n\
                #define near\n#define far\n#define interface struct\n#define hyper long long\n\
                #define IN\n#define OUT\n#define OPTIONAL\n#define ERROR 0\n#define DELETE 0x10000L\n";
    // Each use of one of these is an error.
    for name in MACROS_OF_APPLE {
        program += &format!("#define {name}(...) @\n");
    }
    program += "#include <kvstore.hpp>\n\
                static_assert(max(1, 2) == 2 && min(1, 2) == 1 && sizeof(small) == 1, \"\");\n\
                #undef small\n\
                bool is_small(const kvstore::config& how);\n\
                bool is_small(const kvstore::config& how) { return how.small; }\n\
                int main() { return kvstore::expiry_time(kvstore::never).never_expires() ? 0 : 1; }\n";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("macros.cpp");
    fs::write(&file, program).unwrap();
    for compiler in compilers() {
        for standard in STANDARDS {
            run(cpp(&compiler, standard).arg("-fsyntax-only").arg(&file));
            run(cpp(&compiler, standard).args(NO_EXCEPTIONS).arg("-fsyntax-only").arg(&file));
        }
    }
}

/// Returns the functions that kvstore.h declares, as preprocessed by the compiler.
fn declared(directory: &Path) -> BTreeSet<String> {
    let file = directory.join("declared.cpp");
    fs::write(&file, "#include <kvstore.h>\n").unwrap();
    let text = run(cpp("g++", "c++17").args(["-E", "-P"]).arg(&file)).stdout;
    let text = String::from_utf8(text).unwrap();
    text.split(|c: char| !c.is_alphanumeric() && !"_(".contains(c))
        .filter_map(|word| word.split_once('('))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with("kvstore_"))
        .collect()
}

/// Returns the library functions that an object file calls.
fn called(object: &Path) -> BTreeSet<String> {
    let listed = run(Command::new("nm").arg("-u").arg(object)).stdout;
    let names = String::from_utf8(listed).unwrap();
    names.split_whitespace().filter(|name| name.starts_with("kvstore_")).map(str::to_owned).collect()
}

#[test]
fn cpp_headers_call_every_c_function() {
    let directory = tempfile::tempdir().unwrap();
    let declared = declared(directory.path());
    assert!(declared.len() > 90, "kvstore.h was not read: {declared:?}");
    for area in AREAS {
        let file = source(&format!("{area}.cpp"));
        let text = fs::read_to_string(&file).unwrap();
        for function in &declared {
            assert!(!text.contains(&format!("{function}(")), "{area}.cpp itself calls {function}");
        }
    }
    for (function, why) in NOT_CALLED {
        assert!(
            declared.contains(function),
            "{function} is not a function of kvstore.h: remove it from NOT_CALLED"
        );
        assert!(!why.is_empty());
    }
    for (file, options) in [("everything.cpp", &[][..]), ("without_exceptions.cpp", &NO_EXCEPTIONS)] {
        let object = directory.path().join("called.o");
        run(cpp("g++", "c++17").args(options).arg("-c").arg("-o").arg(&object).arg(source(file)));
        let called = called(&object);
        let called_as_cf = |name: &str| {
            let function = name.trim_start_matches("kvstore_");
            CALLED_AS_CF.contains(&function) && called.contains(&format!("kvstore_cf_{function}"))
        };
        let exempt =
            |name: &str| NOT_CALLED.iter().any(|(function, _)| *function == name) || called_as_cf(name);
        let unneeded: Vec<_> = called.iter().filter(|name| exempt(name)).collect();
        assert!(unneeded.is_empty(), "called, so remove them from NOT_CALLED or CALLED_AS_CF: {unneeded:?}");
        let missing: Vec<_> =
            declared.iter().filter(|name| !called.contains(*name) && !exempt(name)).collect();
        assert!(missing.is_empty(), "{file}: the C++ headers do not call, or no test reaches: {missing:?}");
    }
}

#[test]
fn every_hint_of_the_c_header_has_an_enumerator() {
    let header = fs::read_to_string(root().join("include/kvstore.h")).unwrap();
    let cpp = fs::read_to_string(root().join("bindings/cpp/include/kvstore/error.hpp")).unwrap();
    let hints: Vec<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define KVSTORE_HINT_")?.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(hints.len() > 30, "{hints:?}");
    for hint in hints {
        let enumerator = format!("    {} = KVSTORE_HINT_{hint},", hint.to_lowercase());
        assert!(cpp.contains(&enumerator), "error.hpp has no {enumerator}");
    }
}

#[test]
fn range_for_over_a_store_is_a_readable_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("walk.cpp");
    let walk =
        "#include <kvstore.hpp>\nvoid walk(kvstore::store& db) { for (auto& entry : db) (void)entry; }\n";
    fs::write(&file, walk).unwrap();
    for compiler in compilers() {
        for standard in STANDARDS {
            let output = cpp(&compiler, standard).arg("-fsyntax-only").arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{compiler} {standard}");
            assert!(said.contains("a kvstore::store is not a range"), "{compiler} {standard}: {said}");
            assert!(said.lines().count() < 25, "{compiler} {standard}: {said}");
        }
    }
}

/// Compiles an example with each compiler and standard, and runs it twice: the second run finds the store.
fn example_prints(name: &str, expected: &str) {
    for compiler in compilers() {
        for standard in STANDARDS {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("example");
            run(link(
                cpp(&compiler, standard).arg("-o").arg(&program).arg(root().join("examples").join(name)),
            ));
            for _ in 0..2 {
                let output = run(Command::new(&program).current_dir(&directory));
                assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{compiler} {standard}");
            }
        }
    }
}

#[test]
fn quickstart_of_the_readme_runs() {
    example_prints("quickstart.cpp", "user:1 is Ada\nuser:1 = Ada\nuser:2 = Bob\n");
}

#[test]
fn example_of_the_standard_library_runs() {
    let expected = "3 sessions, 1 without a TTL\n\
                    ada has 40 bytes\n\
                    copied: session:ada session:bob session:eve\n\
                    balance 90, refused: not enough\n\
                    balance 90\n";
    example_prints("standard_library.cpp", expected);
}

/// Returns the C++ part of the migration guide.
fn migration_guide() -> String {
    let text = fs::read_to_string(root().join("docs/how-to/migrate.md")).unwrap();
    text.split_once("\n## C++").expect("a C++ part").1.to_owned()
}

/// Returns the code in the right column of each table row, as a block per row.
fn calls_of_the_tables(text: &str) -> Vec<String> {
    let cells = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| kvstore |"));
    let code = |cell: &str| -> String {
        let marked = cell.split('`').skip(1).step_by(2);
        marked.filter(|code| code.ends_with(';')).map(|code| format!("{{ {code} }}\n")).collect()
    };
    cells.map(|row| code(row.trim_end_matches(" |").rsplit(" | ").next().unwrap())).collect()
}

#[test]
fn calls_in_the_migration_guide_compile() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls.cpp");
    let calls = calls_of_the_tables(&migration_guide());
    assert!(calls.len() > 40 && calls.iter().filter(|code| code.is_empty()).count() <= 1, "{calls:?}");
    let mut program = "#include <kvstore.hpp>\n#include <map>\nusing namespace std::chrono_literals;\n\
                       extern kvstore::store db;\nextern kvstore::family cf;\nextern kvstore::config how;\n\
                       extern std::string key, value;\nextern std::int64_t rows;\n\
                       template <class... Shown> void use(const Shown&...) {}\n"
        .to_owned();
    for (number, code) in calls.iter().enumerate() {
        program += &format!("void call{number}();\nvoid call{number}() {{\n{code}}}\n");
    }
    fs::write(&file, program).unwrap();
    for compiler in compilers() {
        for standard in STANDARDS {
            let mut command = cpp(&compiler, standard);
            command.args(["-Wno-unused", "-Wno-unused-result", "-Wno-shadow"]);
            run(command.arg("-fsyntax-only").arg(&file));
        }
    }
}

#[test]
fn import_program_of_the_migration_guide_runs() {
    let text = migration_guide();
    let program = text.split_once("```cpp\n").unwrap().1.split_once("```").unwrap().0;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("import.cpp");
    fs::write(&file, program).unwrap();
    let built = directory.path().join("import");
    run(link(cpp("g++", "c++17").arg("-o").arg(&built).arg(&file)));
    let output = run(Command::new(&built).current_dir(&directory));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "user:1 is Ada\nuser:2 is Bob\n");
}

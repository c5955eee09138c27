//! The C++ headers (`bindings/cpp`): what they do, with which compilers, and that they leave nothing of the
//! C API out. Each scenario is a function of `tests/cpp/*.cpp`, run with the address and undefined-behaviour
//! sanitizers (leaks included).

mod c_common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use c_common::{compiler, found, library_dir, root, run};

/// The areas, by their files; `everything.cpp` includes all.
const AREAS: [&str; 13] = [
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
    "threads",
    "transactions",
    "ttl",
];

const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++23"];

/// The functions of the C API that the C++ headers do not call, and why not.
const NOT_CALLED: [(&str, &str); 2] = [
    ("kvstore_malloc", "C++ has memory of its own, and no call takes memory over"),
    (
        "kvstore_cf_put_for",
        "put takes durations by their type, of 0 and less, too, and asks the store's clock",
    ),
];

/// A C++ compiler that finds the headers.
fn cpp(name: &str, standard: &str) -> Command {
    let mut command = compiler(name, standard);
    command.args(["-Wshadow", "-Wconversion", "-Wsign-conversion"]);
    command.arg("-I").arg(root().join("bindings/cpp/include"));
    command
}

/// Links what was named before with the library of this build.
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

/// The name of a clang++ that can do C++20, if one is there: `.ci/clang` knows.
fn clang() -> Option<String> {
    let output = Command::new(root().join(".ci/clang")).output().unwrap();
    let name = String::from_utf8(output.stdout).unwrap();
    found("a clang++ for C++20", output.status.success()).then(|| name.trim().to_owned())
}

/// Runs a scenario, or all, in an empty folder.
fn run_program(program: &Path, scenario: Option<&str>) {
    let directory = tempfile::tempdir().unwrap();
    run(Command::new(program)
        .args(scenario)
        .env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1")
        .current_dir(&directory));
}

/// All scenarios with sanitizers: made once, used by each test.
static SANITIZED: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp");
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join("sanitized");
    let mut compiler = cpp("g++", "c++17");
    compiler.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    run(link(compiler.arg("-o").arg(&program).arg(source("everything.cpp"))));
    program
});

/// One test for each scenario, of the same name, and a list of them.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test] fn $name() { run_program(&SANITIZED, Some(stringify!($name))); })*
        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
    };
}

scenarios! {
    a_batch_commits_all_or_nothing_and_can_be_used_again
    a_batch_that_fails_keeps_its_writes
    a_batch_refuses_bad_keys_and_families_of_other_stores
    an_exception_in_a_backups_progress_stops_it_and_comes_out
    a_clock_that_throws_stands_still
    a_clock_that_throws_from_the_start_is_refused
    a_clock_lives_as_long_as_what_may_ask_it
    a_callback_that_calls_its_store_gets_an_error
    put_if_absent_writes_over_missing_and_expired_keys_only
    put_with_does_what_its_options_say
    compare_and_swap_and_erase_look_at_the_value_first
    increment_counts_and_keeps_the_ttl
    expire_changes_the_ttl_on_a_condition
    get_and_expire_slides_the_end_of_a_session
    a_get_gives_what_was_put
    an_empty_view_without_memory_is_an_empty_value
    keys_and_values_may_be_of_any_type_that_holds_bytes
    get_into_fills_the_callers_buffer_and_answers_the_whole_length
    get_buffer_gives_the_librarys_memory_and_frees_it
    get_many_reads_in_the_order_of_the_keys
    erase_says_whether_the_key_was_there
    erase_many_answers_how_many_were_there
    keys_that_a_range_makes_as_it_goes_are_kept_for_the_call
    keys_of_a_walk_are_kept_for_the_call
    keys_that_stay_are_not_copied
    a_range_of_keys_that_closes_the_store_is_told_so
    erase_range_and_clear_take_all_that_is_in_them
    a_family_has_keys_of_its_own
    families_are_made_opened_listed_and_dropped
    a_store_in_a_file_is_there_when_it_is_opened_again
    the_settings_of_a_config_reach_the_store
    a_value_comes_out_as_any_container_of_bytes
    a_row_key_keeps_the_rows_of_a_partition_together
    the_library_tells_its_versions
    an_encrypted_store_lives_with_its_password_another_and_none
    a_plain_store_is_encrypted_in_place_when_it_is_opened_with_a_password
    a_wrong_password_is_told_and_changes_nothing
    a_password_is_changed_only_when_nobody_else_has_the_store_open
    what_cannot_be_encrypted_is_refused_and_no_file_made
    a_raw_key_is_the_text_of_its_32_bytes
    whether_a_store_is_encrypted_is_never_a_wrong_no
    a_build_without_encryption_says_so_and_leaves_the_store_plain
    an_error_has_a_code_a_text_and_says_whether_to_retry
    a_store_that_cannot_be_opened_says_why
    a_length_that_an_int_cannot_hold_is_refused_and_not_cut
    everything_of_a_closed_store_says_that_it_is_closed
    what_belongs_to_a_store_may_outlive_it
    a_range_for_walks_over_items_in_order
    a_range_for_walks_over_a_family
    values_walk_in_the_order_of_their_keys
    keys_walk_without_values_up_to_the_end_of_their_prefix
    a_range_is_closed_below_and_open_above_unless_told_otherwise
    rows_walk_over_one_partition
    expiring_keys_come_in_the_order_of_their_expiry
    an_iterator_moves_as_a_cursor
    entries_are_fetched_many_at_a_time
    a_walk_may_begin_where_a_cursor_stands
    writing_and_erasing_is_possible_in_a_walk
    an_error_in_a_walk_is_an_exception
    the_objects_are_small
    algorithms_of_cpp17_take_a_walk
    a_map_is_made_of_a_walk
    a_key_of_a_walk_is_a_string_view_that_becomes_a_string
    what_is_kept_of_a_walk_owns_its_bytes
    a_walk_goes_on_without_what_it_was_made_of
    find_gives_a_position_at_a_live_key_or_the_end
    a_range_shows_what_was_alive_when_it_was_fetched_and_rows_what_is_alive_now
    a_walk_reads_every_row_once_whatever_its_size
    the_end_of_a_walk_stays_the_end
    positions_outlive_their_iterator_and_tell_that_their_store_is_closed
    what_a_position_shows_stays_until_its_next_step
    a_cursor_and_its_range_are_one_walk
    an_exception_in_an_algorithm_comes_out_of_it
    a_walk_sees_its_transaction_and_goes_on_after_it
    expiring_keys_are_a_range_too
    ranges_and_views_of_cpp20_take_a_walk
    stats_count_what_was_done
    what_can_be_read_of_a_damaged_file_is_recovered
    a_store_is_synced_checkpointed_vacuumed_and_checked
    the_log_of_a_small_store_is_short
    what_is_deleted_is_overwritten_if_the_config_says_so
    a_bounded_store_makes_room_or_says_that_it_is_full
    a_damaged_file_is_told_by_its_first_disagreement
    a_backup_is_a_store_with_all_ttls
    a_backup_is_stopped_by_the_answer_false
    a_copy_is_a_store_with_all_ttls
    the_cleaner_starts_and_stops
    handles_are_moved_and_not_copied
    a_store_that_was_moved_from_answers_every_call_with_an_error
    a_family_that_was_moved_from_answers_every_call_with_an_error
    an_iterator_that_was_moved_from_answers_every_call_with_an_error
    a_batch_and_a_transaction_that_were_moved_from_answer_with_an_error
    an_assigned_store_closes_the_one_it_had
    what_belongs_to_a_store_follows_it_when_it_is_moved
    threads_share_a_store_and_a_family
    a_clock_may_be_replaced_while_threads_ask_it
    a_transaction_commits_over_all_families
    a_transaction_that_is_not_committed_is_rolled_back
    a_second_begin_is_refused_and_the_first_goes_on
    a_function_in_a_transaction_commits_or_its_exception_rolls_back
    a_transaction_within_a_transaction_is_refused_and_the_outer_one_goes_on
    a_transaction_whose_function_closes_moves_or_ends_it_says_so
    a_commit_that_fails_rolls_back_and_the_store_goes_on
    a_snapshot_sees_one_moment_and_writes_nothing
    another_writer_is_told_to_retry
    closing_rolls_back_and_leaves_a_harmless_transaction
    a_key_is_gone_exactly_when_its_ttl_is_over
    a_ttl_may_be_a_duration_of_any_type_and_rounds_up
    a_ttl_that_is_zero_or_negative_is_over_at_once
    a_ttl_that_is_too_large_saturates
    a_ttl_that_is_not_a_number_is_refused
    a_key_may_live_until_a_moment_of_any_precision
    a_key_without_a_ttl_is_told_from_a_missing_one
    the_default_ttl_is_for_plain_puts
    a_timer_learns_when_the_next_key_expires
    purges_remove_what_has_expired_and_nothing_else
    a_sweep_removes_what_was_written_long_ago
    a_store_goes_back_to_the_systems_clock
}

#[test]
fn every_scenario_is_a_test() {
    let listed = run(Command::new(&*SANITIZED).arg("--list")).stdout;
    let listed: BTreeSet<_> = std::str::from_utf8(&listed).unwrap().lines().collect();
    assert_eq!(listed, SCENARIOS.iter().copied().collect());
}

#[test]
fn the_sanitizer_finds_a_leak() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("leak.cpp");
    fs::write(&file, "int main() { static_cast<void>(*new volatile int(1)); }\n").unwrap();
    let program = directory.path().join("leak");
    run(cpp("g++", "c++17").args(["-fsanitize=address", "-o"]).arg(&program).arg(&file));
    let output = Command::new(program).env("ASAN_OPTIONS", "detect_leaks=1").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("detected memory leaks"), "{output:?}");
}

/// Compiles and runs all scenarios in each standard.
fn run_in_every_standard(compiler: &str) {
    let directory = tempfile::tempdir().unwrap();
    for standard in STANDARDS {
        let program = directory.path().join(standard);
        run(link(cpp(compiler, standard).arg("-o").arg(&program).arg(source("everything.cpp"))));
        run_program(&program, None);
    }
}

#[test]
fn everything_runs_with_gcc_in_every_standard() {
    run_in_every_standard("g++");
}

#[test]
fn everything_runs_with_clang_in_every_standard() {
    if let Some(clang) = clang() {
        run_in_every_standard(&clang);
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
fn each_header_says_in_its_first_lines_what_it_is_for() {
    let folder = root().join("bindings/cpp/include");
    let headers = fs::read_dir(folder.join("kvstore")).unwrap().map(|entry| entry.unwrap().path());
    for header in headers.chain([folder.join("kvstore.hpp")]) {
        let text = fs::read_to_string(&header).unwrap();
        assert!(text.starts_with("/// @file\n/// "), "{}", header.display());
        assert!(text.lines().count() <= 700, "{} is too long: split it", header.display());
    }
}

#[test]
fn the_headers_compile_where_windows_h_has_made_macros_of_their_names() {
    let folder = root().join("bindings/cpp/include/kvstore");
    let headers = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text: String = headers.map(|header| fs::read_to_string(header).unwrap()).collect();
    // First, because those of this library need not bear such macros.
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
                #define IN\n#define OUT\n#define OPTIONAL\n#define ERROR 0\n#define DELETE 0x10000L\n\
                #include <kvstore.hpp>\n\
                static_assert(max(1, 2) == 2 && min(1, 2) == 1 && sizeof(small) == 1, \"\");\n\
                #undef small\n\
                bool is_small(const kvstore::config& how);\n\
                bool is_small(const kvstore::config& how) { return how.small; }\n\
                int main() { return kvstore::expiry_time(kvstore::never).never_expires() ? 0 : 1; }\n";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("macros.cpp");
    fs::write(&file, program).unwrap();
    for compiler in ["g++".to_owned()].into_iter().chain(clang()) {
        for standard in STANDARDS {
            run(cpp(&compiler, standard).arg("-fsyntax-only").arg(&file));
        }
    }
}

/// The functions that kvstore.h declares, by the compiler's own reading of it.
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

/// The functions of the library that an object file calls.
fn called(object: &Path) -> BTreeSet<String> {
    let listed = run(Command::new("nm").arg("-u").arg(object)).stdout;
    let names = String::from_utf8(listed).unwrap();
    names.split_whitespace().filter(|name| name.starts_with("kvstore_")).map(str::to_owned).collect()
}

#[test]
fn every_function_of_the_c_api_is_called_through_the_cpp_headers() {
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
    let object = directory.path().join("everything.o");
    run(cpp("g++", "c++17").arg("-c").arg("-o").arg(&object).arg(source("everything.cpp")));
    let called = called(&object);
    for (function, why) in NOT_CALLED {
        assert!(declared.contains(function), "{function} is no function of kvstore.h: strike it");
        assert!(!called.contains(function), "{function} is called: strike it");
        assert!(!why.is_empty());
    }
    let exempt = |name: &str| NOT_CALLED.iter().any(|(function, _)| *function == name);
    let missing: Vec<_> = declared.iter().filter(|name| !called.contains(*name) && !exempt(name)).collect();
    assert!(missing.is_empty(), "the C++ headers do not call, or no test reaches: {missing:?}");
}

#[test]
fn a_range_for_over_a_store_says_what_to_walk_over() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("walk.cpp");
    let walk =
        "#include <kvstore.hpp>\nvoid walk(kvstore::store& db) { for (auto& entry : db) (void)entry; }\n";
    fs::write(&file, walk).unwrap();
    for compiler in ["g++".to_owned()].into_iter().chain(clang()) {
        for standard in STANDARDS {
            let output = cpp(&compiler, standard).arg("-fsyntax-only").arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{compiler} {standard}");
            assert!(said.contains("a kvstore::store is no range"), "{compiler} {standard}: {said}");
            assert!(said.lines().count() < 25, "{compiler} {standard}: {said}");
        }
    }
}

/// Compiles an example in each standard, with each compiler, and runs it twice: the second time it finds its store.
fn example_prints(name: &str, expected: &str) {
    for compiler in ["g++".to_owned()].into_iter().chain(clang()) {
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
fn the_quickstart_of_the_readme_runs() {
    example_prints("quickstart.cpp", "user:1 is Ada\nuser:1 = Ada\nuser:2 = Bob\n");
}

#[test]
fn the_example_of_the_standard_library_runs() {
    let expected = "3 sessions, 1 of them for ever\n\
                    ada has 40 bytes\n\
                    kept: session:ada session:bob session:eve\n\
                    balance 90, refused: not enough\n\
                    balance 90\n";
    example_prints("standard_library.cpp", expected);
}

/// The C++ part of the document for people who come from other stores.
fn for_comers() -> String {
    let text = fs::read_to_string(root().join("docs/how-to/migrate.md")).unwrap();
    text.split_once("\n## C++").expect("a C++ part").1.to_owned()
}

/// What the right columns of its tables say: each cell a function that has what the text promises.
fn calls_of_the_tables(text: &str) -> Vec<String> {
    let cells = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| kvstore |"));
    let code = |cell: &str| -> String {
        let marked = cell.split('`').skip(1).step_by(2);
        marked.filter(|code| code.ends_with(';')).map(|code| format!("{{ {code} }}\n")).collect()
    };
    cells.map(|row| code(row.trim_end_matches(" |").rsplit(" | ").next().unwrap())).collect()
}

#[test]
fn what_people_who_come_from_other_stores_are_told_compiles() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls.cpp");
    let calls = calls_of_the_tables(&for_comers());
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
    for compiler in ["g++".to_owned()].into_iter().chain(clang()) {
        for standard in STANDARDS {
            let mut command = cpp(&compiler, standard);
            command.args(["-Wno-unused", "-Wno-unused-result", "-Wno-shadow"]);
            run(command.arg("-fsyntax-only").arg(&file));
        }
    }
}

#[test]
fn the_program_that_brings_data_from_other_stores_runs() {
    let text = for_comers();
    let program = text.split_once("```cpp\n").unwrap().1.split_once("```").unwrap().0;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("import.cpp");
    fs::write(&file, program).unwrap();
    let built = directory.path().join("import");
    run(link(cpp("g++", "c++17").arg("-o").arg(&built).arg(&file)));
    let output = run(Command::new(&built).current_dir(&directory));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "user:1 is Ada\nuser:2 is Bob\n");
}

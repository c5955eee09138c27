//! The C headers: generated from the source, documented, complete, and valid in every C and C++ standard.
//!
//! `KVSTORE_BLESS=1 cargo test --test c_api header` rewrites `include/kvstore.h`.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::c_programs::{build, compiler, library_dir, root, run};

/// Supported standards, with their compilers.
const STANDARDS: [(&str, &str); 6] =
    [("cc", "c99"), ("cc", "c11"), ("cc", "c17"), ("cc", "c2x"), ("c++", "c++17"), ("c++", "c++20")];

/// Functions that C programs written for SNKV 0.8 rely on, without those for encryption.
const BASIC_FUNCTIONS: &[&str] = &[
    "kvstore_open",
    "kvstore_open_v2",
    "kvstore_close",
    "kvstore_errmsg",
    "kvstore_strerror",
    "kvstore_version",
    "kvstore_malloc",
    "kvstore_free",
    "kvstore_set_clock",
    "kvstore_now_ms",
    "kvstore_cf_create",
    "kvstore_cf_open",
    "kvstore_cf_get_default",
    "kvstore_cf_drop",
    "kvstore_cf_list",
    "kvstore_cf_close",
    "kvstore_cf_name",
    "kvstore_put",
    "kvstore_cf_put",
    "kvstore_get",
    "kvstore_cf_get",
    "kvstore_delete",
    "kvstore_cf_delete",
    "kvstore_exists",
    "kvstore_cf_exists",
    "kvstore_put_if_absent",
    "kvstore_cf_put_if_absent",
    "kvstore_count",
    "kvstore_cf_count",
    "kvstore_clear",
    "kvstore_cf_clear",
    "kvstore_put_ttl",
    "kvstore_cf_put_ttl",
    "kvstore_get_ttl",
    "kvstore_cf_get_ttl",
    "kvstore_ttl_remaining",
    "kvstore_cf_ttl_remaining",
    "kvstore_purge_expired",
    "kvstore_cf_purge_expired",
    "kvstore_iterator_create",
    "kvstore_cf_iterator_create",
    "kvstore_reverse_iterator_create",
    "kvstore_cf_reverse_iterator_create",
    "kvstore_prefix_iterator_create",
    "kvstore_cf_prefix_iterator_create",
    "kvstore_reverse_prefix_iterator_create",
    "kvstore_cf_reverse_prefix_iterator_create",
    "kvstore_iterator_first",
    "kvstore_iterator_last",
    "kvstore_iterator_next",
    "kvstore_iterator_prev",
    "kvstore_iterator_seek",
    "kvstore_iterator_eof",
    "kvstore_iterator_key",
    "kvstore_iterator_value",
    "kvstore_iterator_close",
    "kvstore_begin",
    "kvstore_commit",
    "kvstore_rollback",
    "kvstore_stats",
    "kvstore_stats_reset",
    "kvstore_integrity_check",
    "kvstore_sync",
    "kvstore_incremental_vacuum",
    "kvstore_checkpoint",
];

/// Functions whose `int` is not a result code.
const ANSWERS: [&str; 2] = ["kvstore_iterator_eof", "kvstore_errhint"];

/// Functions on the handle of a family. All other functions of a family have a form for the default
/// family, which takes the store.
const ON_FAMILY_HANDLES: [&str; 2] = ["kvstore_cf_name", "kvstore_cf_close"];

/// Function declared by the header.
struct Function {
    name: String,
    /// Return type, such as `int`.
    returns: String,
    /// Parameters, such as `KVStore *kv, int on`.
    parameters: String,
    /// Its comment as one line, without the asterisks.
    doc: String,
}

fn header() -> String {
    fs::read_to_string(root().join("include/kvstore.h")).unwrap()
}

/// The functions in the order of the header. A declaration begins a line, has a `kvstore_` name before
/// its first parenthesis, and ends at the first semicolon.
fn functions(header: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut doc = String::new();
    let mut rest = header;
    while let Some(line) = rest.lines().next() {
        let mut taken = line.len() + 1;
        if line.starts_with("/**") {
            let end = rest.find("*/").expect("the end of a comment") + 2;
            let words = rest[..end].lines().map(|line| line.trim().trim_matches(['/', '*']).trim());
            doc = words.collect::<Vec<_>>().join(" ").trim().to_owned();
            taken = end + 1;
        } else if let Some((before, _)) = line.split_once('(')
            && let Some(at) = before.rfind("kvstore_")
            && !line.starts_with(['#', ' '])
        {
            let end = rest.find(");").expect("the end of a declaration");
            let parameters: Vec<_> = rest[before.len() + 1..end].split_whitespace().collect();
            functions.push(Function {
                name: before[at..].to_owned(),
                returns: before[..at].trim().to_owned(),
                parameters: parameters.join(" "),
                doc: std::mem::take(&mut doc),
            });
            taken = end + 3;
        }
        rest = rest.get(taken..).unwrap_or("");
    }
    functions
}

/// Returns the value of a `#define`.
fn define(header: &str, name: &str) -> String {
    let define = format!("#define {name} ");
    let line = header.lines().find_map(|line| line.strip_prefix(&define));
    line.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
}

#[test]
fn header_matches_the_source() {
    let generated = crate::header_generator::generate();
    if std::env::var_os("KVSTORE_BLESS").is_some() {
        fs::write(root().join("include/kvstore.h"), &generated).unwrap();
    }
    assert!(
        header() == generated,
        "include/kvstore.h is out of date: run KVSTORE_BLESS=1 cargo test --test c_api header"
    );
}

#[test]
fn headers_compile_alone_in_every_standard() {
    let directory = tempfile::tempdir().unwrap();
    for (name, standard) in STANDARDS {
        for (source, with) in [
            ("tests/c/header_kvstore.c", None),
            ("tests/c/header_snkv.c", None),
            ("tests/c/header_snkv.c", Some("-DWITH_SQLITE_NAMES")),
        ] {
            let mut compiler = compiler(name, standard);
            compiler.arg("-U_GNU_SOURCE").args(with); // C++ defines it by itself, C must do without
            if name == "c++" {
                compiler.args(["-x", "c++"]);
            }
            run(Command::new(build(&mut compiler, source, directory.path())).current_dir(&directory));
        }
    }
}

#[test]
fn header_has_the_version_of_the_crate() {
    let header = header();
    let part = |part: &str| define(&header, &format!("KVSTORE_VERSION_{part}"));
    let version = [part("MAJOR"), part("MINOR"), part("PATCH")].join(".");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn no_ttl_is_minus_one_of_64_bits() {
    assert_eq!(define(&header(), "KVSTORE_NO_TTL"), "(-INT64_C(1))");
}

#[test]
fn macros_of_the_header_need_no_old_style_cast() {
    let header = header();
    let names: BTreeSet<_> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define KVSTORE_")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    assert!(names.len() > 80 && names.contains("NO_TTL"), "{names:?}");
    let mut program = "#include \"kvstore.h\"\n".to_owned();
    for name in names {
        program += &format!("constexpr auto value_of_{name} = KVSTORE_{name};\n");
    }
    program += "int main() { return value_of_OK; }\n";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("macros.cpp");
    fs::write(&file, program).unwrap();
    for standard in ["c++17", "c++20", "c++23"] {
        let mut compiler = compiler("g++", standard);
        compiler.args(["-Wold-style-cast", "-Wuseless-cast", "-Wzero-as-null-pointer-constant"]);
        compiler.args(["-Wconversion", "-Wsign-conversion", "-Wno-unused", "-fsyntax-only"]);
        run(compiler.arg(&file));
    }
}

#[test]
fn every_basic_function_is_declared_once() {
    let functions = functions(&header());
    for wanted in BASIC_FUNCTIONS {
        assert_eq!(functions.iter().filter(|f| f.name == *wanted).count(), 1, "{wanted}");
    }
}

#[test]
fn every_function_documents_purpose_and_errors() {
    let functions = functions(&header());
    for function in &functions {
        let Function { name, returns, doc, .. } = function;
        assert!(doc.split(' ').count() >= 4 && doc.contains('.'), "{name} has no description: {doc:?}");
        if returns == "int" && !ANSWERS.contains(&name.as_str()) {
            assert!(documents_errors(function, &functions), "{name} does not list its errors: {doc:?}");
        }
    }
}

#[test]
fn family_functions_have_form_for_default_family() {
    let functions = functions(&header());
    let on_families: Vec<_> = functions
        .iter()
        .filter(|f| f.parameters.starts_with("KVColumnFamily *cf"))
        .filter(|f| !ON_FAMILY_HANDLES.contains(&f.name.as_str()))
        .collect();
    assert!(on_families.len() > 35, "{}", on_families.len());
    for Function { name, returns, parameters, .. } in on_families {
        let twin = name.replacen("kvstore_cf_", "kvstore_", 1);
        let wanted = parameters.replacen("KVColumnFamily *cf", "KVStore *kv", 1);
        let is_declared =
            functions.iter().any(|f| f.name == twin && f.returns == *returns && f.parameters == wanted);
        assert!(is_declared, "{name} needs {returns} {twin}({wanted})");
    }
}

/// Returns whether a comment lists its errors, or refers to a function whose comment does: "Parameters,
/// behaviour and errors are those of kvstore_put."
fn documents_errors(Function { doc, .. }: &Function, functions: &[Function]) -> bool {
    if doc.contains("Errors: ") {
        return true;
    }
    let referring = if doc.starts_with("kvstore_") {
        Some(("", doc.as_str()))
    } else {
        doc.split_once("errors are those of ")
    };
    let Some((_, name)) = referring else { return false };
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next();
    functions.iter().any(|other| Some(other.name.as_str()) == name && documents_errors(other, functions))
}

#[test]
fn library_exports_exactly_the_declared_functions() {
    let declared: BTreeSet<_> = functions(&header()).into_iter().map(|f| f.name).collect();
    let library = library_dir().join("libkvstore.so");
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let exported: BTreeSet<_> =
        listed.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(exported, declared);
}

#[test]
fn snkv_program_runs_as_c_and_cpp() {
    for (name, standard) in [("cc", "c11"), ("c++", "c++17")] {
        let directory = tempfile::tempdir().unwrap();
        let mut compiler = compiler(name, standard);
        if name == "c++" {
            // SNKV's `KVStoreConfig cfg = {0}` is complete in C, and a warning of -Wextra in C++.
            compiler.args(["-Wno-missing-field-initializers", "-x", "c++"]);
        }
        let program = build(&mut compiler, "tests/c/snkv_program.c", directory.path());
        let output = run(Command::new(program).current_dir(&directory));
        assert_eq!(output.stdout, b"done\n", "{standard}");
    }
}

#[test]
fn cpp_program_uses_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let program = build(&mut compiler("c++", "c++17"), "tests/c/header_cpp.cpp", directory.path());
    let output = run(Command::new(program).current_dir(&directory));
    assert_eq!(output.stdout, b"done\n");
}

//! Generates the code for `ffi_calls` from `include/kvstore.h`: the declarations, the codes that
//! each function may return according to its documentation, and a call of each function with
//! arguments drawn from the input.
//!
//! A new function of the header is therefore fuzzed without further work. If it has an argument of
//! an unknown kind, the build fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

struct Function {
    name: String,
    result: String,
    /// Type and name.
    arguments: Vec<(String, String)>,
    documentation: String,
}

/// Returns the Rust type for a C type.
fn rust_type(c: &str) -> String {
    let c = c.trim();
    if let Some(pointee) = c.strip_suffix('*') {
        let pointee = pointee.trim();
        // `const` qualifies the type before it only in `T *const *`.
        return match pointee.strip_suffix("*const") {
            Some(pointee) => format!("*const {}", rust_type(&format!("{pointee}*"))),
            None => match pointee.strip_prefix("const ").filter(|rest| !rest.contains('*')) {
                Some(pointee) => format!("*const {}", rust_type(pointee)),
                None => format!("*mut {}", rust_type(pointee)),
            },
        };
    }
    match c {
        "int" => "c_int".into(),
        "char" => "c_char".into(),
        "void" => "c_void".into(),
        "int64_t" => "i64".into(),
        "uint64_t" => "u64".into(),
        "uint32_t" => "u32".into(),
        name if name.starts_with("KV") => name.into(),
        other => panic!("the header has a type this does not know: {other}"),
    }
}

/// `int *name` to type and name.
fn declarator(text: &str) -> (String, String) {
    if text.contains("(*") {
        let name = text.split("(*").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
        return ("callback".into(), name.trim().into());
    }
    let at = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    (text[..at].trim().to_owned(), text[at..].to_owned())
}

/// Splits at the commas outside of parentheses.
fn arguments(text: &str) -> Vec<(String, String)> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty() && *part != "void");
    parts.map(declarator).collect()
}

fn functions(header: &str) -> Vec<Function> {
    let body = header.split_once("extern \"C\" {").expect("the functions of the header").1;
    let mut functions = Vec::new();
    for piece in body.split("/**").skip(1) {
        let (documentation, code) = piece.split_once("*/").expect("the end of a comment");
        let Some((declaration, _)) = code.split_once(';') else { continue };
        let declaration = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        let (head, rest) = declaration.split_once('(').expect("a function");
        let (result, name) = declarator(head);
        functions.push(Function {
            name,
            result,
            arguments: arguments(rest.strip_suffix(')').expect("the end of a function")),
            documentation: documentation.to_owned(),
        });
    }
    assert!(functions.len() > 80, "found {} functions in the header only", functions.len());
    functions
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the codes that a function may return: those named in its own documentation, and in that
/// of the functions it refers to.
fn codes_of<'a>(
    function: &'a Function,
    all: &'a BTreeMap<&str, &Function>,
    known: &BTreeSet<&str>,
    seen: &mut BTreeSet<&'a str>,
) -> BTreeSet<&'a str> {
    let mut codes = BTreeSet::new();
    if seen.insert(&function.name) {
        for word in words(&function.documentation) {
            if known.contains(word) {
                codes.insert(word);
            } else if let Some(named) = all.get(word) {
                codes.extend(codes_of(named, all, known, seen));
            }
        }
    }
    codes
}

/// The fields of a struct of the header.
fn fields(header: &str, name: &str) -> Vec<(String, String)> {
    let before = header.split(&format!("}} {name};")).next().unwrap();
    let body = before.rsplit("typedef struct {").next().unwrap();
    let code: String = body.split("/*").map(|piece| piece.rsplit("*/").next().unwrap()).collect();
    let lines = code.split(';').map(|line| line.trim()).filter(|line| !line.is_empty());
    lines
        .map(|line| match line.split_once('[') {
            Some((line, length)) => {
                let (c, name) = declarator(line);
                (format!("[{}; {}]", rust_type(&c), length.trim_end_matches(']')), name)
            }
            None => {
                let (c, name) = declarator(line);
                (rust_type(&c), name)
            }
        })
        .collect()
}

/// Returns the code that draws an argument. The name of the preceding argument shows what a length
/// belongs to.
fn draw(function: &Function, at: usize) -> String {
    let (c, name) = &function.arguments[at];
    match c.as_str() {
        "KVStore *" => "w.store()".into(),
        "KVColumnFamily *" => "w.family()".into(),
        "KVIterator *" => "w.iterator()".into(),
        "KVBatch *" => "w.batch()".into(),
        "KVStore **" => "w.handle_output(Kind::Store).cast()".into(),
        "KVColumnFamily **" => "w.handle_output(Kind::Family).cast()".into(),
        "KVIterator **" => "w.handle_output(Kind::Iterator).cast()".into(),
        "KVBatch **" => "w.handle_output(Kind::Batch).cast()".into(),
        "const void *" => format!("w.bytes(\"{name}\")"),
        "void *" if name == "buf" => "w.buffer()".into(),
        "void *" if name == "context" => "w.context()".into(),
        "void *" if name == "memory" => "w.memory()".into(),
        "void **" if name == "values" => "w.values()".into(),
        "void **" | "char **" | "char ***" => "w.pointer_output().cast()".into(),
        "const void *const *" => "w.keys()".into(),
        "const int *" => "w.lengths()".into(),
        "int *" if name == "valueLens" => "w.value_lengths()".into(),
        "int *" => "w.int_output()".into(),
        "int64_t *" => "w.int64_output()".into(),
        "KVStoreStats *" => "w.stats()".into(),
        "KVEntry *" => "w.entries()".into(),
        "const KVStoreConfig *" => "w.config()".into(),
        "const KVWriteOptions *" => "w.options()".into(),
        "const char *" if name == "path" => format!("w.path({})", function.name == "kvstore_backup"),
        "const char *" if name == "newPath" => "w.path(true)".into(),
        "const char *" => "w.name()".into(),
        "callback" if name == "now_ms" => "w.clock()".into(),
        "callback" if name == "ends" => "w.wait_hook()".into(),
        "callback" if name == "progress" && function.name == "kvstore_copy" => "w.copied()".into(),
        "callback" if name == "progress" => "w.progress()".into(),
        "callback" if name == "report" => "w.report()".into(),
        "int" if function.name == "kvstore_malloc" => "w.malloc_size()".into(),
        "int" if name == "cap" => "w.capacity()".into(),
        "int" if name == "max" => "w.rows()".into(),
        "int" if name == "count" => "w.count()".into(),
        "int" if name.starts_with('n') && at > 0 && function.arguments[at - 1].0 == "const void *" => {
            "w.length()".into()
        }
        "int" if name == "journalMode" => "w.journal_mode()".into(),
        "int" => "w.small()".into(),
        "int64_t" if name == "interval_ms" => "w.interval()".into(),
        "int64_t" if name == "max_bytes" => "w.max_bytes()".into(),
        "int64_t" => "w.time()".into(),
        other => panic!("{}: no way to draw {other} {name}", function.name),
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let header = Path::new(&root).join("../include/kvstore.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let header = std::fs::read_to_string(header).unwrap();
    let functions = functions(&header);
    let mut out = String::new();

    let mut constants = BTreeMap::new();
    for line in header.lines().filter_map(|line| line.strip_prefix("#define KVSTORE_")) {
        if let Some((name, value)) = line.split_once(' ')
            && let Ok(value) = value.parse::<i32>()
        {
            constants.insert(format!("KVSTORE_{name}"), value);
        }
    }
    for (name, value) in &constants {
        writeln!(out, "#[allow(dead_code)] pub const {name}: c_int = {value};").unwrap();
    }
    for name in ["KVStore", "KVColumnFamily", "KVIterator", "KVBatch"] {
        writeln!(out, "#[repr(C)] pub struct {name} {{ _opaque: [u8; 0] }}").unwrap();
    }
    for name in ["KVStoreConfig", "KVWriteOptions", "KVStoreStats", "KVEntry"] {
        writeln!(out, "#[repr(C)] #[derive(Clone, Copy)] pub struct {name} {{").unwrap();
        for (c, field) in fields(&header, name) {
            writeln!(out, "    pub {field}: {c},").unwrap();
        }
        writeln!(out, "}}").unwrap();
    }

    writeln!(out, "unsafe extern \"C\" {{").unwrap();
    for function in &functions {
        write!(out, "    pub fn {}(", function.name).unwrap();
        for (c, name) in &function.arguments {
            let c = match (c.as_str(), name.as_str()) {
                ("callback", "progress") if function.name == "kvstore_copy" => {
                    "Option<unsafe extern \"C\" fn(*mut c_void, i64, i64) -> c_int>".into()
                }
                ("callback", "now_ms") => "Option<unsafe extern \"C\" fn(*mut c_void) -> i64>".into(),
                ("callback", "ends") => "Option<unsafe extern \"C\" fn(*mut c_void) -> c_int>".into(),
                ("callback", "progress") => {
                    "Option<unsafe extern \"C\" fn(*mut c_void, c_int, c_int) -> c_int>".into()
                }
                ("callback", "report") => {
                    "Option<unsafe extern \"C\" fn(*mut c_void, *const c_char, i64, i64) -> c_int>".into()
                }
                (c, _) => rust_type(c),
            };
            write!(out, "{name}: {c}, ").unwrap();
        }
        match function.result.as_str() {
            "void" => writeln!(out, ");"),
            result => writeln!(out, ") -> {};", rust_type(result)),
        }
        .unwrap();
    }
    writeln!(out, "}}").unwrap();

    // The header lists the codes from OK to FULL, before the first constant of another kind.
    let known: BTreeSet<&str> = words(&header)
        .skip_while(|word| *word != "KVSTORE_OK")
        .take_while(|word| *word != "KVSTORE_JOURNAL_WAL")
        .filter(|word| constants.contains_key(*word))
        .collect();
    assert!(known.contains("KVSTORE_FULL"));
    let all: BTreeMap<&str, &Function> = functions.iter().map(|f| (f.name.as_str(), f)).collect();
    writeln!(out, "pub const CALLS: &[Call] = &[").unwrap();
    for function in &functions {
        let mut codes = codes_of(function, &all, &known, &mut BTreeSet::new());
        codes.extend(["KVSTORE_OK", "KVSTORE_ERROR", "KVSTORE_MISUSE"]); // the conventions of the header
        let codes = codes.into_iter().collect::<Vec<_>>().join(", ");
        let world = if function.arguments.is_empty() { "_" } else { "w" };
        writeln!(out, "    Call {{ name: \"{}\", codes: &[{codes}], run: |{world}| {{", function.name)
            .unwrap();
        let mut names = Vec::new();
        for at in 0..function.arguments.len() {
            writeln!(out, "        let a{at} = {};", draw(function, at)).unwrap();
            names.push(format!("a{at}"));
        }
        let (call, result) =
            (format!("unsafe {{ {}({}) }}", function.name, names.join(", ")), function.result.as_str());
        match result {
            // A number of a hint, not a code.
            "int" if function.name == "kvstore_errhint" => {
                writeln!(out, "        let _ = {call}; Answer::Nothing")
            }
            "int" => writeln!(out, "        Answer::Code({call})"),
            "void" => writeln!(out, "        {call}; Answer::Nothing"),
            "const char *" => writeln!(out, "        Answer::Text({call})"),
            "void *" => writeln!(out, "        Answer::Memory({call})"),
            "int64_t" => writeln!(out, "        let _ = {call}; Answer::Nothing"),
            other => panic!("a result of a type this does not know: {other}"),
        }
        .unwrap();
        writeln!(out, "    }} }},").unwrap();
    }
    writeln!(out, "];").unwrap();
    std::fs::write(Path::new(&std::env::var("OUT_DIR").unwrap()).join("calls.rs"), out).unwrap();
}

//! Generates Rust declarations of the C API from include/kvstore.h: its constants, its structs, and
//! a table of all functions, which is filled with dlsym at run time.

use std::fmt::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let header = "../../include/kvstore.h";
    println!("cargo::rerun-if-changed={header}");
    let text = without_comments(&std::fs::read_to_string(header)?);
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["#define", name, value] = words[..] {
            if let Ok(value) = value.parse::<i64>() {
                writeln!(out, "pub const {name}: c_int = {value};")?;
            }
        } else if let ["typedef", "struct", name, _] = words[..] {
            writeln!(out, "#[repr(C)] pub struct {name} {{ _private: [u8; 0] }}")?;
        }
    }
    for name in ["KVStoreConfig", "KVWriteOptions", "KVStoreStats", "KVEntry"] {
        let (body, _) = text.split_once(&format!("}} {name};")).ok_or("the struct is missing")?;
        let body = body.rsplit_once("typedef struct {").ok_or("the struct has no beginning")?.1;
        // A pointer has no default.
        let default = if body.contains('*') { "" } else { ", Default" };
        writeln!(out, "#[repr(C)] #[derive(Clone, Copy{default})] pub struct {name} {{")?;
        for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let (name, kind) = parameter(field);
            match name.split_once('[') {
                None => writeln!(out, "    pub {name}: {kind},")?,
                Some((name, length)) => {
                    writeln!(out, "    pub {name}: [{kind}; {}],", length.trim_end_matches(']'))?;
                }
            }
        }
        writeln!(out, "}}")?;
    }
    let functions = functions(&text);
    if functions.len() < 60 {
        return Err(format!("only {} functions found in {header}", functions.len()).into());
    }
    writeln!(out, "#[derive(Clone, Copy)] pub struct Functions {{")?;
    for (name, kind) in &functions {
        writeln!(out, "    pub {name}: {kind},")?;
    }
    writeln!(
        out,
        "}}\nimpl Functions {{ pub unsafe fn find(mut symbol: impl FnMut(&CStr) -> *mut c_void) -> Functions {{ unsafe {{ Functions {{"
    )?;
    for (name, kind) in &functions {
        writeln!(out, "    {name}: std::mem::transmute::<*mut c_void, {kind}>(symbol(c\"{name}\")),")?;
    }
    writeln!(out, "}} }} }} }}")?;
    std::fs::write(std::path::Path::new(&std::env::var("OUT_DIR")?).join("api.rs"), out)?;
    Ok(())
}

fn without_comments(mut text: &str) -> String {
    let mut out = String::new();
    while let Some((before, rest)) = text.split_once("/*") {
        out.push_str(before);
        text = rest.split_once("*/").map_or("", |(_, after)| after);
    }
    out + text
}

/// Names and types of all functions, except those that take function pointers.
fn functions(text: &str) -> Vec<(String, String)> {
    let declarations: String =
        text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, " "]).collect();
    let mut found = Vec::new();
    for declaration in declarations.split(';').filter(|d| d.contains(" kvstore_") || d.contains("*kvstore_"))
    {
        let Some((head, parameters)) = declaration.split_once('(') else { continue };
        if parameters.contains("(*") {
            continue;
        }
        let (name, result) = parameter(head.trim());
        let parameters = parameters.trim().trim_end_matches(')');
        let kinds: Vec<String> = match parameters {
            "void" => Vec::new(),
            list => list.split(',').map(|each| parameter(each).1).collect(),
        };
        let result = if result == "c_void" { String::new() } else { format!(" -> {result}") };
        found.push((name, format!("unsafe extern \"C\" fn({}){result}", kinds.join(", "))));
    }
    found
}

/// `const void *pKey` is `pKey` and `*const c_void`.
fn parameter(text: &str) -> (String, String) {
    let text = text.replace('*', " * ");
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let name = words.pop().expect("a declaration has a name").to_string();
    let (mut kind, mut constant) = (String::new(), false);
    for word in words {
        match word {
            "const" => constant = true,
            "*" => {
                kind = format!("*{} {kind}", if constant { "const" } else { "mut" });
                constant = false;
            }
            base => {
                kind = match base {
                    "void" => "c_void",
                    "char" => "c_char",
                    "int" => "c_int",
                    "int64_t" => "i64",
                    "uint64_t" => "u64",
                    "uint32_t" => "u32",
                    other => other,
                }
                .to_string();
            }
        }
    }
    (name, kind)
}

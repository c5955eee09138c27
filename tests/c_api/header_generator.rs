//! Generates the C header from `src/ffi` with cbindgen.

use std::fs;

use crate::c_programs::root;

/// The sources of the header, in its order.
const SOURCES: [&str; 20] = [
    "codes.rs",
    "hint.rs",
    "types.rs",
    "library.rs",
    "store.rs",
    "families.rs",
    "data.rs",
    "ttl.rs",
    "iterators.rs",
    "conditional.rs",
    "expiry.rs",
    "purge.rs",
    "write_times.rs",
    "ranges.rs",
    "many.rs",
    "transactions.rs",
    "maintenance.rs",
    "recover.rs",
    "encryption.rs",
    "limit.rs",
];

/// Returns the text of the header.
pub fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root().join("src/ffi").join(source));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    with_section_titles(String::from_utf8(header).unwrap())
}

/// Inserts a title before the first function of each source file: the first line of that file.
fn with_section_titles(mut header: String) -> String {
    for source in SOURCES {
        let text = fs::read_to_string(root().join("src/ffi").join(source)).unwrap();
        let title =
            text.lines().next().unwrap_or_default().trim_start_matches("//!").trim().trim_end_matches('.');
        let Some((_, after)) = text.split_once("extern \"C\" fn ") else { continue };
        let name = after.split('(').next().unwrap_or_default();
        let declared = header.find(&format!(" {name}(")).or_else(|| header.find(&format!("*{name}(")));
        if let Some(comment) = declared.and_then(|at| header[..at].rfind("/**")) {
            header.insert_str(comment, &format!("/*\n * ---- {title} ----\n */\n\n"));
        }
    }
    header
}

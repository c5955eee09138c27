//! Writes the C header to OUT_DIR; tests/header.rs keeps `include/kvstore.h` identical to it.
//! Must not write anywhere else.

use std::path::Path;

/// The sources of the header, in its order.
const SOURCES: [&str; 14] = [
    "codes.rs",
    "types.rs",
    "library.rs",
    "store.rs",
    "families.rs",
    "data.rs",
    "ttl.rs",
    "iterators.rs",
    "conditional.rs",
    "lifetime.rs",
    "ranges.rs",
    "many.rs",
    "transactions.rs",
    "maintenance.rs",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::var("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&root);
    let config = root.join("cbindgen.toml");
    println!("cargo::rerun-if-changed={}", config.display());
    let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file(&config)?);
    for source in SOURCES {
        let path = root.join("src/ffi").join(source);
        println!("cargo::rerun-if-changed={}", path.display());
        builder = builder.with_src(path);
    }
    builder.generate()?.write_to_file(Path::new(&std::env::var("OUT_DIR")?).join("kvstore.h"));
    Ok(())
}

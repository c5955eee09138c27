//! Helpers of the unit tests. The tests run in the folder of this package.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::settings::Settings;
use crate::vars::Vars;

/// Variables of the machine that programs need.
const MACHINE: [&str; 5] = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];

/// Returns settings from these variables. The environment adds `MACHINE` only.
pub fn settings<const N: usize>(pairs: [(&str, &str); N]) -> Result<Settings> {
    enter_root();
    let mut vars = Vars::from(pairs);
    for name in MACHINE {
        if let (None, Some(value)) = (vars.get(name), std::env::var_os(name)) {
            vars.set(name, value);
        }
    }
    Settings::new(vars)
}

/// Enters the root of the repository, as `make` does.
pub fn enter_root() {
    static ENTER: Once = Once::new();
    ENTER.call_once(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        std::env::set_current_dir(root).unwrap();
    });
}

/// A temporary folder, removed at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kvstore-xtask-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) {
        crate::run::write(&self.path(name), text).unwrap();
    }

    /// Writes a program for the shell.
    pub fn write_program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

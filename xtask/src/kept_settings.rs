//! Settings of the previous build, kept in a file next to what was built.
//!
//! A file is built again if a setting that is given differs from that of the previous build. A
//! setting that is not given may be as it was, because `make all CFLAGS=-Os && sudo make install`
//! has it once only. With `SETTINGS_STAY=no` it may not.

use crate::vars::Vars;

/// Variables that cargo, rustc or the C compiler read.
const NAMES: [&str; 18] = [
    "CC",
    "LD",
    "HOST_CC",
    "HOST_CFLAGS",
    "TARGET_CC",
    "RUSTUP_TOOLCHAIN",
    "CARGOFLAGS",
    "CFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "TARGET_CFLAGS",
    "KVSTORE_ENGINE",
    "LIBSQLITE3_FLAGS",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC",
    "RUSTC_BOOTSTRAP",
];

fn is_setting(name: &str) -> bool {
    let is_of_target = |suffix| name.starts_with("CARGO_TARGET_") && name.ends_with(suffix);
    NAMES.contains(&name)
        || ["CFLAGS_", "CC_", "CARGO_PROFILE_"].iter().any(|start| name.starts_with(start))
        || is_of_target("_RUSTFLAGS")
        || is_of_target("_LINKER")
        || ["OPENSSL_DIR", "OPENSSL_LIB_DIR", "OPENSSL_INCLUDE_DIR"].iter().any(|end| name.ends_with(end))
}

/// The settings that are given, one on each line of the file. Empty ones are not in the file.
pub struct Given<'a> {
    settings: Vec<(&'a str, &'a str)>,
    /// A setting that is not given may be as it was.
    stay: bool,
}

impl Given<'_> {
    pub fn of(vars: &Vars) -> Given<'_> {
        let given = vars.names().filter(|name| is_setting(name));
        Given {
            settings: given.map(|name| (name, vars.get_or(name, ""))).collect(),
            stay: vars.get("SETTINGS_STAY") != Some("no"),
        }
    }

    /// Returns the contents of the file.
    pub fn to_text(&self) -> String {
        let given = self.settings.iter().filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| line(name, value) + "\n").collect()
    }

    /// Returns `true` if the previous build, with the settings in `kept`, has to be repeated.
    pub fn differ_from(&self, kept: &str) -> bool {
        if !self.stay {
            return kept != self.to_text();
        }
        self.settings.iter().any(|(name, value)| match value.is_empty() {
            true => {
                kept.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
            }
            false => !kept.lines().any(|found| found == line(name, value)),
        })
    }
}

fn line(name: &str, value: &str) -> String {
    format!("{name}={}", value.replace('\\', "\\\\").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build whose settings are kept.
    struct Build(String);

    impl Build {
        /// Returns `true` if the build is repeated with these variables.
        fn repeats<const N: usize>(&mut self, pairs: [(&str, &str); N]) -> bool {
            let vars = Vars::from(pairs);
            let given = Given::of(&vars);
            let repeats = given.differ_from(&self.0);
            if repeats {
                self.0 = given.to_text();
            }
            repeats
        }
    }

    #[test]
    fn changed_settings_rebuild_and_missing_ones_do_not() {
        for (name, value) in [
            ("LIBSQLITE3_FLAGS", "-DSQLITE_PRIVATE= -D_TIME_BITS=64"),
            ("CFLAGS", "-Os -DA='$x\\ y'\t%"),
            ("CPPFLAGS", "-DA"),
            ("LDFLAGS", "-s"),
            ("KVSTORE_ENGINE", "sql"),
            ("CFLAGS_x86_64-unknown-linux-gnu", "-Os"),
            ("CC_armv7", "gcc"),
            ("CC", "clang"),
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("RUSTFLAGS", "-Copt-level=1\n-g"),
            ("CARGOFLAGS", "--locked -Zx"),
            ("CARGO_TARGET_A_RUSTFLAGS", "-g"),
            ("CARGO_TARGET_A_LINKER", "ld"),
            ("X_OPENSSL_DIR", "/opt"),
            ("RUSTC", "r"),
        ] {
            let mut build = Build(String::new());
            assert!(!build.repeats([]));
            let given = (name, value);
            assert_eq!(
                [build.repeats([given]), build.repeats([given]), build.repeats([])],
                [true, false, false]
            );
            let longer = format!("{value}x");
            assert!(build.repeats([(name, &longer)]), "{name}");
            assert_eq!([build.repeats([given]), build.repeats([given])], [true, false], "{name}");
            let empty = (name, "");
            assert_eq!(
                [build.repeats([empty]), build.repeats([empty]), build.repeats([])],
                [true, false, false]
            );
        }
        let mut build = Build("CFLAGS=-g\nRUSTFLAGS=-g\n".to_owned());
        assert!(!build.repeats([("CFLAGS", "-g"), ("HOME", "/root"), ("DESTDIR", "/stage")]));
    }

    #[test]
    fn unstored_settings_apply_to_this_run_only() {
        let [engine, no] = [("KVSTORE_ENGINE", "sql"), ("SETTINGS_STAY", "no")];
        let mut build = Build(String::new());
        let repeated = [
            build.repeats([no]),
            build.repeats([engine, no]),
            build.repeats([engine, no]),
            build.repeats([no]),
            build.repeats([no]),
        ];
        assert_eq!(repeated, [false, true, false, true, false]);
    }
}

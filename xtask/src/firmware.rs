//! Libraries for devices with little flash (docs/how-to/firmware.md).

use std::path::PathBuf;

use crate::settings::Settings;
use crate::vars::Vars;
use crate::{Result, install, run};

/// Installs a static and a shared library into a folder of the target.
pub fn make(vars: &Vars) -> Result<()> {
    let settings = settings(vars)?;
    install::install(&settings)?;
    let libdir = settings.staged(&settings.folders.libdir);
    run::run(
        settings
            .vars
            .command("ls")
            .arg("-l")
            .args([libdir.join("libkvstore.a"), libdir.join(settings.shared())]),
    )
}

fn settings(vars: &Vars) -> Result<Settings> {
    let target = vars.get("TARGET").filter(|target| !target.is_empty()).ok_or(
        "make firmware TARGET=...: for which machine, as Rust calls it (\"rustc --print target-list\")",
    )?;
    let default = format!("{}/firmware", vars.get_or("TARGET_DIR", "target"));
    let folder = vars.get_or("FIRMWARE", &default);
    let mut flags =
        format!("{} --config packaging/firmware/profile.toml", vars.get_or("CARGOFLAGS", "--locked"));
    // Rust's own library is compiled for size, which needs its source and a compiler that may: a
    // nightly one, or RUSTC_BOOTSTRAP=1.
    if vars.one_of("STD", "prebuilt", "prebuilt small")? == "small" {
        flags.push_str(" -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size");
    }
    let stage = std::path::absolute(PathBuf::from(folder).join(target))
        .map_err(|error| format!("{folder}: {error}"))?;
    let mut vars = vars.clone();
    vars.set("CARGO_BUILD_TARGET", target.to_owned());
    vars.set("CARGOFLAGS", flags);
    vars.set("DESTDIR", stage);
    vars.set("TARGET_DIR", format!("{folder}/build"));
    // Each run uses the settings it is given, and none of an earlier run.
    for (name, value) in
        [("COMMAND", "no"), ("INSTALL_STRIP", "1"), ("SETTINGS_STAY", "no"), ("PREFIX", "/usr")]
    {
        vars.set(name, value);
    }
    Settings::new(vars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::enter_root;

    fn of<const N: usize>(pairs: [(&str, &str); N]) -> Result<Settings> {
        enter_root();
        settings(&Vars::from(pairs))
    }

    fn cargo(settings: &Settings) -> String {
        run::line(&settings.library_command().unwrap(), &[])
    }

    #[test]
    fn target_is_required() {
        assert!(of([]).err().unwrap().starts_with("make firmware TARGET=...: "));
        assert!(of([("TARGET", "")]).is_err());
    }

    #[test]
    fn library_for_a_device_is_small_and_has_its_own_folder() {
        let target = ("TARGET", "armv7-unknown-linux-musleabihf");
        let settings = of([target, ("FIRMWARE", "/tmp/f"), ("CARGOFLAGS", "--offline")]).unwrap();
        assert_eq!(settings.stage, PathBuf::from("/tmp/f/build/install/armv7-unknown-linux-musleabihf"));
        assert_eq!(
            settings.staged(&settings.folders.libdir),
            PathBuf::from(format!("/tmp/f/{}/usr/lib", target.1))
        );
        assert!(!settings.with_command);
        let [strip, stay] = ["INSTALL_STRIP", "SETTINGS_STAY"].map(|name| settings.vars.get(name));
        assert_eq!([strip, stay], [Some("1"), Some("no")]);
        let command = cargo(&settings);
        assert!(command.contains(" --offline --config packaging/firmware/profile.toml "), "{command}");
        assert!(command.contains("-crt-static"), "{command}");
        let small = of([target, ("STD", "small")]).unwrap();
        assert!(
            cargo(&small).contains(" -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size ")
        );
        let apple = of([("TARGET", "aarch64-apple-ios")]).unwrap();
        assert!(
            apple.shared().ends_with(".dylib") && apple.stage.ends_with("build/install/aarch64-apple-ios")
        );
    }
}

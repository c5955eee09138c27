//! Variables of make and of the environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::process::Command;

use crate::Result;

/// The variables of one build. Programs started for it get them as their environment.
#[derive(Clone, Default)]
pub struct Vars(BTreeMap<OsString, OsString>);

impl Vars {
    pub fn from_environment() -> Vars {
        Vars(std::env::vars_os().collect())
    }

    /// Returns the value of a variable. An empty value is a value.
    ///
    /// # Panics
    ///
    /// If the value is not UTF-8: a path would otherwise be taken for one that is not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(OsStr::new(name))?;
        Some(value.to_str().unwrap_or_else(|| panic!("{name} is not UTF-8: {}", value.display())))
    }

    pub fn get_or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.get(name).unwrap_or(default)
    }

    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets variables with which cargo builds a release without link-time optimisation, which takes
    /// minutes.
    pub fn set_quick_release(&mut self) {
        self.set("CARGO_PROFILE_RELEASE_LTO", "off");
        self.set("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    }

    /// Names of all variables that are UTF-8, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|name| name.to_str())
    }

    /// Returns a command whose environment consists of these variables.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.0);
        command
    }

    /// Returns the value of a variable that has to be empty or one of a few words.
    pub fn one_of<'a>(&'a self, name: &str, default: &'a str, allowed: &str) -> Result<&'a str> {
        let value = self.get_or(name, default);
        if value.is_empty() || allowed.split(' ').any(|word| word == value) {
            return Ok(value);
        }
        Err(format!("{name}={value}: it has to be one of {allowed}"))
    }
}

/// Returns `true` unless the value of a switch is empty, `0` or `no`.
pub fn is_on(value: &str) -> bool {
    !["", "0", "no"].contains(&value.trim())
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Vars {
    fn from(pairs: [(&str, &str); N]) -> Vars {
        Vars(pairs.map(|(name, value)| (name.into(), value.into())).into())
    }
}

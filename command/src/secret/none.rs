//! The counterpart of `read.rs` in a build without encryption.

use std::convert::Infallible;
use std::path::Path;

use kvstore::{Config, Store};

use super::{NO_ENCRYPTION, Source};
use crate::failure::{Result, refused};

/// A type without values: a build without encryption has no secrets.
#[derive(Clone)]
pub struct Secret(Infallible);

pub fn read(_: &Source, _: &Path, _: bool) -> Result<Secret> {
    refused(NO_ENCRYPTION)
}

pub fn apply(secret: &Secret, _: &Config) -> Config {
    match secret.0 {}
}

pub fn encrypt(_: &Store, with: &Secret) -> Result<()> {
    match with.0 {}
}

pub fn rekey(_: &Store, with: &Secret) -> Result<()> {
    match with.0 {}
}

pub fn decrypt(_: &Store) -> Result<()> {
    refused(NO_ENCRYPTION)
}

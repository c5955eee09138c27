//! Reads passwords and keys: from files, from the environment, from a terminal; and hands them to the library. What is
//! read is wiped from memory when it is no longer needed. `none.rs` stands for it in a build without encryption.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Read};
use std::path::Path;

use data_encoding::HEXLOWER_PERMISSIVE;
pub use kvstore::Secret;
use kvstore::{Config, Store};
use zeroize::Zeroizing;

use super::{Source, shown};
use crate::failure::{Failure, Result, refused, usage};
use crate::progress::Interrupt;
use crate::system;

/// Bytes of a key, and digits of one in hex.
const KEY: usize = 32;
const DIGITS: usize = 2 * KEY;
/// No password is longer: who gives more has named another file than was meant.
const LONGEST: usize = 64 << 10;

/// Reads what a source has for a store. `is_new`: the store has none yet, so that what is typed has to be typed twice.
pub fn read(source: &Source, path: &Path, is_new: bool) -> Result<Secret> {
    match source {
        Source::Terminal => ask(path, is_new),
        Source::File(file) => {
            let read = read_file(file)?;
            match system::without_newline(&read) {
                [] => refused(format!("{} is empty: there is no password in it", name_of(file))),
                password => Ok(Secret::password(password)),
            }
        }
        Source::Variable(name) => {
            let Some(word) = std::env::var_os(name) else {
                return usage(format!("the environment variable {name}, for the password, is not set"));
            };
            match system::bytes(word).map(Zeroizing::new) {
                None => {
                    usage(format!("the environment variable {name} is no text: there is no password in it"))
                }
                Some(password) if password.is_empty() => {
                    usage(format!("the environment variable {name} is empty: there is no password in it"))
                }
                Some(password) => Ok(Secret::password(password)),
            }
        }
        Source::RawKey(file) => match key(&read_file(file)?) {
            Some(key) => Ok(Secret::raw_key(&key)),
            None => refused(format!(
                "{} has no key in it: a key has {KEY} bytes, or {DIGITS} hex digits",
                name_of(file)
            )),
        },
    }
}

/// A configuration with it.
pub fn apply(secret: &Secret, config: &Config) -> Config {
    config.clone().secret(secret)
}

pub fn encrypt(store: &Store, with: &Secret) -> Result<()> {
    Ok(store.encrypt(with)?)
}

pub fn rekey(store: &Store, with: &Secret) -> Result<()> {
    Ok(store.rekey(with)?)
}

pub fn decrypt(store: &Store) -> Result<()> {
    Ok(store.decrypt()?)
}

fn name_of(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { shown(file) }
}

/// What is in a file, whatever it is, or comes from standard input.
fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |e: std::io::Error| Failure::Refused(format!("{}: {e}", name_of(path)));
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return usage(
                "standard input is a terminal, which would show the password: --password asks for it",
            );
        }
        return read_all(stdin.lock(), path);
    }
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    // A pipe, such as sh's <(...), is for who has made it.
    let name = shown(path);
    if found.is_file()
        && let Some(to_do) = system::to_keep_others_out(&found, &name)
    {
        say!("kvstore: {name} can be read by other users of this machine: {to_do}");
    }
    read_all(file, path)
}

fn read_all(from: impl Read, path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    // As long from the start as it can become: what it had grown from would not be wiped.
    let mut read = Zeroizing::new(Vec::with_capacity(2 * LONGEST));
    from.take(LONGEST as u64 + 1)
        .read_to_end(&mut read)
        .map_err(|e| Failure::Refused(format!("{}: {e}", name_of(path))))?;
    match read.len() > LONGEST {
        true => refused(format!("{} is longer than a password can be", name_of(path))),
        false => Ok(read),
    }
}

/// A key as it is, or in hex, with or without a newline after it.
fn key(read: &[u8]) -> Option<Zeroizing<[u8; KEY]>> {
    let mut key = Zeroizing::new([0; KEY]);
    let digits = system::without_newline(read);
    if read.len() == KEY {
        key.copy_from_slice(read);
    } else if digits.len() != DIGITS || HEXLOWER_PERMISSIVE.decode_mut(digits, &mut key[..]).is_err() {
        return None;
    }
    Some(key)
}

fn ask(path: &Path, is_new: bool) -> Result<Secret> {
    let name = shown(path);
    if !is_new {
        return Ok(Secret::password(typed(&format!("Password of {name}: "))?));
    }
    let password = typed(&format!("New password of {name}: "))?;
    if password != typed("The same again: ")? {
        return refused("these were two different passwords: nothing was done");
    }
    Ok(Secret::password(password))
}

/// What somebody types on the terminal, unseen.
fn typed(question: &str) -> Result<Zeroizing<Vec<u8>>> {
    // While it is watched for, Ctrl-C does not end the process before rpassword has put the terminal in order.
    let interrupt = Interrupt::watch()?;
    let typed = rpassword::prompt_password(question);
    if interrupt.came() {
        return refused("stopped: nothing was done");
    }
    match typed.map(|typed| Zeroizing::new(typed.into_bytes())) {
        Ok(typed) if typed.is_empty() => refused("the password is empty: nothing was done"),
        Ok(typed) => Ok(typed),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => refused("no password was given: nothing was done"),
        Err(_) => usage(
            "there is no terminal to ask for the password on: --password-file or --password-env says where it is",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_bytes_or_digits() {
        let bytes = |read: &[u8]| key(read).map(|key| *key);
        let mut raw = [0xab; KEY];
        assert_eq!(bytes(&raw), Some(raw));
        raw[KEY - 1] = b'\n';
        assert_eq!(bytes(&raw), Some(raw));
        assert_eq!(bytes("aB".repeat(KEY).as_bytes()), Some([0xab; KEY]));
        assert_eq!(bytes(format!("{}\n", "ab".repeat(KEY)).as_bytes()), Some([0xab; KEY]));
        for wrong in ["", "ab", &"a".repeat(KEY + 1), &"ag".repeat(KEY), &"ab".repeat(KEY + 1)] {
            assert_eq!(bytes(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_too_long_for_a_password_is_another_file() {
        let path = Path::new("f");
        assert_eq!(read_all(&vec![b'a'; LONGEST][..], path).unwrap().len(), LONGEST);
        assert!(read_all(&vec![b'a'; LONGEST + 1][..], path).is_err());
    }
}

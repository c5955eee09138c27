//! Reads passwords and keys from files, the environment or a terminal, and passes them to the
//! library. They are wiped from memory after use. A build without encryption uses `none.rs`
//! instead.

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

/// Length of an encryption key in bytes.
const KEY: usize = 32;
/// Length of an encryption key in hex digits.
const DIGITS: usize = 2 * KEY;
/// Maximum length of a password file or key file, in bytes. A longer file is refused, because it is
/// probably the wrong one.
const LONGEST: usize = 64 << 10;

/// Reads a password or key from `source`. `path` names the store when the user is asked for its
/// password. If `is_new`, the user must type the password twice.
pub fn read(source: &Source, path: &Path, is_new: bool) -> Result<Secret> {
    match source {
        Source::Terminal => ask(path, is_new),
        Source::File(file) => {
            let read = read_file(file)?;
            match system::without_newline(&read) {
                [] => refused(format!("{} is empty: write the password to it", name_of(file))),
                password => Ok(Secret::password(password)),
            }
        }
        Source::Variable(name) => {
            let Some(word) = std::env::var_os(name) else {
                return usage(format!("the environment variable {name} is not set: set it to the password"));
            };
            match system::bytes(word).map(Zeroizing::new) {
                None => usage(format!(
                    "the environment variable {name} is not valid Unicode: set it to the password"
                )),
                Some(password) if password.is_empty() => {
                    usage(format!("the environment variable {name} is empty: set it to the password"))
                }
                Some(password) => Ok(Secret::password(password)),
            }
        }
        Source::RawKey(file) => match key(&read_file(file)?) {
            Some(key) => Ok(Secret::raw_key(&key)),
            None => refused(format!(
                "{} has no valid key: a key has {KEY} bytes, or {DIGITS} hex digits",
                name_of(file)
            )),
        },
    }
}

/// Returns a copy of the configuration with the password or key `secret`.
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

/// Reads a password file or key file; `-` stands for standard input. Warns if other users can read
/// the file.
fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |e: std::io::Error| Failure::Refused(format!("{}: {e}", name_of(path)));
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return usage(
                "standard input is a terminal, which would show the password: use --password to be asked for it",
            );
        }
        return read_all(stdin.lock(), path);
    }
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    // A pipe, such as <(...) of a shell, is private to the process that created it.
    let name = shown(path);
    if found.is_file()
        && let Some(to_do) = system::to_keep_others_out(&found, &name)
    {
        say!("kvstore: warning: other users can read {name}: {to_do}");
    }
    read_all(file, path)
}

fn read_all(from: impl Read, path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    // Allocated in full size: growing would leave a copy that is not wiped.
    let mut read = Zeroizing::new(Vec::with_capacity(2 * LONGEST));
    from.take(LONGEST as u64 + 1)
        .read_to_end(&mut read)
        .map_err(|e| Failure::Refused(format!("{}: {e}", name_of(path))))?;
    match read.len() > LONGEST {
        true => refused(format!(
            "{} is longer than a password can be: check that it is the right file",
            name_of(path)
        )),
        false => Ok(read),
    }
}

/// Decodes the content of a key file: 32 bytes, or 64 hex digits with or without a newline. Returns
/// `None` for any other content.
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
    if password != typed("Repeat the password: ")? {
        return refused("the two passwords differ: try again; nothing changed");
    }
    Ok(Secret::password(password))
}

/// Prints a question and reads a password from the terminal, without echo.
fn typed(question: &str) -> Result<Zeroizing<Vec<u8>>> {
    // During a watch, Ctrl-C does not end the process before rpassword has restored the terminal.
    let interrupt = Interrupt::watch_until_drop()?;
    let typed = rpassword::prompt_password(question);
    if interrupt.came() {
        return refused("stopped; nothing changed");
    }
    match typed.map(|typed| Zeroizing::new(typed.into_bytes())) {
        Ok(typed) if typed.is_empty() => refused("the password is empty: try again; nothing changed"),
        Ok(typed) => Ok(typed),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => refused("no password was given; nothing changed"),
        Err(_) => {
            usage("there is no terminal to ask for the password: use --password-file or --password-env")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_bytes_or_hex_digits() {
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
    fn too_long_password_is_refused() {
        let path = Path::new("f");
        assert_eq!(read_all(&vec![b'a'; LONGEST][..], path).unwrap().len(), LONGEST);
        assert!(read_all(&vec![b'a'; LONGEST + 1][..], path).is_err());
    }
}

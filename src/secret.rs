//! Secret of an encrypted store. It is wiped from memory when it is dropped, and never displayed.

use std::fmt;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// Secret of an encrypted store: a password or a raw key.
///
/// It is wiped from memory when it is dropped, and `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>); // in the syntax of SQLCipher

/// Length of a raw key of an encrypted store, in bytes.
pub(crate) const RAW_KEY_SIZE: usize = 32;

impl Secret {
    /// Creates a secret from a password.
    ///
    /// Each open derives the key from it with PBKDF2 and 256 000 rounds, as SQLCipher does, which
    /// takes about a tenth of a second. An empty password is refused when the store is opened.
    ///
    /// SQLCipher takes a password of the form `x'…'` with 64 hexadecimal digits as a [raw
    /// key](Secret::raw_key).
    #[must_use]
    pub fn password(password: impl AsRef<[u8]>) -> Secret {
        Secret(Zeroizing::new(password.as_ref().to_vec()))
    }

    /// Creates a secret from a key of 32 random bytes, such as one from the key store of a device.
    ///
    /// No key is derived, so opening takes no longer than for a store without encryption.
    #[must_use]
    pub fn raw_key(key: &[u8; RAW_KEY_SIZE]) -> Secret {
        // SQLCipher takes a key in hexadecimal as it is (zetetic.net, "PRAGMA key": raw key data).
        let mut text = Zeroizing::new(Vec::with_capacity(2 * RAW_KEY_SIZE + 3));
        text.extend_from_slice(b"x'");
        for byte in key {
            for digit in [byte >> 4, byte & 15] {
                text.push(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
            }
        }
        text.push(b'\'');
        Secret(text)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Fails with `Error` if the password is empty or too long.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.len() {
            0 => Err(Error::invalid("the password is empty: give one, or open the store without a password")),
            length if i32::try_from(length).is_err() => {
                Err(Error::invalid("the password is too long: the maximum is 2147483647 bytes"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_key_uses_sqlcipher_syntax_and_debug_hides_it() {
        let mut key = [0xff; RAW_KEY_SIZE];
        key[0] = 0x0a;
        let secret = Secret::raw_key(&key);
        assert_eq!(secret.as_bytes(), format!("x'0a{}'", "ff".repeat(31)).as_bytes());
        assert_eq!(format!("{secret:?} {:?}", Secret::password("geheim")), "Secret Secret");
    }

    #[test]
    fn empty_password_is_rejected() {
        assert!(Secret::password("").check().is_err() && Secret::password("\0").check().is_ok());
    }
}

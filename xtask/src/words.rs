//! Words of a command line: split from a variable as a shell would, and quoted for a message.

use crate::Result;

/// Splits the value of a variable such as `CARGOFLAGS` into words. Quotes and backslashes have the
/// meaning they have in a shell; nothing else is expanded.
pub fn split(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = text.chars();
    let unfinished = || format!("{text}: a quote in it has no end");
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or_else(unfinished)? {
                        end if end == letter => break,
                        '\\' if letter == '"' => match letters.next().ok_or_else(unfinished)? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        inside => word.push(inside),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            _ if letter.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Quotes a word for a shell, if it needs that.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_by_a_shell() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            (" cargo  +nightly\t", &["cargo", "+nightly"]),
            ("--config 'target.x.rustflags=[\"-g\"]'", &["--config", "target.x.rustflags=[\"-g\"]"]),
            (r#"-DA="$x \"y\" \z" b"#, &[r#"-DA=$x "y" \z"#, "b"]),
            (r"a\ b ''", &["a b", ""]),
        ];
        for (text, words) in cases {
            assert_eq!(split(text).unwrap(), *words, "{text}");
        }
        assert!(split("-DA='x").unwrap_err().contains("has no end"));
    }

    #[test]
    fn quoted_word_splits_into_itself() {
        for word in ["", "a", "a b", "it's", "$HOME", "\\", "\"", "a\nb"] {
            assert_eq!(split(&quote(word)).unwrap(), [word]);
        }
        assert_eq!(quote("--locked"), "--locked");
    }
}

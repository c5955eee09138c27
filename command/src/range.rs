//! The keys a command works on: `--prefix`, `--from`, `--to`, `--all`.

use std::ops::Bound;

use clap::{ArgGroup, Args};
use kvstore::KeyRange;

use crate::bytes::Form;
use crate::failure::{Result, usage};

#[derive(Debug, Args)]
pub struct RangeArgs {
    /// Only keys that start with PREFIX
    #[arg(short, long, value_name = "PREFIX", help_heading = "Key selection")]
    pub prefix: Option<String>,
    /// Only keys at or after KEY
    #[arg(long, value_name = "KEY", help_heading = "Key selection")]
    pub from: Option<String>,
    /// Only keys before KEY
    #[arg(long, value_name = "KEY", help_heading = "Key selection")]
    pub to: Option<String>,
}

/// A range, whose prefix may also be given without `--prefix`.
#[derive(Debug, Args)]
pub struct ListedArgs {
    /// Only keys that start with PREFIX, as with --prefix
    #[arg(value_name = "PREFIX", conflicts_with = "prefix")]
    start: Option<String>,
    #[command(flatten)]
    range: RangeArgs,
}

impl ListedArgs {
    pub fn is_given(&self) -> bool {
        self.start.is_some() || self.range.is_given()
    }

    pub fn range(&self, form: Form) -> Result<KeyRange> {
        self.range.range_with(self.start.as_ref(), form)
    }

    /// Returns the prefix as typed, before it is decoded; `None` if no prefix was given.
    pub fn prefix(&self) -> Option<&str> {
        self.start.as_ref().or(self.range.prefix.as_ref()).map(String::as_str)
    }
}

impl RangeArgs {
    /// Returns `true` if `--prefix`, `--from` or `--to` was given.
    pub fn is_given(&self) -> bool {
        self.prefix.is_some() || self.from.is_some() || self.to.is_some()
    }

    /// Returns the range of the keys that match all of `--prefix`, `--from` and `--to` that were
    /// given; all keys if none was given. `form` is the encoding of their values.
    pub fn range(&self, form: Form) -> Result<KeyRange> {
        self.range_with(None, form)
    }

    fn range_with(&self, start: Option<&String>, form: Form) -> Result<KeyRange> {
        let parse = |word: Option<&String>, what| word.map(|word| form.parse(word, what)).transpose();
        let prefix = parse(start.or(self.prefix.as_ref()), "prefix")?;
        let (from, to) =
            (parse(self.from.as_ref(), "key of --from")?, parse(self.to.as_ref(), "key of --to")?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return usage("--from is after --to, so no key can match: swap them");
        }
        // The keys that start with the prefix end before the smallest key that is greater than all
        // of them.
        let end = prefix.as_deref().and_then(after_prefix);
        let from = from.into_iter().chain(prefix).max();
        let to = to.into_iter().chain(end).min();
        Ok(KeyRange::new(
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}

/// The keys a command changes: named keys, a range, or `--all`. An empty bound of the range is
/// refused: it would select all keys when a shell variable is unset.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["keys", "prefix", "from", "to", "all"]).required(true).multiple(true))]
pub struct ManyArgs {
    /// Keys
    #[arg(value_name = "KEY", conflicts_with_all = ["prefix", "from", "to", "all"])]
    keys: Vec<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// All keys of the family
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"], help_heading = "Key selection")]
    all: bool,
}

impl ManyArgs {
    /// Returns `true` if `--all` was given, which selects all keys of the family.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Returns the keys that are named as arguments, decoded; empty if a range was given instead.
    pub fn keys(&self, form: Form) -> Result<Vec<Vec<u8>>> {
        self.keys.iter().map(|key| form.parse(key, "key")).collect()
    }

    /// Returns the range that `--prefix`, `--from`, `--to` or `--all` selects; `None` if keys are
    /// named instead. Fails if the value of an option is empty.
    pub fn range(&self, form: Form) -> Result<Option<KeyRange>> {
        let RangeArgs { prefix, from, to } = &self.range;
        for (name, word) in [("--prefix", prefix), ("--from", from), ("--to", to)] {
            if word.as_deref() == Some("") {
                return usage(format!(
                    "{name} is empty, perhaps because a shell variable is not set: use --all to select all keys"
                ));
            }
        }
        match self.all || self.range.is_given() {
            true => self.range.range(form).map(Some),
            false => Ok(None),
        }
    }
}

/// Returns the smallest key that is greater than all keys with this prefix. Returns `None` if there
/// is none, because the prefix is empty or has only bytes 0xFF.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < 0xFF)?;
    let (kept, _) = prefix.split_at(last);
    let byte = prefix.get(last)?;
    Some([kept, &[byte + 1]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(prefix: Option<&str>, from: Option<&str>, to: Option<&str>) -> KeyRange {
        let [prefix, from, to] = [prefix, from, to].map(|word| word.map(str::to_owned));
        RangeArgs { prefix, from, to }.range(Form::Text).unwrap()
    }

    #[test]
    fn prefix_and_bounds_are_intersected() {
        for prefix in ["a", "ab", "a\\xff", "\\xff"] {
            let bytes = Form::Text.parse(prefix, "prefix").unwrap();
            let (one, other) = (range(Some(prefix), None, None), KeyRange::prefix(&bytes));
            assert_eq!(one, other, "{prefix}");
        }
        let both = range(Some("a"), Some("ab"), Some("b"));
        for (key, inside) in [("aa", false), ("ab", true), ("az", true), ("b", false)] {
            assert_eq!(both.contains(key.as_bytes()), inside, "{key}");
        }
        assert!(!range(Some("a"), None, Some("ab")).contains(b"ac"));
        assert_eq!(range(None, None, None), KeyRange::all());
        let wrong = RangeArgs { prefix: None, from: Some("b".into()), to: Some("a".into()) };
        assert!(wrong.range(Form::Text).is_err());
    }
}

//! Which keys of a family: `--prefix`, `--from`, `--to`.

use std::ops::Bound;

use clap::{ArgGroup, Args};
use kvstore::KeyRange;

use crate::bytes::Form;
use crate::failure::{Result, usage};

#[derive(Debug, Args)]
pub struct RangeArgs {
    /// Keys that begin with this
    #[arg(short, long, value_name = "PREFIX", help_heading = "Which keys")]
    pub prefix: Option<String>,
    /// Keys from this one on
    #[arg(long, value_name = "KEY", help_heading = "Which keys")]
    pub from: Option<String>,
    /// Keys before this one
    #[arg(long, value_name = "KEY", help_heading = "Which keys")]
    pub to: Option<String>,
}

impl RangeArgs {
    /// Whether a range was given.
    pub fn is_given(&self) -> bool {
        self.prefix.is_some() || self.from.is_some() || self.to.is_some()
    }

    /// The range; all keys if none was given. Of a prefix with bounds, the keys that both have.
    pub fn range(&self, form: Form) -> Result<KeyRange> {
        let parse = |word: &Option<String>, what| match word {
            Some(word) => form.parse(word, what).map(Some),
            None => Ok(None),
        };
        let prefix = parse(&self.prefix, "prefix")?;
        let (from, to) = (parse(&self.from, "key of --from")?, parse(&self.to, "key of --to")?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return usage("--from is after --to: no key is between them");
        }
        // Of a prefix the range ends before the first greater bytes that have it not.
        let end = prefix.as_deref().and_then(after_prefix);
        let from = from.into_iter().chain(prefix).max();
        let to = to.into_iter().chain(end).min();
        Ok(KeyRange::new(
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}

/// Which keys are changed: those that are named, a range of which nothing is empty (a variable of the shell that is not set would mean all
/// keys), or all, if that is said.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["keys", "prefix", "from", "to", "all"]).required(true).multiple(true))]
pub struct ManyArgs {
    /// The keys
    #[arg(value_name = "KEY", conflicts_with_all = ["prefix", "from", "to", "all"])]
    keys: Vec<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// All keys of the family
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"], help_heading = "Which keys")]
    all: bool,
}

impl ManyArgs {
    /// Whether it is not a part of them.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The keys that are named.
    pub fn keys(&self, form: Form) -> Result<Vec<Vec<u8>>> {
        self.keys.iter().map(|key| form.parse(key, "key")).collect()
    }

    /// The range, if one was given.
    pub fn range(&self, form: Form) -> Result<Option<KeyRange>> {
        let RangeArgs { prefix, from, to } = &self.range;
        for (name, word) in [("--prefix", prefix), ("--from", from), ("--to", to)] {
            if word.as_deref() == Some("") {
                return usage(format!(
                    "{name} is empty: is a variable of the shell not set? For all keys of the family say --all"
                ));
            }
        }
        match self.all || self.range.is_given() {
            true => self.range.range(form).map(Some),
            false => Ok(None),
        }
    }
}

/// The least key above all that begin with the prefix; `None`: there is none.
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
    fn a_prefix_and_bounds_are_kept_both() {
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

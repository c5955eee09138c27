//! `limit`.

use clap::Args;
use kvstore::{Eviction, SizeLimit, Store};

use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::json::Object;
use crate::output::{eviction_name, size};
use crate::store_arg::{Purpose, StoreFirst, shown};

/// Show or set the size limit of a store
///
/// The limit is stored in the file and applies to every program that writes to it. At the limit, a
/// write fails or, with --evict, first removes other keys.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 1: the store has no limit.

Examples:
  kvstore limit app.db
  kvstore limit app.db 64MB --evict soonest
  kvstore limit app.db --evict oldest          keep the size, change the policy
  kvstore limit app.db none")]
pub struct LimitArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// New limit: a number with B, kB, MB, GB (powers of 1000), KiB, MiB or GiB; or "none"
    #[arg(value_name = "SIZE", value_parser = parse_size)]
    to: Option<Size>,
    /// Which keys to remove at the limit [default: unchanged; none for a new limit]
    #[arg(long, value_enum, value_name = "POLICY")]
    evict: Option<Evict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Unlimited,
    Bytes(u64),
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Evict {
    /// None: writes that need more space fail
    None,
    /// Expired keys, then those that expire soonest; never keys without a TTL
    Soonest,
    /// Expired keys, then those written longest ago
    Oldest,
    /// Expired keys, then those written or read longest ago
    LeastUsed,
}

fn parse_size(word: &str) -> std::result::Result<Size, String> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("kb", 1000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
    ];
    if word == "none" {
        return Ok(Size::Unlimited);
    }
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = word.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    match (number.parse::<u64>(), factor) {
        (Ok(number), Some(factor)) => number.checked_mul(*factor).map(Size::Bytes),
        _ => None,
    }
    .ok_or_else(|| format!("\"{word}\" is not a size: use 500kB, 64MB, 2GiB, or none"))
}

impl LimitArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let limit = match (self.to, self.evict) {
            (None, None) => self.store.open(Purpose::Read, &context.secrets)?.size_limit()?,
            (Some(Size::Unlimited), Some(_)) => {
                return usage("--evict needs a limit: give a size instead of none");
            }
            (to, evict) => self.set(&self.store.open(Purpose::Write, &context.secrets)?, to, evict)?,
        };
        let out = &mut context.out;
        let evict = limit.map(|limit| eviction_name(limit.eviction));
        if out.json {
            let mut object = Object::new();
            object.optional("limit_bytes", limit.map(|limit| limit.max_bytes));
            match evict {
                Some(evict) => object.text("eviction", evict),
                None => object.raw("eviction", "null"),
            };
            out.object(&mut object)?;
        } else if let (Some(limit), Some(evict)) = (limit, evict) {
            let bytes = if out.is_terminal { size(limit.max_bytes) } else { limit.max_bytes.to_string() };
            out.line(if out.is_terminal {
                format!("{bytes}, evicts {evict}")
            } else {
                format!("{bytes}\t{evict}")
            })?;
        } else if out.is_terminal {
            out.line("no limit")?;
        }
        let looked = self.to.is_none() && self.evict.is_none();
        Ok(if looked { Answer::from_bool(limit.is_some()) } else { Answer::Yes })
    }

    /// Sets the size limit of a store and returns it. A size or policy that is not given stays
    /// unchanged.
    fn set(&self, store: &Store, to: Option<Size>, evict: Option<Evict>) -> Result<Option<SizeLimit>> {
        let was = store.size_limit()?;
        let eviction = evict.map_or_else(|| was.map_or(Eviction::None, |was| was.eviction), Into::into);
        let limit = match (to, was) {
            (Some(Size::Unlimited), _) => None,
            (Some(Size::Bytes(bytes)), _) => Some(SizeLimit::new(bytes, eviction)),
            (None, Some(was)) => Some(SizeLimit::new(was.max_bytes, eviction)),
            (None, None) => {
                let path = shown(&self.store.path()?);
                return refused(format!("{path} has no limit: also give a size, such as 64MB"));
            }
        };
        store.set_size_limit(limit).map_err(|e| match e.into() {
            Failure::Usage(text) => Failure::Usage(format!("{text}; \"none\" removes the limit")),
            failure => failure,
        })?;
        Ok(limit)
    }
}

impl From<Evict> for Eviction {
    fn from(evict: Evict) -> Eviction {
        match evict {
            Evict::None => Eviction::None,
            Evict::Soonest => Eviction::Soonest,
            Evict::Oldest => Eviction::Oldest,
            Evict::LeastUsed => Eviction::LeastUsed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_units() {
        for (word, bytes) in
            [("64MB", 64_000_000), ("4096", 4096), ("1 KiB", 1024), ("2gib", 2 << 30), ("5B", 5)]
        {
            assert_eq!(parse_size(word), Ok(Size::Bytes(bytes)), "{word}");
        }
        assert_eq!(parse_size("none"), Ok(Size::Unlimited));
        for word in ["", "MB", "-1", "1.5GB", "12 parsecs", "99999999999999999999", "18446744073709551615GB"]
        {
            assert!(parse_size(word).unwrap_err().contains("is not a size"), "{word}");
        }
    }
}

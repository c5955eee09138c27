//! `ttl`, `expire`, `persist` and `touch`.

use std::ops::Bound;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use kvstore::{Direction, Expiry, ExpiryCondition, Family, KeyRange, Store};

use crate::confirm::confirm;
use crate::context::Context;
use crate::failure::{Answer, Result, refused, usage};
use crate::json::Object;
use crate::output::{self, DIM};
use crate::progress::{Interrupt, Progress};
use crate::range::ManyArgs;
use crate::store_arg::{FamilyArgs, Purpose, StoreFirst};
use crate::times::{self, Moment};
use crate::ttl_args::{self, ExpiryArgs};

/// Show the time left until a key expires
///
/// Prints "never" for a key without a TTL. In a pipe, the time is in milliseconds.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 1: the key does not exist or has expired.

Examples:
  kvstore ttl app.db otp:17
  kvstore ttl app.db otp:17 --json | jq .expire_ms")]
pub struct TtlArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl TtlArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let Some(expiry) = self.family.of(&store)?.expiry(&key)? else {
            output::note("key not found");
            return Ok(Answer::No);
        };
        let (now_ms, expires_ms) = (store.now_ms(), expiry.millis());
        if context.out.json {
            let ttl_ms = expires_ms.map(|end| end.saturating_sub(now_ms).max(0));
            let mut object = Object::new();
            object.bytes("key", &key).optional("ttl_ms", ttl_ms).optional("expire_ms", expires_ms);
            context.out.object(&mut object)?;
            return Ok(Answer::Yes);
        }
        let mut text = ttl_args::left(context, expiry, now_ms);
        if let (true, Some(end)) = (context.out.is_terminal, expires_ms) {
            text += &context.out.paint(DIM, format!("  until {}", times::local(end)));
        }
        context.out.line(text)?;
        Ok(Answer::Yes)
    }
}

/// Set the TTL or expiry time of a key
///
/// The value does not change. If the new expiry time is in the past, the key expires at once.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore expire [OPTIONS] <STORE> <KEY> <DURATION|--ttl <DURATION>|--at <TIME>>",
    group = ArgGroup::new("expiry").args(["duration", "ttl", "at"]).required(true),
    after_help = "Exit status 1: the key does not exist, or --only-if is not met.

Examples:
  kvstore expire app.db session:9 30m
  kvstore expire app.db offer --at 2027-01-01T00:00Z
  kvstore expire app.db session:9 2h --only-if later"
)]
pub struct ExpireArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    /// New TTL: 90s, 15m, 2h, 7d, 1h30m
    #[arg(value_name = "DURATION", value_parser = times::parse_duration)]
    duration: Option<Duration>,
    /// New TTL, as an option
    #[arg(short, long, value_name = "DURATION", value_parser = times::parse_duration)]
    ttl: Option<Duration>,
    /// New expiry time: +2h, tomorrow, 06:00, 2027-01-01T00:00Z, "2027-01-01 12:00", @1798761600
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    at: Option<Moment>,
    /// Only if this condition holds
    #[arg(long, value_enum, value_name = "CONDITION")]
    only_if: Option<OnlyIf>,
    #[command(flatten)]
    family: FamilyArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnlyIf {
    /// The key has no TTL
    NoTtl,
    /// The key has a TTL
    HasTtl,
    /// The new expiry is later than the current one (no TTL counts as latest)
    Later,
    /// The new expiry is earlier than the current one
    Earlier,
}

impl From<OnlyIf> for ExpiryCondition {
    fn from(only_if: OnlyIf) -> ExpiryCondition {
        match only_if {
            OnlyIf::NoTtl => ExpiryCondition::NoTtl,
            OnlyIf::HasTtl => ExpiryCondition::HasTtl,
            OnlyIf::Later => ExpiryCondition::Later,
            OnlyIf::Earlier => ExpiryCondition::Earlier,
        }
    }
}

impl ExpireArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let family = self.family.of(&store)?;
        let expiry = match (self.duration.or(self.ttl), self.at) {
            (Some(ttl), _) => family.expiry_after(ttl),
            (None, at) => at.map_or(Expiry::Never, |at| Expiry::At(at.millis(store.now_ms()))),
        };
        let set =
            family.set_expiry(&key, expiry, self.only_if.map_or(ExpiryCondition::Always, Into::into))?;
        let out = &mut context.out;
        if out.json {
            let mut object = Object::new();
            object.bytes("key", &key).bool("found", set.is_some()).bool("set", set == Some(true));
            out.object(object.optional("expire_ms", expiry.millis().filter(|_| set == Some(true))))?;
        } else if out.is_terminal {
            match (set, expiry.millis()) {
                (None, _) => out.line("key not found")?,
                (Some(false), _) => out.line("not set: the condition of --only-if is not met")?,
                (_, Some(end)) => out.line(format!("expires {}", times::local(end)))?,
                _ => {}
            }
        }
        Ok(Answer::from_bool(set == Some(true)))
    }
}

/// Remove the TTL of a key, so that it never expires
#[derive(Debug, Args)]
#[command(after_help = "Exit status 1: the key does not exist. A key without a TTL is no error.")]
pub struct PersistArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl PersistArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let had_ttl = self.family.of(&store)?.persist(&key)?;
        let out = &mut context.out;
        if out.json {
            let mut object = Object::new();
            object.bytes("key", &key).bool("found", had_ttl.is_some());
            out.object(object.bool("had_ttl", had_ttl == Some(true)))?;
        } else if out.is_terminal {
            out.line(match had_ttl {
                None => "key not found",
                Some(true) => "TTL removed; the key never expires",
                Some(false) => "the key had no TTL",
            })?;
        }
        Ok(Answer::from_bool(had_ttl.is_some()))
    }
}

/// Set a new TTL on keys, by name or by range
///
/// Without --ttl, --at or --no-ttl, sets the family's default TTL. Named keys are changed in one
/// transaction. A range is changed in transactions of at most 1024 keys, between which other
/// processes can write and Ctrl-C stops. Prints the number of changed keys.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore touch [OPTIONS] <STORE> <KEY...|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>",
    after_help = "Exit status 1: none of the keys existed, or --only-if was met by none.

Examples:
  kvstore touch app.db session:9 session:10 --ttl 30m
  kvstore touch app.db session:9 -f sessions            by the family's default TTL
  kvstore touch app.db --prefix cart: --ttl 2h
  kvstore touch app.db --all -f sessions --only-if no-ttl --yes"
)]
pub struct TouchArgs {
    #[command(flatten)]
    store: StoreFirst,
    #[command(flatten)]
    many: ManyArgs,
    /// Only keys for which this condition holds
    #[arg(long, value_enum, value_name = "CONDITION", help_heading = "Key selection")]
    only_if: Option<OnlyIf>,
    #[command(flatten)]
    family: FamilyArgs,
    #[command(flatten)]
    life: ExpiryArgs,
}

impl TouchArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let keys = self.many.keys(context.form)?;
        let range = self.many.range(context.form)?;
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let family = self.family.of(&store)?;
        let expiry = match (self.life.expiry(&store), family.default_ttl()?) {
            (Some(expiry), _) => expiry,
            (None, Some(ttl)) => family.expiry_after(ttl),
            (None, None) => {
                return usage(format!(
                    "family \"{}\" has no default TTL: give --ttl, --at or --no-ttl",
                    family.name()
                ));
            }
        };
        let touched = match range {
            None => self.touch(&store, &family, &keys, expiry)?,
            Some(range) => {
                let whose = match self.many.is_all() {
                    true => format!("all keys of family \"{}\"", family.name()),
                    false => format!("the keys in that range of family \"{}\"", family.name()),
                };
                let end = match expiry.millis() {
                    Some(end) => format!("to {}", times::local(end)),
                    None => "to never".to_owned(),
                };
                let only = self.only_if.map_or("", |_| " that meet --only-if");
                if !confirm(&format!("This sets the expiry of {whose}{only} {end}"), context.yes)? {
                    return Ok(Answer::No);
                }
                self.touch_range(&store, &family, &range, expiry)?
            }
        };
        let out = &mut context.out;
        if out.json {
            out.object(Object::new().number("touched", touched).optional("expire_ms", expiry.millis()))?;
        } else if out.is_terminal {
            out.line(format!("{} changed", output::keys(touched)))?;
        } else {
            out.line(touched.to_string())?;
        }
        Ok(Answer::from_bool(touched > 0))
    }

    /// Sets the expiry of those `keys` that exist and meet `--only-if`, in one transaction. Returns
    /// the number of keys changed.
    fn touch(&self, store: &Store, family: &Family, keys: &[Vec<u8>], expiry: Expiry) -> Result<u64> {
        let condition = self.only_if.map_or(ExpiryCondition::Always, Into::into);
        Ok(store.transaction(|_| {
            keys.iter().try_fold(0, |touched, key| {
                let set = family.set_expiry(key, expiry, condition)?;
                Ok::<u64, kvstore::Error>(touched + u64::from(set == Some(true)))
            })
        })?)
    }

    fn touch_range(&self, store: &Store, family: &Family, range: &KeyRange, expiry: Expiry) -> Result<u64> {
        let interrupt = Interrupt::watch()?;
        let mut progress = Progress::new("touching", None);
        let (mut left, mut touched) = (range.clone(), 0);
        while !interrupt.came() {
            let keys = some_keys(family, &left)?;
            let Some(last) = keys.last() else { return Ok(touched) };
            left = KeyRange::new(Bound::Excluded(last.clone()), range.upper().map(<[u8]>::to_vec));
            touched += self.touch(store, family, &keys, expiry)?;
            progress.set(touched);
        }
        drop(progress);
        refused(format!(
            "stopped after changing {}: run the same command again to continue",
            output::keys(touched)
        ))
    }
}

/// Maximum number of keys of a range whose expiry `touch` sets in one transaction.
const KEYS_PER_STEP: usize = 1024;
/// Total length of the keys, in bytes, from which `touch` adds no more keys to a transaction.
const BYTES_PER_STEP: usize = 1 << 20;

/// Returns the first keys of a range: as many as `touch` changes in one transaction.
fn some_keys(family: &Family, range: &KeyRange) -> Result<Vec<Vec<u8>>> {
    let mut cursor = family.cursor(range.clone(), Direction::Forward).keys_only();
    let (mut keys, mut bytes) = (Vec::new(), 0);
    cursor.first()?;
    while keys.len() < KEYS_PER_STEP && bytes < BYTES_PER_STEP {
        let fetched = cursor.fetch(KEYS_PER_STEP - keys.len())?;
        if fetched.len() == 0 {
            break;
        }
        for entry in fetched {
            bytes += entry.key.len();
            keys.push(entry.key.to_vec());
        }
    }
    Ok(keys)
}

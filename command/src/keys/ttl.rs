//! `ttl`, `expire`, `persist` and `touch`.

use std::ops::Bound;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use kvstore::{Direction, Expiry, ExpiryCondition, Family, KeyRange, Store};

use crate::cli::Context;
use crate::confirm::confirm;
use crate::failure::{Answer, Result, refused, usage};
use crate::json::Object;
use crate::life::{self, LifeArgs};
use crate::output::{self, DIM};
use crate::place::{FamilyArgs, For, StoreFirst};
use crate::progress::{Interrupt, Progress};
use crate::range::ManyArgs;
use crate::times::{self, Moment};

/// How long a key has still to live
///
/// "never" for a key without a TTL. Piped, the time is in milliseconds.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1: there is no such key, or it has expired.

Examples:
  kvstore ttl app.db otp:17
  kvstore ttl app.db otp:17 --json | jq .expire_ms")]
pub struct TtlArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl TtlArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(For::Looking, &context.secrets)?;
        let Some(expiry) = self.family.of(&store)?.expiry(&key)? else {
            output::note("there is no such key");
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
        let mut text = life::left(context, expiry, now_ms);
        if let (true, Some(end)) = (context.out.is_terminal, expires_ms) {
            text += &context.out.paint(DIM, format!("  until {}", times::local(end)));
        }
        context.out.line(text)?;
        Ok(Answer::Yes)
    }
}

/// Give a key another end of life
///
/// Its value is not touched. If the new end has come already, the key is gone at once.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore expire [OPTIONS] <STORE> <KEY> <DURATION|--at <TIME>>",
    group = ArgGroup::new("end").args(["ttl", "at"]).required(true),
    after_help = "Exit code 1: there is no such key, or --only-if does not hold.

Examples:
  kvstore expire app.db session:9 30m
  kvstore expire app.db offer --at 2027-01-01T00:00Z
  kvstore expire app.db session:9 2h --only-if later"
)]
pub struct ExpireArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    /// How long it lives from now on: 90s, 15m, 2h, 7d, 1h30m
    #[arg(value_name = "DURATION", value_parser = times::parse_duration)]
    ttl: Option<Duration>,
    /// It lives until then: 2027-01-01T00:00Z, "2027-01-01 12:00", +2h, @1798761600
    #[arg(long, value_name = "TIME", value_parser = times::parse_moment, allow_hyphen_values = true)]
    at: Option<Moment>,
    /// Only if this holds
    #[arg(long, value_enum, value_name = "CONDITION")]
    only_if: Option<OnlyIf>,
    #[command(flatten)]
    family: FamilyArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnlyIf {
    /// It has no TTL
    NoTtl,
    /// It has one
    HasTtl,
    /// The new end is later than the old one (never is later than any)
    Later,
    /// The new end is earlier
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
        let store = self.store.open(For::Writing, &context.secrets)?;
        let family = self.family.of(&store)?;
        let expiry = match (self.ttl, self.at) {
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
                (None, _) => out.line("there is no such key")?,
                (Some(false), _) => out.line("not set: --only-if does not hold")?,
                (_, Some(end)) => out.line(format!("until {}", times::local(end)))?,
                _ => {}
            }
        }
        Ok(Answer::from_bool(set == Some(true)))
    }
}

/// Let a key live for ever
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1: there is no such key. One that has no TTL is as it was asked for: 0.")]
pub struct PersistArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl PersistArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(For::Writing, &context.secrets)?;
        let had_ttl = self.family.of(&store)?.persist(&key)?;
        let out = &mut context.out;
        if out.json {
            let mut object = Object::new();
            object.bytes("key", &key).bool("found", had_ttl.is_some());
            out.object(object.bool("had_ttl", had_ttl == Some(true)))?;
        } else if out.is_terminal {
            out.line(match had_ttl {
                None => "there is no such key",
                Some(true) => "it lives for ever now",
                Some(false) => "it had no TTL",
            })?;
        }
        Ok(Answer::from_bool(had_ttl.is_some()))
    }
}

/// Let keys live longer: a new TTL for each
///
/// What is said, or else the family's default TTL. Keys by name go in one transaction. A range goes in steps of at most
/// 1024 keys, between which others can write; Ctrl-C stops between two. Prints how many keys got the new end.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore touch [OPTIONS] <STORE> <KEY...|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>",
    after_help = "Exit code 1: none of the keys was there, or --only-if holds for none.

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
    /// Only those for which this holds
    #[arg(long, value_enum, value_name = "CONDITION", help_heading = "Which keys")]
    only_if: Option<OnlyIf>,
    #[command(flatten)]
    family: FamilyArgs,
    #[command(flatten)]
    life: LifeArgs,
}

impl TouchArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let keys = self.many.keys(context.form)?;
        let range = self.many.range(context.form)?;
        let store = self.store.open(For::Writing, &context.secrets)?;
        let family = self.family.of(&store)?;
        let expiry = match (self.life.expiry(&store), family.default_ttl()?) {
            (Some(expiry), _) => expiry,
            (None, Some(ttl)) => family.expiry_after(ttl),
            (None, None) => {
                return usage(format!("family \"{}\" has no default TTL: say --ttl or --at", family.name()));
            }
        };
        let touched = match range {
            None => self.touch(&store, &family, &keys, expiry)?,
            Some(range) => {
                let whose = match self.many.is_all() {
                    true => format!("All keys of family \"{}\"", family.name()),
                    false => format!("The keys of that range of family \"{}\"", family.name()),
                };
                let end = match expiry.millis() {
                    Some(end) => format!("live until {} from now on", times::local(end)),
                    None => "live for ever from now on".to_owned(),
                };
                let only = self.only_if.map_or("", |_| " for which --only-if holds");
                if !confirm(&format!("{whose}{only} {end}"), context.yes)? {
                    return Ok(Answer::No);
                }
                self.touch_range(&store, &family, &range, expiry)?
            }
        };
        let out = &mut context.out;
        if out.json {
            out.object(Object::new().number("touched", touched).optional("expire_ms", expiry.millis()))?;
        } else if out.is_terminal {
            out.line(format!("{} touched", output::keys(touched)))?;
        } else {
            out.line(touched.to_string())?;
        }
        Ok(Answer::from_bool(touched > 0))
    }

    /// Gives these keys the end, in one transaction; how many got it.
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
        refused(format!("stopped: {} touched so far; the same command goes on", output::keys(touched)))
    }
}

/// Keys that one transaction touches of a range; fewer if they are long.
const KEYS_PER_STEP: usize = 1024;
const BYTES_PER_STEP: usize = 1 << 20;

/// The first keys of a range.
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

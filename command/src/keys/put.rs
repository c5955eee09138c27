//! `put`, `incr` and `cas`.

use std::io::Read as _;

use clap::Args;
use kvstore::{Expiry, Family, PutOptions, Store};

use crate::cli::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::json::Object;
use crate::life::LifeArgs;
use crate::output::note;
use crate::place::{FamilyArgs, For, StoreFirst};
use crate::secret::Secrets;

/// Write a value under a key
///
/// The store is made if it is not there. Without --ttl, --at or --no-ttl the family's default TTL holds; a key that was
/// there loses the TTL it had, unless --keep-ttl is given.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 1: nothing was written, because of --if-absent or --if-present, or there is no such family.

Examples:
  kvstore put app.db user:1 Ada
  kvstore put app.db avatar:1 - < avatar.png
  kvstore put app.db otp:17 123456 --ttl 5m -f sessions --create-family
  kvstore put app.db lock:job \"$HOSTNAME\" --if-absent --ttl 30s || exit"
)]
pub struct PutArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    /// The value; "-" for standard input, byte by byte
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    family: WrittenFamily,
    #[command(flatten)]
    life: LifeArgs,
    /// A key that is there keeps the TTL it has; another one gets what is said beside this
    #[arg(long, help_heading = "How long it lives")]
    keep_ttl: bool,
    /// Only if there is no such key, or it has expired
    #[arg(long, conflicts_with = "if_present")]
    if_absent: bool,
    /// Only if the key is there, and alive
    #[arg(long)]
    if_present: bool,
}

/// A family that may be made on the way.
#[derive(Debug, Args)]
struct WrittenFamily {
    #[command(flatten)]
    family: FamilyArgs,
    /// Make the family if it is not there
    #[arg(long)]
    create_family: bool,
}

impl WrittenFamily {
    /// Opens the store, making it if need be; but not if it is for a family that would not be there.
    fn open(&self, store: &StoreFirst, secrets: &Secrets) -> Result<(Store, Family)> {
        let making = self.create_family || self.family.family == "default";
        let store = store.open(if making { For::Making } else { For::Writing }, secrets)?;
        let family = match self.create_family {
            true => store.get_or_create_family(&self.family.family)?,
            false => self.family.of(&store).map_err(|failure| match failure {
                Failure::Missing(text) => Failure::Missing(format!("{text}; --create-family makes it")),
                failure => failure,
            })?,
        };
        Ok((store, family))
    }
}

/// The value that a word means.
fn value(context: &Context, word: &str) -> Result<Vec<u8>> {
    if word != "-" {
        return context.form.parse(word, "value");
    }
    context.take_stdin("the value")?;
    let mut value = Vec::new();
    let most = kvstore::MAX_VALUE_SIZE as u64;
    std::io::stdin().lock().take(most + 1).read_to_end(&mut value)?;
    if value.len() as u64 > most {
        return refused(format!("there is more on standard input than a value can have, {most} bytes"));
    }
    Ok(value)
}

/// Says whether it was written.
fn report(context: &mut Context, key: &[u8], written: bool, why_not: &str) -> Result {
    let out = &mut context.out;
    if out.json {
        out.object(Object::new().bytes("key", key).bool("written", written))?;
    } else if out.is_terminal && !written {
        out.line(format!("not written: {why_not}"))?;
    }
    Ok(Answer::from_bool(written))
}

impl PutArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let value = value(context, &self.value)?;
        let (store, family) = self.family.open(&self.store, &context.secrets)?;
        let mut options = match self.life.expiry(&store) {
            Some(expiry) => PutOptions::new().expiry(expiry),
            None => PutOptions::new().use_default_ttl(),
        };
        if self.keep_ttl {
            options = options.keep_ttl();
        }
        if self.if_absent {
            options = options.if_absent();
        } else if self.if_present {
            options = options.if_present();
        }
        let written = family.put_with_options(&key, &value, &options)?;
        if let (true, Some(Expiry::At(end))) = (written && !self.keep_ttl, self.life.expiry(&store))
            && end <= store.now_ms()
        {
            note("that end has come already: nobody will see the key");
        }
        report(
            context,
            &key,
            written,
            if self.if_absent { "the key is there" } else { "there is no such key" },
        )
    }
}

/// Add to the number under a key, and print the sum
///
/// The number is kept as decimal text; a key that is not there counts as 0. The store is made if it is not there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore incr app.db hits
  kvstore incr app.db stock:7 -3
  kvstore incr app.db rate:10.0.0.1 --ttl 1m    the first one begins the minute")]
pub struct IncrArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    /// How much; may be less than 0
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    by: i64,
    #[command(flatten)]
    family: WrittenFamily,
    /// How long it lives if it is new; one that is there keeps its TTL
    #[arg(short, long, value_name = "DURATION", value_parser = crate::times::parse_ttl)]
    ttl: Option<std::time::Duration>,
}

impl IncrArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let (_store, family) = self.family.open(&self.store, &context.secrets)?;
        let expiry = self.ttl.map_or(Expiry::Never, |ttl| family.expiry_after(ttl));
        let sum = family.increment(&key, self.by, expiry)?;
        let out = &mut context.out;
        match out.json {
            true => out.object(Object::new().bytes("key", &key).number("value", sum))?,
            false => out.line(sum.to_string())?,
        }
        Ok(Answer::Yes)
    }
}

/// Write a value only if the one that is there is as expected
///
/// In one transaction: nobody comes between the look and the write.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore cas [OPTIONS] <STORE> <KEY> <EXPECTED> <VALUE>\n       kvstore cas [OPTIONS] --absent <STORE> <KEY> <VALUE>",
    after_help = "Exit code 1: it is another one, or there is none; nothing was written.

Examples:
  kvstore cas app.db leader node1 node2
  kvstore cas app.db leader --absent node1 --ttl 30s"
)]
pub struct CasArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// The key
    key: String,
    /// The value that must be there; left out with --absent
    #[arg(value_name = "EXPECTED", allow_hyphen_values = true)]
    first: String,
    /// The new value; "-" for standard input, byte by byte
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    second: Option<String>,
    #[command(flatten)]
    family: WrittenFamily,
    /// There must be no such key
    #[arg(long)]
    absent: bool,
    #[command(flatten)]
    life: LifeArgs,
    /// The key keeps the TTL it has
    #[arg(long, help_heading = "How long it lives", conflicts_with = "absent")]
    keep_ttl: bool,
}

impl CasArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let (expected, new) = match (&self.second, self.absent) {
            (None, true) => (None, &self.first),
            (Some(new), false) => (Some(context.form.parse(&self.first, "expected value")?), new),
            (Some(_), true) => return usage("with --absent there is one value, the new one"),
            (None, false) => {
                return usage(
                    "give two values: what must be there, and the new one; or --absent and the new one",
                );
            }
        };
        let value = value(context, new)?;
        // What is not there cannot be as expected.
        let (store, family) = match expected {
            Some(_) => {
                let store = self.store.open(For::Writing, &context.secrets)?;
                let family = self.family.family.of(&store)?;
                (store, family)
            }
            None => self.family.open(&self.store, &context.secrets)?,
        };
        let mut options = match self.life.expiry(&store) {
            Some(expiry) => PutOptions::new().expiry(expiry),
            None => PutOptions::new().use_default_ttl(),
        };
        if self.keep_ttl {
            options = options.keep_ttl();
        }
        let written = match &expected {
            None => family.put_with_options(&key, &value, &options.if_absent())?,
            Some(expected) => store.transaction(|_| {
                let is_equal = family.get_with(&key, |found, _| found == expected)? == Some(true);
                if is_equal { family.put_with_options(&key, &value, &options) } else { Ok(false) }
            })?,
        };
        let why_not =
            if self.absent { "the key is there" } else { "the value is another one, or there is none" };
        report(context, &key, written, why_not)
    }
}

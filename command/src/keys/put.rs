//! `put`, `incr` and `cas`.

use std::io::Read as _;

use clap::Args;
use kvstore::{Expiry, Family, PutOptions, Store};

use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::json::Object;
use crate::output::note;
use crate::secret::Secrets;
use crate::store_arg::{FamilyArgs, MakeArgs, Purpose, StoreFirst};
use crate::ttl_args::ExpiryArgs;

/// Store a value under a key
///
/// Creates the store if it does not exist. Without --ttl, --at or --no-ttl, the family's default
/// TTL applies. A value that is overwritten loses its TTL, unless --keep-ttl is given.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status 1: --if-absent or --if-present was not met, or the family does not exist.

Examples:
  kvstore put app.db user:1 Ada
  kvstore put app.db avatar:1 - < avatar.png
  kvstore put app.db otp:17 123456 --ttl 5m -f sessions --create-family
  kvstore put app.db lock:job \"$HOSTNAME\" --if-absent --ttl 30s || exit"
)]
pub struct PutArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    /// Value; "-" reads it from standard input, unchanged
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    family: WrittenFamily,
    #[command(flatten)]
    life: ExpiryArgs,
    /// Keep the TTL of an existing key; the other options apply to a new one
    #[arg(long, help_heading = "Expiry")]
    keep_ttl: bool,
    /// Only if the key does not exist or has expired
    #[arg(long, conflicts_with = "if_present")]
    if_absent: bool,
    /// Only if the key exists and has not expired
    #[arg(long)]
    if_present: bool,
}

/// The family to write, which may be created.
#[derive(Debug, Args)]
struct WrittenFamily {
    #[command(flatten)]
    family: FamilyArgs,
    /// Create the family if it does not exist
    #[arg(long)]
    create_family: bool,
    #[command(flatten)]
    make: MakeArgs,
}

impl WrittenFamily {
    /// Opens the store and the family. Creates a missing store only if the family will exist in it:
    /// the default family, or any family with `--create-family`.
    fn open(&self, store: &StoreFirst, secrets: &Secrets) -> Result<(Store, Family)> {
        let making = self.create_family || self.family.family == "default";
        let store = match making {
            true => self.make.open(&store.path()?, &store.open, secrets)?,
            false => store.open(Purpose::Write, secrets)?,
        };
        let family = match self.create_family {
            true => store.get_or_create_family(&self.family.family)?,
            false => self.family.of(&store).map_err(|failure| match failure {
                Failure::Missing(text) => Failure::Missing(format!("{text}; --create-family creates it")),
                failure => failure,
            })?,
        };
        Ok((store, family))
    }
}

/// Decodes a value argument; for `-`, reads the value from standard input, unchanged.
fn value(context: &Context, word: &str) -> Result<Vec<u8>> {
    if word != "-" {
        return context.form.parse(word, "value");
    }
    context.take_stdin("the value")?;
    let mut value = Vec::new();
    let most = kvstore::MAX_VALUE_SIZE as u64;
    std::io::stdin().lock().take(most + 1).read_to_end(&mut value)?;
    if value.len() as u64 > most {
        return refused(format!("standard input has more than {most} bytes, the maximum size of a value"));
    }
    Ok(value)
}

/// Prints whether the value was written. With `--json`, always does; on a terminal, only if it was
/// not written, with the reason `why_not`.
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
        let mut options = PutOptions::new().expiry(self.life.expiry(&store));
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
            note("warning: expiry is in the past; the key is already expired");
        }
        report(
            context,
            &key,
            written,
            if self.if_absent { "the key exists" } else { "the key does not exist" },
        )
    }
}

/// Add to the number stored under a key and print the sum
///
/// The number is decimal text. A missing key counts as 0, and gets the TTL or expiry time given, or
/// the family's default TTL; an existing key keeps its own. Creates the store if it does not exist.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore incr app.db hits
  kvstore incr app.db stock:7 -3
    kvstore incr app.db rate:10.0.0.1 --ttl 1m    counts per minute: the TTL starts with the first call")]
pub struct IncrArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    /// Amount to add; may be negative
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    by: i64,
    #[command(flatten)]
    family: WrittenFamily,
    #[command(flatten)]
    life: ExpiryArgs,
}

impl IncrArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let (store, family) = self.family.open(&self.store, &context.secrets)?;
        let sum = family.increment(&key, self.by, self.life.expiry(&store))?;
        let out = &mut context.out;
        match out.json {
            true => out.object(Object::new().bytes("key", &key).number("value", sum))?,
            false => out.line(sum.to_string())?,
        }
        Ok(Answer::Yes)
    }
}

/// Replace a value if the current value is the expected one
///
/// Compares and writes in one transaction.
#[derive(Debug, Args)]
#[command(
    override_usage = "kvstore cas [OPTIONS] <STORE> <KEY> <EXPECTED> <VALUE>\n       kvstore cas [OPTIONS] --absent <STORE> <KEY> <VALUE>",
    after_help = "Exit status 1: the value differs, or the key does not exist; nothing was written.

Examples:
  kvstore cas app.db leader node1 node2
  kvstore cas app.db leader --absent node1 --ttl 30s"
)]
pub struct CasArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    /// Expected current value; omitted with --absent
    #[arg(value_name = "EXPECTED", allow_hyphen_values = true)]
    first: String,
    /// New value; "-" reads it from standard input, unchanged
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    second: Option<String>,
    #[command(flatten)]
    family: WrittenFamily,
    /// Expect that the key does not exist
    #[arg(long)]
    absent: bool,
    #[command(flatten)]
    life: ExpiryArgs,
    /// Keep the TTL of the key
    #[arg(long, help_heading = "Expiry", conflicts_with = "absent")]
    keep_ttl: bool,
}

impl CasArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let (expected, new) = match (&self.second, self.absent) {
            (None, true) => (None, &self.first),
            (Some(new), false) => (Some(context.form.parse(&self.first, "expected value")?), new),
            (Some(_), true) => {
                return usage("--absent takes one value, the new one: leave out the expected value");
            }
            (None, false) => {
                return usage(
                    "two values are required: the expected value and the new one; with --absent only the new one",
                );
            }
        };
        let value = value(context, new)?;
        // With an expected value, no store or family is created: the comparison with a missing key
        // would fail.
        let (store, family) = match expected {
            Some(_) => {
                let store = self.store.open(Purpose::Write, &context.secrets)?;
                let family = self.family.family.of(&store)?;
                (store, family)
            }
            None => self.family.open(&self.store, &context.secrets)?,
        };
        let mut options = PutOptions::new().expiry(self.life.expiry(&store));
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
            if self.absent { "the key exists" } else { "the value differs, or the key does not exist" };
        report(context, &key, written, why_not)
    }
}

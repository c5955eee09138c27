//! `get` and `exists`.

use clap::Args;

use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::note;
use crate::store_arg::{FamilyArgs, Purpose, StoreFirst};

/// Print the value of a key
///
/// On a terminal, special characters are escaped and a newline is added. In a pipe, the bytes are
/// printed unchanged.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 1: the key does not exist or has expired.

Examples:
  kvstore get app.db user:1
  kvstore get app.db avatar:1 > avatar.png
  kvstore get app.db user:1 -f sessions --json")]
pub struct GetArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl GetArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let Some((value, ttl)) = self.family.of(&store)?.get_with_ttl(&key)? else {
            note("key not found");
            return Ok(Answer::No);
        };
        let out = &mut context.out;
        if out.json {
            let ttl_ms = match ttl {
                kvstore::Ttl::Remaining(left) => i64::try_from(left.as_millis()).ok(),
                _ => None,
            };
            out.object(Object::new().bytes("key", &key).bytes("value", &value).optional("ttl_ms", ttl_ms))?;
        } else if out.is_terminal || context.form != crate::bytes::Form::Text {
            out.line(context.form.show(&value))?;
        } else {
            out.bytes(&value)?;
        }
        Ok(Answer::Yes)
    }
}

/// Test whether a key exists: exit status 0 or 1
///
/// An expired key does not exist. On a terminal, also prints "yes" or "no".
#[derive(Debug, Args)]
pub struct ExistsArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Key
    key: String,
    #[command(flatten)]
    family: FamilyArgs,
}

impl ExistsArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let key = context.form.parse(&self.key, "key")?;
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let exists = self.family.of(&store)?.exists(&key)?;
        let out = &mut context.out;
        if out.json {
            out.object(Object::new().bytes("key", &key).bool("exists", exists))?;
        } else if out.is_terminal {
            out.line(if exists { "yes" } else { "no" })?;
        }
        Ok(Answer::from_bool(exists))
    }
}

//! `families`: list, create, configure and drop families.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use kvstore::{Family, FamilyInfo, Store};

use super::table;
use crate::bytes::Form;
use crate::confirm::{asks, confirm};
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, usage};
use crate::json::Object;
use crate::output;
use crate::store_arg::{self, DEFAULT, MakeArgs, Purpose, StoreArgs};
use crate::times;

/// List, create, configure and drop families
///
/// A family is a separate key space in a store (also called column family); every store has the
/// family "default". In a pipe, the list has tab-separated fields: name, live keys, default TTL in
/// milliseconds or "none", write tracking "on" or "off", creation time in milliseconds since 1970.
/// If the store's file is named like a command below, write ./create.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.global(true)), after_help = "Examples:
  kvstore families app.db
  kvstore families app.db create sessions --ttl 30m
  kvstore families app.db set sessions --ttl none --track on
  kvstore families app.db drop sessions")]
pub struct FamiliesArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a family, and the store if it does not exist
    #[command(override_usage = "kvstore families [STORE] create [OPTIONS] <NAME>")]
    Create {
        /// Name of the family
        name: String,
        /// Default TTL: given to keys that are written without one
        #[arg(short, long, value_name = "DURATION", value_parser = times::parse_ttl)]
        ttl: Option<Duration>,
        /// Track the write time of keys, as "kvstore sweep" needs
        #[arg(long)]
        track: bool,
        #[command(flatten)]
        make: MakeArgs,
    },
    /// Change the settings of a family
    #[command(
        override_usage = "kvstore families [STORE] set [OPTIONS] <NAME> <--ttl <DURATION>|--track <on|off>>",
        arg_required_else_help = true,
        group = ArgGroup::new("setting").args(["ttl", "track"]).required(true).multiple(true)
    )]
    Set {
        /// Name of the family
        name: String,
        /// New default TTL, for later writes; "none" removes it
        #[arg(short, long, value_name = "DURATION", value_parser = parse_default_ttl)]
        ttl: Option<DefaultTtl>,
        /// Track the write time of keys. Rewrites every row: "on" sets all write times to now,
        /// "off" deletes them
        #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
        track: Option<Switch>,
    },
    /// Drop a family and all its keys
    #[command(override_usage = "kvstore families [STORE] drop [OPTIONS] <NAME>")]
    Drop {
        /// Name of the family
        name: String,
    },
}

#[derive(Debug, Clone, Copy)]
struct DefaultTtl(Option<Duration>);

fn parse_default_ttl(word: &str) -> std::result::Result<DefaultTtl, String> {
    match word {
        "none" => Ok(DefaultTtl(None)),
        _ => times::parse_ttl(word).map(|ttl| DefaultTtl(Some(ttl))).map_err(|e| format!("{e}, or none")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl FamiliesArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        match &self.action {
            None => self.list(context),
            Some(Action::Create { name, ttl, track, make }) => self.create(context, name, *ttl, *track, make),
            Some(Action::Set { name, ttl, track }) => self.set(context, name, *ttl, *track),
            Some(Action::Drop { name }) => self.drop(context, name),
        }
    }

    fn list(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let for_people = context.out.is_for_people();
        let mut rows = Vec::new();
        let mut families = store.info()?.families;
        families.sort_by_key(|family| family.name != DEFAULT); // a stable sort
        for info in families {
            let live = store_arg::family(&store, &info.name)?.count_live()?;
            if for_people {
                rows.push(columns(&info, live));
            } else if context.out.json {
                context.out.object(&mut object(&info, live))?;
            } else {
                context.out.line(line(&info, live))?;
            }
        }
        if for_people {
            let names = ["FAMILY", "KEYS", "DEFAULT TTL", "TRACKING", "CREATED"];
            context.out.line(table(&names, &[1, 2], rows))?;
        }
        Ok(Answer::Yes)
    }

    fn create(
        &self,
        context: &mut Context,
        name: &str,
        ttl: Option<Duration>,
        track: bool,
        make: &MakeArgs,
    ) -> Result {
        let store = make.open(&self.store.path()?, &self.store.open, &context.secrets)?;
        if store.family(name).is_ok() {
            return Err(Failure::Missing(format!(
                "family \"{name}\" exists already: use \"set\" to change its settings"
            )));
        }
        store.transaction(|_| {
            let family = store.create_family(name)?;
            if ttl.is_some() {
                family.set_default_ttl(ttl)?;
            }
            if track { family.set_write_tracking(true) } else { Ok(()) }
        })?;
        report(context, &store, name)
    }

    fn set(
        &self,
        context: &mut Context,
        name: &str,
        ttl: Option<DefaultTtl>,
        track: Option<Switch>,
    ) -> Result {
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        let family: Family = store_arg::family(&store, name)?;
        store.transaction(|_| {
            if let Some(DefaultTtl(ttl)) = ttl {
                family.set_default_ttl(ttl)?;
            }
            track.map_or(Ok(()), |track| family.set_write_tracking(track == Switch::On))
        })?;
        report(context, &store, name)
    }

    fn drop(&self, context: &mut Context, name: &str) -> Result {
        if name == DEFAULT {
            let path = store_arg::shown(&self.store.path()?);
            return usage(format!(
                "the family \"default\" cannot be dropped: \"kvstore del {path} --all\" removes its keys"
            ));
        }
        let store = self.store.open(Purpose::Write, &context.secrets)?;
        // A family with an open handle cannot be dropped, so this handle must not outlive the
        // count.
        let keys = match asks(context.yes) {
            true => store_arg::family(&store, name)?.count_live()?,
            false => 0,
        };
        let what = format!("This drops family \"{name}\" with {}", output::keys(keys));
        if !confirm(&what, context.yes)? {
            return Ok(Answer::No);
        }
        store.drop_family(name)?;
        if context.out.json {
            context.out.object(Object::new().text("family", name).bool("dropped", true))?;
        }
        Ok(Answer::Yes)
    }
}

/// Prints the settings of a family with `--json`; otherwise prints nothing.
fn report(context: &mut Context, store: &Store, name: &str) -> Result {
    if context.out.json {
        let family = store_arg::family(store, name)?;
        let ttl = family.default_ttl()?.map(|ttl| ttl.as_millis() as i64);
        let mut object = Object::new();
        object.text("family", name).optional("default_ttl_ms", ttl);
        context.out.object(object.bool("track_writes", family.tracks_writes()?))?;
    }
    Ok(Answer::Yes)
}

fn ttl_ms(info: &FamilyInfo) -> Option<u64> {
    info.default_ttl.and_then(|ttl| u64::try_from(ttl.as_millis()).ok())
}

fn object(info: &FamilyInfo, live: u64) -> Object {
    let mut object = Object::new();
    object.text("family", &info.name).number("live", live).optional("default_ttl_ms", ttl_ms(info));
    object.bool("track_writes", info.tracks_writes).optional("created_ms", info.created_ms);
    object
}

fn line(info: &FamilyInfo, live: u64) -> String {
    let ttl = ttl_ms(info).map_or("none".to_owned(), |ms| ms.to_string());
    let made = info.created_ms.map(|ms| ms.to_string()).unwrap_or_default();
    let tracking = if info.tracks_writes { "on" } else { "off" };
    format!("{}\t{live}\t{ttl}\t{tracking}\t{made}", Form::Text.show(info.name.as_bytes()))
}

fn columns(info: &FamilyInfo, live: u64) -> Vec<String> {
    vec![
        Form::Text.show(info.name.as_bytes()).into_owned(),
        output::count(live),
        ttl_ms(info).map(times::duration).unwrap_or_default(),
        if info.tracks_writes { "on" } else { "" }.to_owned(),
        info.created_ms.map(times::local).unwrap_or_default(),
    ]
}

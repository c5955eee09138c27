//! `families`: the list, and making, setting, dropping them.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use kvstore::{Family, FamilyInfo, Store};

use super::table;
use crate::bytes::Form;
use crate::cli::Context;
use crate::confirm::{asks, confirm};
use crate::failure::{Answer, Failure, Result, usage};
use crate::json::Object;
use crate::output;
use crate::place::{self, DEFAULT, For, StoreArgs};
use crate::times;

/// List families; create, set and drop them
///
/// Piped, with tabs: name, live keys, default TTL in milliseconds or "none", "on" or "off" for the tracking of write
/// times, when it was made in milliseconds since 1970. A store whose file has the name of one of the commands below is
/// given as ./create.
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
    /// Make a family; the store, too, if it is not there
    #[command(override_usage = "kvstore families [STORE] create [OPTIONS] <NAME>")]
    Create {
        /// Its name
        name: String,
        /// The TTL that plain writes give
        #[arg(short, long, value_name = "DURATION", value_parser = times::parse_ttl)]
        ttl: Option<Duration>,
        /// Track when keys are written
        #[arg(long)]
        track: bool,
    },
    /// Change the settings of a family
    #[command(
        override_usage = "kvstore families [STORE] set [OPTIONS] <NAME> <--ttl <DURATION>|--track <WHETHER>>",
        arg_required_else_help = true,
        group = ArgGroup::new("setting").args(["ttl", "track"]).required(true).multiple(true)
    )]
    Set {
        /// Its name
        name: String,
        /// The TTL that plain writes give from now on; "none": they give none
        #[arg(short, long, value_name = "DURATION", value_parser = parse_default_ttl)]
        ttl: Option<DefaultTtl>,
        /// Track when keys are written. Either looks at every row: on, keys count as written now; off, all is forgotten
        #[arg(long, value_enum, value_name = "WHETHER")]
        track: Option<Switch>,
    },
    /// Drop a family with everything in it
    #[command(override_usage = "kvstore families [STORE] drop [OPTIONS] <NAME>")]
    Drop {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Clone, Copy)]
struct DefaultTtl(Option<Duration>);

fn parse_default_ttl(word: &str) -> std::result::Result<DefaultTtl, String> {
    match word {
        "none" => Ok(DefaultTtl(None)),
        _ => times::parse_ttl(word).map(|ttl| DefaultTtl(Some(ttl))).map_err(|e| format!("{e}; or none")),
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
            Some(Action::Create { name, ttl, track }) => self.create(context, name, *ttl, *track),
            Some(Action::Set { name, ttl, track }) => self.set(context, name, *ttl, *track),
            Some(Action::Drop { name }) => self.drop(context, name),
        }
    }

    fn list(&self, context: &mut Context) -> Result {
        let store = self.store.open(For::Looking, &context.secrets)?;
        let for_people = context.out.is_for_people();
        let mut rows = Vec::new();
        let mut families = store.info()?.families;
        families.sort_by_key(|family| family.name != DEFAULT); // the others stay in their order
        for info in families {
            let live = place::family(&store, &info.name)?.count_live()?;
            if for_people {
                rows.push(columns(&info, live));
            } else if context.out.json {
                context.out.object(&mut object(&info, live))?;
            } else {
                context.out.line(line(&info, live))?;
            }
        }
        if for_people {
            let names = ["FAMILY", "KEYS", "DEFAULT TTL", "TRACKING", "MADE"];
            context.out.line(table(&names, &[1, 2], rows))?;
        }
        Ok(Answer::Yes)
    }

    fn create(&self, context: &mut Context, name: &str, ttl: Option<Duration>, track: bool) -> Result {
        let store = self.store.open(For::Making, &context.secrets)?;
        if store.family(name).is_ok() {
            return Err(Failure::Missing(format!("family \"{name}\" is there already: \"set\" changes it")));
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
        let store = self.store.open(For::Writing, &context.secrets)?;
        let family: Family = place::family(&store, name)?;
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
            let path = place::shown(&self.store.path()?);
            return usage(format!(
                "every store has the family \"default\", which cannot be dropped: \"kvstore del {path} --all\" removes its keys"
            ));
        }
        let store = self.store.open(For::Writing, &context.secrets)?;
        // The handle is closed again: with one a family cannot be dropped.
        let keys = match asks(context.yes) {
            true => place::family(&store, name)?.count_live()?,
            false => 0,
        };
        let what = format!("family \"{name}\" with {} will be dropped", output::keys(keys));
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

/// Says what a family is now, to programs.
fn report(context: &mut Context, store: &Store, name: &str) -> Result {
    if context.out.json {
        let family = place::family(store, name)?;
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

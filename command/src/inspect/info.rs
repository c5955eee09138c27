//! `info`: a summary of a store.

use std::cmp::Reverse;

use clap::Args;
use kvstore::{Eviction, FamilyInfo, JournalMode, ServerInfo, Store, StoreInfo};

use super::table;
use crate::bytes::Form;
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::{BOLD, DIM, WARN, count, eviction_name, size};
use crate::progress::Spinner;
use crate::store_arg::{self, Purpose, StoreArgs};
use crate::system;
use crate::times;

/// Show format, sizes, families and key counts
///
/// Reads one snapshot. For a file: format, engine, and the space taken by rows, indexes, the WAL
/// and free pages. For a store on a server: its version, whether the connection uses TLS, and table
/// sizes. In a pipe, each line is a name and a value separated by a tab, with sizes in bytes and
/// times in milliseconds; lines about a family start with "family" and its name, lines about a
/// server with "server".
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore info app.db
  kvstore info app.db --json | jq .families[].live
  kvstore info huge.db --quick                    without key counts
  kvstore info \"postgresql://app@db/app\"          a store on a server")]
pub struct InfoArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Do not count keys, which would read all their pages
    #[arg(short, long)]
    quick: bool,
}

/// The numbers of keys of a family by state.
#[derive(Debug, Clone, Copy)]
struct Keys {
    live: u64,
    /// Keys that have expired but have not been purged.
    expired: u64,
    /// Live keys with a TTL.
    with_ttl: u64,
}

/// The data about a store that `info` prints.
struct Shown {
    info: StoreInfo,
    /// Key counts of each family, in the order of `info.families`; each is `None` with `--quick`.
    keys: Vec<Option<Keys>>,
    now_ms: i64,
    is_encrypted: bool,
}

impl InfoArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let shown = store.snapshot(|_| self.look(&store))?;
        if context.out.json {
            context.out.object(&mut shown.object())?;
        } else if context.out.is_terminal {
            shown.print(context)?;
        } else {
            for line in shown.lines() {
                context.out.line(line)?;
            }
        }
        Ok(Answer::Yes)
    }

    fn look(&self, store: &Store) -> Result<Shown> {
        let _spinner = Spinner::new("reading");
        let info = store.info()?;
        let mut keys = Vec::new();
        for FamilyInfo { name, .. } in &info.families {
            keys.push(match self.quick {
                true => None,
                false => Some(count_keys(store, name)?),
            });
        }
        let is_encrypted = store.is_encrypted()?;
        Ok(Shown { info, keys, now_ms: store.now_ms(), is_encrypted })
    }
}

fn count_keys(store: &Store, name: &str) -> Result<Keys> {
    let family = store_arg::family(store, name)?;
    let (live, all) = (family.count_live()?, family.count()?);
    let expired = all.saturating_sub(live);
    Ok(Keys { live, expired, with_ttl: family.count_with_ttl()?.saturating_sub(expired) })
}

impl Shown {
    fn mode(&self) -> &'static str {
        match self.info.journal_mode {
            Some(JournalMode::Wal) => "wal",
            Some(JournalMode::Delete) => "delete",
            _ => "other",
        }
    }

    fn path(&self) -> String {
        self.info.path.as_deref().map(system::path).unwrap_or_default()
    }

    /// Returns the families with their key counts, which are `None` with `--quick`.
    fn families(&self) -> impl Iterator<Item = (&FamilyInfo, Option<Keys>)> {
        self.info.families.iter().zip(self.keys.iter().copied())
    }

    /// Returns the sum of one kind of size over all families, in bytes. `part` returns that size of
    /// a family. The result is `None` if the sizes of a family are not known.
    fn sum(&self, part: fn(kvstore::FamilySizes) -> u64) -> Option<u64> {
        self.info.families.iter().map(|family| family.sizes.map(part)).sum()
    }

    /// Returns recommendations for the user, with the command to run if there is one.
    fn hints(&self) -> Vec<String> {
        let info = &self.info;
        let mut hints = Vec::new();
        let expired: u64 = self.families().filter_map(|(_, keys)| keys).map(|keys| keys.expired).sum();
        if expired > 0 {
            hints.push(format!("\"kvstore purge\" removes {} expired {}", count(expired), plural(expired)));
        }
        if info.server.is_some() {
            return hints; // the others are about files
        }
        // A store in use always has some free pages.
        if info.free_bytes > info.file_bytes / 8 && info.free_bytes > 16 * info.page_size {
            hints.push(format!("\"kvstore compact\" returns {} to the file system", size(info.free_bytes)));
        }
        if info.wal_pending_bytes > LONG_WAL {
            hints.push(format!(
                "the WAL has grown: {} wait for a checkpoint, which a long read transaction may be blocking",
                size(info.wal_pending_bytes)
            ));
        } else if info.wal_bytes > 2 * LONG_WAL {
            hints.push(format!(
                "the WAL file has {}, all unused: \"kvstore checkpoint\" truncates it",
                size(info.wal_bytes)
            ));
        }
        if let Some(limit) = info.size_limit
            && used(info) > limit.max_bytes / 100 * 95
        {
            hints.push(match limit.eviction {
                Eviction::None => {
                    "the store is close to its size limit, where writes fail: raise it with \"kvstore limit\""
                        .to_owned()
                }
                _ => "the store is close to its size limit, where writes evict other keys".to_owned(),
            });
        }
        if info.other_bytes.is_none() {
            hints.push(match kvstore::engine() {
                "btree" => {
                    "the sizes of tables are not known: another program has rewritten the file without auto-vacuum"
                }
                _ => "the sizes of tables are not known: this build has the sql engine and no dbstat",
            }.to_owned());
        }
        hints
    }

    fn object(&self) -> Object {
        let info = &self.info;
        let mut object = Object::new();
        object.text("path", &self.path()).number("format_version", info.format_version);
        match &info.created_by {
            Some(by) => object.text("created_by", by),
            None => object.raw("created_by", "null"),
        };
        object.text("version", kvstore::VERSION);
        match &info.server {
            Some(server) => drop(object.object("server", &mut of_server(server))),
            None => self.about_the_file(&mut object),
        }
        object.objects(
            "families",
            self.families().map(|(family, keys)| {
                let mut object = Object::new();
                object.text("family", &family.name);
                for (name, number) in self.numbers(family, keys) {
                    object.optional(name, number);
                }
                object.bool("track_writes", family.tracks_writes);
                object
            }),
        );
        object
    }

    fn about_the_file(&self, object: &mut Object) {
        object
            .text("engine", kvstore::engine())
            .text("sqlite_version", kvstore::sqlite_version())
            .text("journal_mode", self.mode())
            .bool("encrypted", self.is_encrypted);
        for (name, bytes) in self.sizes() {
            object.optional(name, bytes);
        }
        match self.info.size_limit {
            Some(limit) => object.text("eviction", eviction_name(limit.eviction)),
            None => object.raw("eviction", "null"),
        };
    }

    /// Returns the numbers of a family and their names in the output for programs (in a pipe or
    /// with `--json`); `None` if a number is not known. Leaves out sizes for a store on a server,
    /// where the size of a single family is not known.
    fn numbers(
        &self,
        family: &FamilyInfo,
        keys: Option<Keys>,
    ) -> impl Iterator<Item = (&'static str, Option<i128>)> {
        let is_in_a_file = self.info.server.is_none();
        numbers(family, keys).into_iter().filter(move |(name, _)| is_in_a_file || !name.ends_with("_bytes"))
    }

    /// Returns the sizes of the store in bytes, and their names in the output for programs (in a
    /// pipe or with `--json`); `None` if a size is not known.
    fn sizes(&self) -> [(&'static str, Option<u64>); 11] {
        let info = &self.info;
        [
            ("page_size_bytes", Some(info.page_size)),
            ("file_bytes", Some(info.file_bytes)),
            ("used_bytes", Some(used(info))),
            ("free_bytes", Some(info.free_bytes)),
            ("rows_bytes", self.sum(|sizes| sizes.rows)),
            ("large_values_bytes", self.sum(|sizes| sizes.large_values)),
            ("indexes_bytes", self.sum(|sizes| sizes.expiry_indexes + sizes.write_index)),
            ("other_bytes", info.other_bytes),
            ("wal_bytes", Some(info.wal_bytes)),
            ("wal_pending_bytes", Some(info.wal_pending_bytes)),
            ("limit_bytes", info.size_limit.map(|limit| limit.max_bytes)),
        ]
    }

    /// Returns the lines that `info` prints in a pipe: a name, a tab and a value per line. Unknown
    /// values are left out.
    fn lines(&self) -> Vec<String> {
        let info = &self.info;
        let mut lines = vec![
            format!("path\t{}", system::on_one_line(&self.path())),
            format!("format_version\t{}", info.format_version),
            format!("version\t{}", kvstore::VERSION),
        ];
        if let Some(by) = &info.created_by {
            lines.push(format!("created_by\t{}", Form::Text.show(by.as_bytes())));
        }
        match &info.server {
            Some(server) => lines.extend(lines_of_server(server)),
            None => {
                lines.extend([
                    format!("engine\t{}", kvstore::engine()),
                    format!("sqlite_version\t{}", kvstore::sqlite_version()),
                    format!("journal_mode\t{}", self.mode()),
                    format!("encrypted\t{}", if self.is_encrypted { "yes" } else { "no" }),
                ]);
                let known =
                    |(name, bytes): (&str, Option<u64>)| bytes.map(|bytes| format!("{name}\t{bytes}"));
                lines.extend(self.sizes().into_iter().filter_map(known));
            }
        }
        if let Some(limit) = info.size_limit {
            lines.push(format!("eviction\t{}", eviction_name(limit.eviction)));
        }
        for (family, keys) in self.families() {
            let name = Form::Text.show(family.name.as_bytes());
            let known = |(what, number): (&str, Option<i128>)| {
                number.map(|number| format!("family\t{name}\t{what}\t{number}"))
            };
            lines.extend(self.numbers(family, keys).filter_map(known));
            lines.push(format!(
                "family\t{name}\ttrack_writes\t{}",
                if family.tracks_writes { "on" } else { "off" }
            ));
        }
        lines
    }

    /// Prints the output of `info` on a terminal.
    fn print(&self, context: &mut Context) -> Result<()> {
        let (info, out) = (&self.info, &mut context.out);
        let title = out.paint(BOLD, system::on_one_line(&self.path()));
        out.line(title)?;
        let by = info.created_by.as_deref().map(|by| format!(", created by {by}")).unwrap_or_default();
        let format = format!("version {}{}", info.format_version, Form::Text.show(by.as_bytes()));
        let (rows, sizes) = match &info.server {
            Some(server) => {
                let mut rows = rows_of_server(server);
                rows.insert(0, ("format", format));
                let sizes = server.sizes.map(|sizes| {
                    [("rows", sizes.rows), ("indexes", sizes.indexes), ("total", sizes.total)]
                        .map(|(name, bytes)| (name, Some(bytes), String::new()))
                        .to_vec()
                });
                (rows, sizes.unwrap_or_default())
            }
            None => (vec![("format", format), self.engine_row(), self.pages_row()], self.rows_of_sizes()),
        };
        for (name, value) in rows {
            let name = out.paint(DIM, format!("{name:<14}"));
            out.line(format!("  {name}{value}"))?;
        }
        if !sizes.is_empty() {
            out.line("")?;
        }
        for (name, bytes, note) in sizes {
            if let Some(bytes) = bytes {
                let (name, note) = (out.paint(DIM, format!("{name:<14}")), out.paint(DIM, note));
                out.line(format!("  {name}{:>9}  {note}", size(bytes)).trim_end())?;
            }
        }
        out.line("")?;
        let mut names = vec!["FAMILY", "KEYS", "WITH TTL", "EXPIRED", "NEXT EXPIRY", "DEFAULT TTL"];
        names.extend(info.server.is_none().then_some("SIZE"));
        // If there are many families, only the largest are shown, so that the output fits on a
        // screen.
        let mut families: Vec<_> = self.families().collect();
        let more = families.len().saturating_sub(FAMILIES);
        if more > 0 {
            families.sort_by_key(|(family, _)| Reverse(family.sizes.map(|sizes| sizes.total())));
            families.truncate(FAMILIES);
        }
        let rows = families.into_iter().map(|(family, keys)| self.columns(family, keys));
        out.line(table(&names, &[1, 2, 3, 4, 5, 6], rows))?;
        if more > 0 {
            let more =
                out.paint(DIM, format!("and {} more: \"kvstore families\" lists all", count(more as u64)));
            out.line(more)?;
        }
        for (at, hint) in self.hints().into_iter().enumerate() {
            let hint = out.paint(WARN, hint);
            out.line(format!("{}{hint}", if at == 0 { "\n" } else { "" }))?;
        }
        Ok(())
    }

    fn columns(&self, family: &FamilyInfo, keys: Option<Keys>) -> Vec<String> {
        let number = |number: fn(Keys) -> u64| keys.map(|keys| count(number(keys))).unwrap_or_default();
        let mut columns = vec![
            Form::Text.show(family.name.as_bytes()).into_owned(),
            number(|keys| keys.live),
            number(|keys| keys.with_ttl),
            number(|keys| keys.expired),
            family.next_expiry_ms.map(|ms| times::from_now(ms, self.now_ms)).unwrap_or_default(),
            ttl_ms(family).map(times::duration).unwrap_or_default(),
        ];
        if self.info.server.is_none() {
            columns.push(family.sizes.map(|sizes| size(sizes.total())).unwrap_or_default());
        }
        columns
    }

    fn engine_row(&self) -> (&'static str, String) {
        let text = format!(
            "{}, SQLite {}, kvstore {}",
            kvstore::engine(),
            kvstore::sqlite_version(),
            kvstore::VERSION
        );
        ("engine", text)
    }

    fn pages_row(&self) -> (&'static str, String) {
        let encrypted = if self.is_encrypted { ", encrypted" } else { "" };
        ("pages", format!("{} bytes, journal mode {}{encrypted}", self.info.page_size, self.mode()))
    }

    /// Returns the rows of sizes for a terminal: name, size in bytes (`None` if not known), and a
    /// note.
    fn rows_of_sizes(&self) -> Vec<(&'static str, Option<u64>, String)> {
        let info = &self.info;
        let mut sizes = vec![
            ("file", Some(info.file_bytes), String::new()),
            ("rows", self.sum(|sizes| sizes.rows), String::new()),
            ("large values", self.sum(|sizes| sizes.large_values), String::new()),
            ("TTL indexes", self.sum(|sizes| sizes.expiry_indexes), String::new()),
            ("write times", self.sum(|sizes| sizes.write_index), String::new()),
            ("other", info.other_bytes, String::new()),
            ("free", Some(info.free_bytes), share(info.free_bytes, info.file_bytes)),
        ];
        if info.journal_mode == Some(JournalMode::Wal) {
            let pending = format!("{} to be checkpointed", size(info.wal_pending_bytes));
            let pending = if info.wal_pending_bytes > 0 { pending } else { String::new() };
            sizes.push(("WAL", Some(info.wal_bytes), pending));
        }
        if let Some(limit) = info.size_limit {
            let note = format!(
                "{} used, eviction {}",
                share(used(info), limit.max_bytes),
                eviction_name(limit.eviction)
            );
            sizes.push(("limit", Some(limit.max_bytes), note));
        }
        sizes
    }
}

fn bytes_of_server(server: &ServerInfo) -> [(&'static str, Option<u64>); 3] {
    let sizes = server.sizes;
    [
        ("rows_bytes", sizes.map(|sizes| sizes.rows)),
        ("indexes_bytes", sizes.map(|sizes| sizes.indexes)),
        ("total_bytes", sizes.map(|sizes| sizes.total)),
    ]
}

fn of_server(server: &ServerInfo) -> Object {
    let mut object = Object::new();
    object
        .text("version", &server.version)
        .text("database", &server.database)
        .text("schema", &server.schema)
        .bool("standby", server.is_standby);
    match &server.tls {
        Some(tls) => object.text("tls", tls),
        None => object.raw("tls", "null"),
    };
    for (name, bytes) in bytes_of_server(server) {
        object.optional(name, bytes);
    }
    object
}

fn lines_of_server(server: &ServerInfo) -> Vec<String> {
    let shown = |text: &str| Form::Text.show(text.as_bytes()).into_owned();
    let mut lines = vec![
        format!("server\tversion\t{}", shown(&server.version)),
        format!("server\tdatabase\t{}", shown(&server.database)),
        format!("server\tschema\t{}", shown(&server.schema)),
        format!("server\tstandby\t{}", if server.is_standby { "yes" } else { "no" }),
        format!("server\ttls\t{}", server.tls.as_deref().map_or_else(|| "no".to_owned(), shown)),
    ];
    let known = |(name, bytes): (&str, Option<u64>)| bytes.map(|bytes| format!("server\t{name}\t{bytes}"));
    lines.extend(bytes_of_server(server).into_iter().filter_map(known));
    lines
}

fn rows_of_server(server: &ServerInfo) -> Vec<(&'static str, String)> {
    let shown = |text: &str| Form::Text.show(text.as_bytes()).into_owned();
    let standby = if server.is_standby { ", read-only standby" } else { "" };
    vec![
        ("server", format!("PostgreSQL {}{standby}; kvstore {}", shown(&server.version), kvstore::VERSION)),
        ("schema", format!("{} in database {}", shown(&server.schema), shown(&server.database))),
        ("connection", server.tls.as_deref().map_or_else(|| "no TLS".to_owned(), shown)),
    ]
}

/// Maximum number of families in the table that `info` prints on a terminal.
const FAMILIES: usize = 12;

/// Number of bytes of the WAL waiting for a checkpoint above which `info` prints a hint. Automatic
/// checkpoints keep that number below half of this: 4000 pages of 4096 bytes.
const LONG_WAL: u64 = 32 << 20;

fn plural(keys: u64) -> &'static str {
    if keys == 1 { "key" } else { "keys" }
}

fn used(info: &StoreInfo) -> u64 {
    info.file_bytes.saturating_sub(info.free_bytes)
}

fn share(part: u64, whole: u64) -> String {
    format!("{} %", u128::from(part) * 100 / u128::from(whole.max(1)))
}

fn ttl_ms(family: &FamilyInfo) -> Option<u64> {
    family.default_ttl.and_then(|ttl| u64::try_from(ttl.as_millis()).ok())
}

/// Returns the numbers of a family, including sizes in bytes, and their names in the output for
/// programs (in a pipe or with `--json`); `None` if a number is not known.
fn numbers(family: &FamilyInfo, keys: Option<Keys>) -> [(&'static str, Option<i128>); 10] {
    let number = |number: fn(Keys) -> u64| keys.map(|keys| number(keys).into());
    let bytes = |part: fn(kvstore::FamilySizes) -> u64| family.sizes.map(|sizes| part(sizes).into());
    [
        ("live", number(|keys| keys.live)),
        ("expired", number(|keys| keys.expired)),
        ("with_ttl", number(|keys| keys.with_ttl)),
        ("next_expiry_ms", family.next_expiry_ms.map(Into::into)),
        ("default_ttl_ms", ttl_ms(family).map(Into::into)),
        ("created_ms", family.created_ms.map(Into::into)),
        ("rows_bytes", bytes(|sizes| sizes.rows)),
        ("large_values_bytes", bytes(|sizes| sizes.large_values)),
        ("ttl_indexes_bytes", bytes(|sizes| sizes.expiry_indexes)),
        ("write_index_bytes", bytes(|sizes| sizes.write_index)),
    ]
}

//! Steps on a store during power cuts or failing calls, and the content that the store must have
//! afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kvstore::{
    CheckpointMode, Config, Direction, Error, ErrorKind, Eviction, Expiry, Family, KeyRange, Result,
    SizeLimit, Store,
};

/// Value and expiry time.
pub type Entry = (Vec<u8>, Option<i64>);

/// Entries of each family, including expired ones that are not removed yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents(pub BTreeMap<String, BTreeMap<Vec<u8>, Entry>>);

pub const DEFAULT: &str = "default";

impl Contents {
    /// Returns the content of a new store.
    pub fn of_a_new_store() -> Contents {
        Contents([(DEFAULT.to_owned(), BTreeMap::new())].into())
    }

    /// Returns the content of a store according to its clock.
    pub fn of(store: &Store) -> Result<Contents> {
        let mut contents = Contents::default();
        let names = store.family_names()?;
        for name in names.iter().map(String::as_str).chain([DEFAULT]) {
            let mut entries = BTreeMap::new();
            let mut cursor = family(store, name)?.cursor(KeyRange::all(), Direction::Forward);
            let mut on_entry = cursor.first()?;
            while on_entry {
                let (Some(key), Some(value), Some(expiry)) = (cursor.key(), cursor.value(), cursor.expiry())
                else {
                    panic!("a cursor on an entry without a key, a value or an expiry")
                };
                entries.insert(key.to_vec(), (value.to_vec(), expiry.millis()));
                on_entry = cursor.next()?;
            }
            contents.0.insert(name.to_owned(), entries);
        }
        Ok(contents)
    }

    /// Returns the content without expired entries.
    pub fn live(&self, now_ms: i64) -> Contents {
        let mut live = self.clone();
        live.0.values_mut().for_each(|entries| {
            entries.retain(|_, (_, expire_ms)| expire_ms.is_none_or(|at| at > now_ms));
        });
        live
    }

    /// Returns a short text for messages.
    pub fn sketch(&self) -> String {
        let entries = self.0.iter().map(|(name, entries)| {
            let lengths: Vec<String> = entries
                .iter()
                .map(|(key, (value, expire_ms))| {
                    format!(
                        "{}={}x{}{}",
                        String::from_utf8_lossy(key),
                        value.first().copied().unwrap_or(0),
                        value.len(),
                        expire_ms.map_or(String::new(), |at| format!("@{at}"))
                    )
                })
                .collect();
            format!("{name}: {}", lengths.join(" "))
        });
        entries.collect::<Vec<_>>().join("; ")
    }

    fn family(&mut self, name: &str) -> &mut BTreeMap<Vec<u8>, Entry> {
        self.0.get_mut(name).unwrap()
    }
}

fn family(store: &Store, name: &str) -> Result<Family> {
    if name == DEFAULT { store.get_or_create_family(name) } else { store.family(name) }
}

/// A write of one key.
#[derive(Debug, Clone)]
pub enum Write {
    /// Puts a value of this byte, repeated.
    Put(&'static str, String, u8, usize, Option<i64>),
    Delete(&'static str, String),
}

/// One call, or one transaction.
#[derive(Debug, Clone)]
pub enum Step {
    /// Turns the clock.
    At(i64),
    One(Write),
    PutIfAbsent(Write),
    Expire(&'static str, &'static str, i64),
    Batch(Vec<Write>),
    /// A transaction with explicit begin and commit, so that the results of failed calls can be
    /// checked.
    Transaction(Vec<Write>),
    RolledBack(Vec<Write>),
    Create(&'static str),
    Drop(&'static str),
    Clear(&'static str),
    Track(&'static str),
    /// A size limit with eviction of the keys that expire first.
    SizeLimit(u64),
    /// Removes keys written longer ago than this number of milliseconds. The list has these keys.
    Sweep(&'static str, u64, Vec<String>),
    Purge,
    Checkpoint(CheckpointMode),
    Sync,
    Vacuum,
    Backup(&'static str),
    /// Reads everything.
    Read,
    CloseAndOpen,
}

/// A store during a scenario.
pub struct World {
    pub store: Option<Store>,
    pub path: PathBuf,
    pub config: Config,
    /// Whether no second handle may be opened.
    pub alone: bool,
    /// Time at which contents are compared. Keys that have expired by then may be present or not.
    pub looked_at: i64,
    clock: Arc<AtomicI64>,
    /// Contract violations seen inside manual transactions.
    pub complaints: std::cell::RefCell<Vec<String>>,
}

impl World {
    pub fn new(dir: &Path, config: Config) -> World {
        World {
            store: None,
            path: dir.join("store.db"),
            config,
            alone: false,
            looked_at: 1,
            clock: Arc::new(AtomicI64::new(1)),
            complaints: std::cell::RefCell::default(),
        }
    }

    pub fn open(&mut self) -> Result<()> {
        let store = Store::open_with(&self.path, &self.config)?;
        let clock = Arc::clone(&self.clock);
        store.set_clock(move || clock.load(Ordering::SeqCst));
        self.store = Some(store);
        Ok(())
    }

    pub fn close(&mut self) -> Result<()> {
        self.store.take().map_or(Ok(()), |store| store.close())
    }

    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }
}

impl Write {
    fn call(&self, store: &Store) -> Result<()> {
        match self {
            Write::Put(name, key, byte, length, expire_ms) => {
                let value = vec![*byte; *length];
                family(store, name)?.put_with_expiry(key, value, expire_ms.map_or(Expiry::Never, Expiry::At))
            }
            Write::Delete(name, key) => family(store, name)?.delete(key).map(drop),
        }
    }

    fn happens(&self, contents: &mut Contents) {
        match self {
            Write::Put(name, key, byte, length, expire_ms) => {
                let entry = (vec![*byte; *length], *expire_ms);
                contents.family(name).insert(key.clone().into_bytes(), entry);
            }
            Write::Delete(name, key) => drop(contents.family(name).remove(key.as_bytes())),
        }
    }
}

impl Step {
    /// Runs the step on the store.
    pub fn call(&self, world: &mut World) -> Result<()> {
        match self {
            Step::At(now_ms) => world.clock.store(*now_ms, Ordering::SeqCst),
            Step::CloseAndOpen => {
                let closed = world.close();
                world.open()?;
                closed?;
            }
            _ => self.call_on(world)?,
        }
        Ok(())
    }

    fn call_on(&self, world: &World) -> Result<()> {
        let store = world.store();
        match self {
            Step::At(_) | Step::CloseAndOpen => Ok(()),
            Step::One(write) => write.call(store),
            Step::PutIfAbsent(Write::Put(name, key, byte, length, expire_ms)) => {
                let expiry = expire_ms.map_or(Expiry::Never, Expiry::At);
                family(store, name)?.put_if_absent(key, vec![*byte; *length], expiry).map(drop)
            }
            Step::PutIfAbsent(Write::Delete(..)) => panic!("not a put"),
            Step::Expire(name, key, at) => family(store, name)?
                .set_expiry(key, Expiry::At(*at), kvstore::ExpiryCondition::Always)
                .map(drop),
            Step::Batch(writes) => {
                let mut batch = store.batch();
                for write in writes {
                    match write {
                        Write::Put(name, key, byte, length, expire_ms) => batch.put(
                            &family(store, name)?,
                            key,
                            vec![*byte; *length],
                            expire_ms.map_or(Expiry::Never, Expiry::At),
                        )?,
                        Write::Delete(name, key) => batch.delete(&family(store, name)?, key)?,
                    }
                }
                batch.commit()
            }
            Step::Transaction(writes) => by_hand(world, writes),
            Step::RolledBack(writes) => {
                store.begin_write()?;
                let done = writes.iter().try_for_each(|write| write.call(store));
                let rolled_back = store.rollback();
                done.and(rolled_back)
            }
            Step::Create(name) => store.create_family(name).map(drop),
            Step::Drop(name) => store.drop_family(name),
            Step::Clear(name) => family(store, name)?.clear(),
            Step::SizeLimit(bytes) => store.set_size_limit(Some(SizeLimit::new(*bytes, Eviction::Soonest))),
            Step::Track(name) => family(store, name)?.set_write_tracking(true),
            Step::Sweep(name, age_ms, _) => {
                family(store, name)?.sweep(Duration::from_millis(*age_ms)).map(drop)
            }
            Step::Purge => store.purge_step(None, None).map(drop),
            Step::Checkpoint(mode) => store.checkpoint(*mode).map(drop),
            Step::Sync => store.sync(),
            Step::Vacuum => store.incremental_vacuum(None),
            Step::Backup(name) => store.backup(world.path.with_file_name(name), |_, _| true),
            Step::Read => Contents::of(store).map(drop),
        }
    }

    /// Applies the step to the content.
    pub fn happens(&self, contents: &mut Contents, now_ms: i64) {
        match self {
            Step::One(write) => write.happens(contents),
            Step::PutIfAbsent(write) => {
                let Write::Put(name, key, ..) = write else { return };
                let there = contents.family(name).get(key.as_bytes());
                if there.is_none_or(|(_, expire_ms)| expire_ms.is_some_and(|at| at <= now_ms)) {
                    write.happens(contents);
                }
            }
            Step::Expire(name, key, at) => {
                contents.family(name).get_mut(key.as_bytes()).unwrap().1 = Some(*at);
            }
            Step::Batch(writes) | Step::Transaction(writes) => {
                writes.iter().for_each(|write| write.happens(contents));
            }
            Step::Create(name) => drop(contents.0.insert((*name).to_owned(), BTreeMap::new())),
            Step::Drop(name) => drop(contents.0.remove(*name)),
            Step::Clear(name) => contents.family(name).clear(),
            Step::Sweep(name, _, keys) => {
                keys.iter().for_each(|key| drop(contents.family(name).remove(key.as_bytes())));
            }
            Step::Purge => *contents = contents.live(now_ms),
            Step::At(_)
            | Step::RolledBack(_)
            | Step::Track(_)
            | Step::SizeLimit(_)
            | Step::Checkpoint(_)
            | Step::Sync
            | Step::Vacuum
            | Step::Backup(_)
            | Step::Read
            | Step::CloseAndOpen => {}
        }
    }

    /// Whether everything before it is on the disk when it returns, even with `SyncLevel::Normal`.
    pub fn makes_durable(&self) -> bool {
        matches!(self, Step::Checkpoint(_) | Step::Sync | Step::CloseAndOpen)
    }
}

/// Runs a manual transaction, and records contract violations after a failed write in it.
fn by_hand(world: &World, writes: &[Write]) -> Result<()> {
    let store = world.store();
    let complain = |text: String| world.complaints.borrow_mut().push(text);
    store.begin_write()?;
    for write in writes {
        if let Err(e) = write.call(store) {
            // A call that only reads has changed nothing: such a transaction may continue.
            if let Err(refused) = store.put("doomed?", "1") {
                match store.commit() {
                    Ok(()) => complain(format!("committed after writes that failed: {e}; {refused}")),
                    Err(why) if why.hint() != Some(kvstore::Hint::RollBack) => {
                        complain(format!("a doomed transaction does not say so: {why} (after {e})"));
                    }
                    Err(_) => {}
                }
            }
            return store.rollback().and(Err(e));
        }
    }
    store.commit().map_err(|e| {
        // Only if a lock was the cause may the transaction be committed later.
        match store.rollback() {
            Ok(()) => e,
            Err(rollback) => Error::new(ErrorKind::Error, format!("rollback: {rollback}, after {e}")),
        }
    })
}

fn put(name: &'static str, key: impl Into<String>, byte: u8, length: usize, expire_ms: Option<i64>) -> Write {
    Write::Put(name, key.into(), byte, length, expire_ms)
}

/// Consecutive small writes, enough for a WAL of 80 pages to be written back several times while it
/// grows. They change the same pages again and again, add pages, and cut pages off.
pub fn many_steps() -> Vec<Step> {
    let name = |n: usize| format!("n{n:03}");
    let mut steps = vec![Step::Create("users")];
    for n in 0..220 {
        let (byte, end) = (n as u8, 1_000_000 + (n * 7 % 50) as i64);
        steps.push(match n % 11 {
            3 => Step::One(put("users", name(n * 13 % 90), byte, 40, Some(end))),
            5 => Step::One(put(DEFAULT, name(n * 17 % 40), byte, 1_500, None)),
            8 => Step::One(Write::Delete(DEFAULT, name(n * 17 % 40))),
            _ => Step::One(put(DEFAULT, name(n * 29 % 60), byte, 30 + n % 50, (n % 4 == 0).then_some(end))),
        });
        match n {
            60 => steps.push(Step::Clear("users")),
            90 => steps.push(Step::Vacuum),
            140 => steps.push(Step::CloseAndOpen),
            180 => steps.push(Step::Sync),
            _ => {}
        }
    }
    steps.push(Step::Read);
    steps
}

/// Time at which all keys with a TTL in `bounded_steps` have expired.
pub const BOUNDED_LOOKED_AT: i64 = 2500;

/// Steps on a store of 96 pages of 1024 bytes. It is first filled with keys that expire soon. When
/// they have expired, they are removed for keys that stay: no live key is ever evicted.
pub fn bounded_steps() -> Vec<Step> {
    let name = |n: usize| format!("n{n:03}");
    let mut steps = vec![Step::At(1000), Step::Create("users"), Step::SizeLimit(96 << 10)];
    for n in 0..45 {
        let family = if n % 3 == 0 { "users" } else { DEFAULT };
        steps.push(Step::One(put(family, name(n), n as u8, 200 + n % 4 * 400, Some(2000 + n as i64))));
    }
    steps.push(Step::At(3000));
    let stays = |n: usize| {
        put(
            if n.is_multiple_of(5) { "users" } else { DEFAULT },
            name(200 + n),
            n as u8,
            150 + n % 3 * 900,
            None,
        )
    };
    for n in (0..60).step_by(4) {
        steps.push(Step::One(stays(n)));
        steps.push(match n / 4 % 3 {
            0 => Step::Transaction(vec![stays(n + 1), Write::Delete(DEFAULT, name(1)), stays(n + 2)]),
            1 => Step::Batch(vec![stays(n + 1), stays(n + 2)]),
            _ => Step::RolledBack(vec![stays(n + 1), stays(n + 2)]),
        });
    }
    steps.extend([Step::SizeLimit(90 << 10), Step::Vacuum, Step::CloseAndOpen, Step::Read]);
    steps
}

/// Every operation of a store, in about fifty steps.
pub fn steps() -> Vec<Step> {
    use Step::{
        At, Backup, Batch, Checkpoint, Clear, CloseAndOpen, Create, Drop, Expire, One, PutIfAbsent,
        RolledBack, Sweep, Track, Transaction, Vacuum,
    };
    let name = |n: usize| format!("n{n:03}");
    let mut steps = vec![
        One(put(DEFAULT, "a", 1, 10, None)),
        One(put(DEFAULT, "ttl", 2, 10, Some(2_000))),
        One(put(DEFAULT, "a", 3, 20, None)),
        One(put(DEFAULT, "large", 4, 9_000, None)),
        One(put(DEFAULT, "large ttl", 5, 700, Some(9_000))),
        PutIfAbsent(put(DEFAULT, "a", 6, 5, None)),
        PutIfAbsent(put(DEFAULT, "b", 7, 5, Some(3_000))),
        One(Write::Delete(DEFAULT, "a".into())),
        Step::Sync,
        One(put(DEFAULT, "large", 8, 12_000, Some(4_000))),
        Batch((0..40).map(|n| put(DEFAULT, name(n), 9, 60 + n, (n % 3 == 0).then_some(2_500))).collect()),
        Checkpoint(CheckpointMode::Passive),
        Create("users"),
        Create("aged"),
        Track("aged"),
        At(500),
        Transaction(vec![
            put("users", "u", 10, 30, None),
            put("aged", "old", 11, 30, Some(100_000)),
            put(DEFAULT, "a", 12, 30, None),
            Write::Delete(DEFAULT, name(3)),
            put("users", "large", 13, 5_000, None),
        ]),
        One(put("aged", "old large", 14, 3_000, None)),
        One(put(DEFAULT, "ttl", 15, 10, None)),
        Checkpoint(CheckpointMode::Full),
        One(put("users", "u", 16, 31, Some(50_000))),
        Expire("users", "large", 60_000),
        RolledBack(vec![put("users", "no", 17, 5_000, None), Write::Delete(DEFAULT, "large".into())]),
        Batch((0..30).map(|n| Write::Delete(DEFAULT, name(n))).collect()),
        Checkpoint(CheckpointMode::Restart),
        One(put("users", "again", 18, 400, None)),
        At(2_600),
        PutIfAbsent(put(DEFAULT, "ttl", 19, 11, None)),
        Step::Purge,
        One(put("aged", "new", 20, 30, None)),
        Step::Sync,
        At(3_000),
        Sweep("aged", 1_000, vec!["old".into(), "old large".into()]),
        Backup("backup.db"),
        Checkpoint(CheckpointMode::Truncate),
        One(put("users", "after", 21, 40, Some(70_000))),
        CloseAndOpen,
        One(put("users", "reopened", 22, 2_000, Some(70_001))),
    ];
    steps.push(Batch((0..60).map(|n| put("users", name(n), 23, 200, Some(80_000 + n as i64))).collect()));
    steps.extend([
        Step::Read,
        Clear(DEFAULT),
        Create("brief"),
        One(put("brief", "x", 24, 4_000, Some(90_000))),
        Drop("brief"),
        Vacuum,
        Checkpoint(CheckpointMode::Passive),
        One(put(DEFAULT, "end", 25, 100, None)),
        Drop("users"),
        Create("users"),
        One(put("users", "end", 26, 3_000, Some(95_000))),
        Vacuum,
        One(put(DEFAULT, "end", 27, 300, Some(95_001))),
        CloseAndOpen,
        One(put(DEFAULT, "very end", 28, 30, None)),
    ]);
    steps
}

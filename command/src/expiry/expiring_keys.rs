//! Keys of one or more families in order of expiry, and how they are printed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kvstore::{Cursor, ErrorKind, Family, Store};

use crate::bytes::Form;
use crate::failure::Result;
use crate::json::Object;
use crate::output::{BAD, Output, WARN};
use crate::{store_arg, times};

/// Maximum number of entries that one fetch from an expiry cursor returns.
const CHUNK: usize = 512;
/// Time left, in milliseconds, below which a key in a list of expiring keys is highlighted.
const SOON_MS: i64 = 60_000;

/// Opens the named family. If `name` is `None`, opens all families, the default one first.
pub fn families(store: &Store, name: Option<&str>) -> Result<Vec<Family>> {
    if let Some(name) = name {
        return Ok(vec![store_arg::family(store, name)?]);
    }
    let mut families = vec![store.family(store.default_family().name())?];
    for name in store.family_names()? {
        match store.family(&name) {
            Ok(family) => families.push(family),
            Err(e) if e.kind() == ErrorKind::NotFound => {} // dropped since it was listed
            Err(e) => return Err(e.into()),
        }
    }
    Ok(families)
}

/// Calls `visit` with the expiry time and the key, for each key of the family with
/// `from_ms <= expire_ms < to_ms`, in order of expiry. Stops when `visit` returns `false`.
pub fn each(
    family: &Family,
    from_ms: i64,
    to_ms: i64,
    mut visit: impl FnMut(i64, &[u8]) -> bool,
) -> Result<()> {
    let mut cursor = family.expiry_cursor(from_ms, to_ms).keys_only();
    if !there(cursor.first())? {
        return Ok(());
    }
    loop {
        let fetched = cursor.fetch(CHUNK)?;
        if fetched.len() == 0 {
            return Ok(());
        }
        for entry in fetched {
            if !visit(entry.expiry.millis().unwrap_or(i64::MAX), entry.key) {
                return Ok(());
            }
        }
    }
}

/// Counts the keys of the family that have expired by the time `now_ms` but have not been purged.
/// Calls `counted` with the count so far after each key.
pub fn count_expired(family: &Family, now_ms: i64, mut counted: impl FnMut(u64)) -> Result<u64> {
    let mut count = 0;
    each(family, i64::MIN, now_ms.saturating_add(1), |_, _| {
        count += 1;
        counted(count);
        true
    })?;
    Ok(count)
}

/// A key, its family, and its expiry time in milliseconds since 1970.
pub struct ExpiringKey<'a> {
    pub expire_ms: i64,
    pub family: &'a str,
    pub key: &'a [u8],
}

/// The keys of several families, merged in order of expiry.
pub struct ExpiringKeys {
    cursors: Vec<(String, Cursor)>,
    /// For each cursor whose current key `next` has yet to return: the expiry time of that key, in
    /// milliseconds since 1970, and the index of the cursor in `cursors`. The earliest is on top.
    heads: BinaryHeap<Reverse<(i64, usize)>>,
    /// Index of the cursor whose key `next` returned last. The cursor advances at the next call,
    /// because the returned key borrows from it.
    shown: Option<usize>,
}

impl ExpiringKeys {
    /// Starts a merge of the keys with `from_ms <= expire_ms < to_ms`.
    pub fn new(families: &[Family], from_ms: i64, to_ms: i64) -> Result<ExpiringKeys> {
        let cursors = families
            .iter()
            .map(|family| (family.name().to_owned(), family.expiry_cursor(from_ms, to_ms).keys_only()))
            .collect();
        let mut merged = ExpiringKeys { cursors, heads: BinaryHeap::new(), shown: None };
        for at in 0..merged.cursors.len() {
            merged.step(at, Cursor::first)?;
        }
        Ok(merged)
    }

    fn step(&mut self, at: usize, step: impl FnOnce(&mut Cursor) -> kvstore::Result<bool>) -> Result<()> {
        if let Some((_, cursor)) = self.cursors.get_mut(at)
            && there(step(cursor))?
            && let Some(expire_ms) = cursor.expiry().and_then(kvstore::Expiry::millis)
        {
            self.heads.push(Reverse((expire_ms, at)));
        }
        Ok(())
    }

    pub fn next(&mut self) -> Result<Option<ExpiringKey<'_>>> {
        if let Some(at) = self.shown.take() {
            self.step(at, Cursor::next)?;
        }
        let Some(Reverse((expire_ms, at))) = self.heads.pop() else { return Ok(None) };
        self.shown = Some(at);
        Ok(self
            .cursors
            .get(at)
            .and_then(|(family, cursor)| Some(ExpiringKey { expire_ms, family, key: cursor.key()? })))
    }
}

/// Converts the result of moving a cursor: `true` if it is at a key, `false` if there are no more
/// keys. Returns `false`, not an error, if the family was dropped during the scan.
fn there(moved: kvstore::Result<bool>) -> Result<bool> {
    match moved {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        moved => Ok(moved?),
    }
}

/// Prints keys with their expiry times, one line per key.
pub struct Lines {
    pub form: Form,
    pub now_ms: i64,
    /// Width of the column of family names, in characters; 0 hides the column.
    pub family_width: usize,
}

impl Lines {
    pub fn new(form: Form, now_ms: i64, families: &[Family]) -> Lines {
        let widest = families.iter().map(|family| form.show(family.name().as_bytes()).chars().count()).max();
        let family_width =
            if families.len() > 1 { widest.unwrap_or_default().max("FAMILY".len()) } else { 0 };
        Lines { form, now_ms, family_width }
    }

    pub fn head(&self, out: &mut Output) -> Result<()> {
        let family = self.family("FAMILY");
        let line = format!("{:<19}  {:<13}{family}  KEY", "EXPIRES", "LEFT");
        let line = out.paint(crate::output::BOLD, line);
        Ok(out.line(line)?)
    }

    fn family(&self, name: &str) -> String {
        if self.family_width == 0 {
            String::new()
        } else {
            format!("  {name:<width$}", width = self.family_width)
        }
    }

    pub fn show(&self, out: &mut Output, end: &ExpiringKey<'_>) -> Result<()> {
        let left_ms = end.expire_ms.saturating_sub(self.now_ms).max(0);
        if out.json {
            let mut object = Object::new();
            object.bytes("key", end.key).text("family", end.family).number("expire_ms", end.expire_ms);
            out.object(object.number("ttl_ms", left_ms).bool("expired", left_ms == 0))?;
            return Ok(());
        }
        let (key, name) = (self.form.show(end.key), Form::Text.show(end.family.as_bytes()));
        if !out.is_terminal {
            out.line(format!("{key}\t{name}\t{}\t{left_ms}", times::iso(end.expire_ms)))?;
            return Ok(());
        }
        let left = format!("{:<13}", times::from_now(end.expire_ms, self.now_ms));
        let left = match left_ms {
            0 => out.paint(BAD, left),
            1..SOON_MS => out.paint(WARN, left),
            _ => left,
        };
        out.line(format!("{:<19}  {left}{}  {key}", times::local(end.expire_ms), self.family(&name)))?;
        Ok(())
    }
}

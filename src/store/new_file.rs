//! Creation of a file that gets its final name only when it is complete: a backup, or the store
//! that a recovery creates.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::atomic::AtomicU64;
use crate::backend;
use crate::error::{Error, ErrorKind as Kind, Result};
use crate::fork;
use crate::hint::Hint;
use crate::location::{check_scheme, is_url, path_without_password, without_suffix};

/// Incomplete file with a temporary name, in the directory of its final name. It is removed on drop
/// unless [`finish`](NewFile::finish) has renamed it.
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    /// Purpose of the file as named in error messages, such as "backup".
    what: &'static str,
    /// Fork generation in which the file was created. If a callback of the caller forks, the file
    /// belongs to the parent, and the child does not remove it.
    generation: u32,
}

impl NewFile {
    /// Creates an empty file under a temporary name. `path` is its final path, at which no file may
    /// exist.
    ///
    /// The file gets the permissions `mode`; with `None`, those of the file `original`. `what` is
    /// its purpose as named in error messages. `ready` is called after the checks and before the
    /// file is created; its result is returned too. If it fails, no file is created.
    pub(crate) fn begin<R>(
        path: &Path,
        original: Option<&Path>,
        mode: Option<u32>,
        what: &'static str,
        ready: impl FnOnce() -> Result<R>,
    ) -> Result<(NewFile, R)> {
        let path = file_name(path, what)?;
        refuse_existing(&path, what)?;
        let partial = partial_name(&path, what)?;
        let filling = ready()?;
        backend::make_like(original, mode, &partial).map_err(|e| {
            full_if_no_space(Error::cant_open(format!("cannot create the file of the {what}: {e}")), &e)
        })?;
        Ok((NewFile { path, partial, what, generation: fork::generation() }, filling))
    }

    /// Returns the temporary path of the file.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Syncs the file, renames it to its final path, and syncs the directory.
    pub(crate) fn finish(self) -> Result<()> {
        let failed = |e: std::io::Error| {
            full_if_no_space(Error::io(format!("cannot finish the {}: {e}", self.what)), &e)
        };
        backend::sync_file(&self.partial).map_err(failed)?;
        give_name(&self.partial, &self.path, self.what)?;
        self.path.parent().map_or(Ok(()), backend::sync_directory).map_err(failed)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.partial.as_os_str().to_owned();
            name.push(suffix);
            let _ = fs::remove_file(name);
        }
    }
}

/// Returns `error`, with the kind `Full` if its cause `why` is a full disk or an exceeded disk
/// quota.
fn full_if_no_space(error: Error, why: &std::io::Error) -> Error {
    if !backend::is_without_space(why) {
        return error;
    }
    let message = error.message().to_owned();
    error.with_kind(Kind::Full, message).with_hint(Hint::FreeDiskSpace)
}

/// Returns `path` as an absolute path. Fails if it cannot be the path of a new file: if it is
/// empty, `:memory:`, a URL or a directory. `what` is the purpose of the file as named in error
/// messages.
fn file_name(path: &Path, what: &str) -> Result<PathBuf> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes == b":memory:" {
        return Err(Error::invalid(format!(
            "the {what} needs the path of a file, and this one is empty or \":memory:\" (a file of \
            that name is \"./:memory:\")"
        )));
    }
    check_scheme(path).map_err(|e| e.in_context(format!("the {what} needs the path of a file")))?;
    if is_url(path) {
        return Err(Error::invalid(format!(
            "the {what} is a file, and {} is a store on a server",
            path_without_password(path)
        ))
        .with_hint(Hint::CopyToStore));
    }
    // Both endings name directories; `Path` removes them silently.
    let is_separator = |byte: &u8| std::path::is_separator(char::from(*byte));
    let is_directory = match bytes {
        [.., before, b'.'] if is_separator(before) => true,
        [.., last] => is_separator(last),
        [] => false,
    };
    if is_directory || path.file_name().is_none() {
        return Err(Error::invalid(format!(
            "the {what} needs the path of a file, and this one is a directory"
        )));
    }
    std::path::absolute(path)
        .map_err(|e| Error::cant_open(format!("cannot determine the current directory: {e}")))
}

fn is_taken(what: &str) -> Error {
    Error::invalid(format!("the file of the {what} already exists: choose another name, or remove it first"))
}

fn refuse_existing(path: &Path, what: &str) -> Result<()> {
    // Checked first, because `path` may be the open store itself: its log is not that of another
    // store.
    match fs::symlink_metadata(path) {
        Ok(_) => return Err(is_taken(what)),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Error::cant_open(format!("cannot read the status of the {what}'s path: {e}"))),
    }
    // SQLite would take such a log for that of the new file as soon as the file is opened.
    for suffix in ["-wal", "-journal"] {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        if fs::symlink_metadata(&log).is_ok_and(|found| found.len() > 0) {
            return Err(Error::invalid(format!(
                "next to the {what}'s path is the log of another store (its name ends in \
                \"{suffix}\"): remove it, or choose another name"
            )));
        }
    }
    // SQLite would take the new file for the log of the other one: it would remove it, or roll it
    // back.
    for suffix in ["-wal", "-shm", "-journal"] {
        let of = path.file_name().and_then(|name| without_suffix(name, suffix));
        if of.is_some_and(|of| !of.is_empty() && is_there(&path.with_file_name(of))) {
            return Err(Error::invalid(format!(
                "the name of the {what} is that of an existing file with \"{suffix}\" appended, which \
                SQLite uses for that file: choose another name"
            )));
        }
    }
    Ok(())
}

/// Returns `true` if `path` exists and is not a directory, so that it may be a database.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir())
}

/// Renames the complete file `partial` to `path`. Fails, without replacing it, if a file exists at
/// `path`, also if another process has created it at the same time. `what` is the purpose of the
/// file as named in error messages.
fn give_name(partial: &Path, path: &Path, what: &str) -> Result<()> {
    match backend::rename_new(partial, path).or_else(|e| rename_by_link(e, partial, path)) {
        Ok(()) => Ok(()),
        // An error also if the other file is gone again: this file was not renamed.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(is_taken(what)),
        Err(e) => Err(Error::io(format!("cannot rename the finished {what}: {e}"))),
    }
}

/// Renames the file `partial` to `path` on a system without a rename that refuses to replace an
/// existing file: adds `path` as a hard link, then removes `partial`. `why` is the error of the
/// attempt to use such a rename; if its kind is not `Unsupported`, it is returned and nothing is
/// done.
///
/// A process that is killed between the two steps leaves both names. The next open of the file then
/// fails with a message about which name to remove.
fn rename_by_link(why: std::io::Error, partial: &Path, path: &Path) -> std::io::Result<()> {
    if why.kind() != ErrorKind::Unsupported {
        return Err(why);
    }
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(e),
        // The file system has no hard links, and its rename would replace the existing file.
        Err(_) if fs::symlink_metadata(path).is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(partial, path),
    }
}

/// Returns a temporary path in the directory of `path`. No other process and no other call uses it,
/// even for the same `path`. Fails if `path` has no file name; `what` is the purpose of the file as
/// named in that error.
fn partial_name(path: &Path, what: &str) -> Result<PathBuf> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| Error::invalid(format!("the path of the {what} names no file")))?;
    let mut name = name.to_owned();
    name.push(format!(".{}-{}.partial", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// The file that prevents the rename may be removed by another thread at once. The rename must
    /// be reported as failed nevertheless.
    #[test]
    fn failed_rename_is_reported_even_if_name_is_free_again() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, path) = (folder.path().join("new.partial"), folder.path().join("new.db"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if fs::File::create_new(&path).is_ok() {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
            let is_told = (0..3_000).all(|_| {
                fs::File::create(&partial).unwrap();
                let is_named = give_name(&partial, &path, "backup").is_ok();
                let is_there = !partial.exists();
                let _ = is_there.then(|| fs::remove_file(&path));
                is_named == is_there
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(is_told);
        });
    }
}

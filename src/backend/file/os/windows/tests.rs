//! Tests of the parts of this module.

use std::path::PathBuf;
use std::{fs, io};

use super::files::file_number;
use super::*;
use crate::backend::file::os::Presence;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ä 日本.db");
    fs::write(&path, "1234").unwrap();
    (folder, path)
}

fn file(path: &std::path::Path) -> OsFile {
    OsFile::open(path, true, false).unwrap()
}

#[test]
fn file_identity_is_unique_and_same_for_hard_links() {
    let (folder, path) = scratch();
    let other = folder.path().join("other.db");
    fs::write(&other, "1234").unwrap();
    let (this, names) = file(&path).identity_and_names().unwrap();
    assert_eq!(names, 1);
    assert_ne!(this, (0, 0));
    assert_ne!(file(&other).identity().unwrap(), this);
    let link = folder.path().join("link.db");
    fs::hard_link(&path, &link).unwrap();
    assert_eq!(file(&link).identity_and_names().unwrap(), (this, 2));
    assert!(is_at(&link, this) && is_at(&path, this) && !is_at(&other, this));
}

#[test]
fn invalid_file_id_falls_back_to_short_id_or_is_refused() {
    let unasked = || unreachable!("the long number is enough");
    assert_eq!(file_number(Some((1, 2)), unasked).unwrap(), (1, 2));
    assert_eq!(file_number(Some((1, u64::MAX.into())), unasked).unwrap(), (1, u64::MAX.into()));
    for none in [None, Some((1, 0)), Some((1, u128::MAX))] {
        assert_eq!(file_number(none, || Ok((3, 4))).unwrap(), (3, 4));
        assert_eq!(file_number(none, || Ok((0, 1))).unwrap(), (0, 1), "a volume may have any number");
        for short in [0, u64::MAX] {
            let refused = file_number(none, || Ok((3, short))).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        }
        let failed = file_number(none, || Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn locks_belong_to_one_file_handle() {
    let (_folder, path) = scratch();
    let (first, second) = (file(&path), file(&path));
    assert!(first.keeps_files_beside() && second.keeps_files_beside());
    assert!(!file(&path).keeps_others_out());
    drop((first, second));
    let first = file(&path);
    assert!(first.keeps_others_out() && !file(&path).keeps_files_beside());
    assert!(!first.is_empty_and_mine());
}

/// A second handle on the same open file keeps the locks after the first handle is closed, as the
/// system may do for a while.
#[test]
fn dropping_file_releases_locks_before_last_handle_closes() {
    let (_folder, path) = scratch();
    let still_open = |file: &OsFile| file.file.try_clone().unwrap();
    let first = file(&path);
    assert!(first.keeps_others_out());
    let handle = still_open(&first);
    drop(first);
    assert!(file(&path).keeps_others_out());
    drop(handle);

    let first = file(&path);
    assert!(first.keeps_files_beside() && first.keeps_files_beside());
    let handle = still_open(&first);
    drop(first);
    assert!(file(&path).keeps_others_out());
    drop(handle);

    let (first, second) = (file(&path), file(&path));
    let (_, mark) = (Mark::on(&first).unwrap(), Mark::on(&second).unwrap());
    let _handle = still_open(&first);
    drop(first);
    assert!(mark.is_alone(&second));
}

#[test]
fn process_marks_see_each_other_but_not_themselves() {
    let (_folder, path) = scratch();
    let (first, second) = (file(&path), file(&path));
    let mark = Mark::on(&first).unwrap();
    assert!(mark.is_alone(&first) && mark.is_alone(&first));
    let other = Mark::on(&second).unwrap();
    assert!(!mark.is_alone(&first) && !other.is_alone(&second));
    drop(first);
    assert!(other.is_alone(&second));
    assert_eq!(fs::read(&path).unwrap(), b"1234", "a mark is in nobody's way");
    fs::write(&path, "5678").unwrap();
}

#[test]
fn process_has_one_process_lock_per_file() {
    let (_folder, path) = scratch();
    let (first, second) = (Presence::on(&path).unwrap(), Presence::on(&path).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second) && first.is_alone());
}

#[test]
fn file_location_blocks_rename_of_file_and_directory() {
    let (folder, path) = scratch();
    let place = FileLocation::of(&fs::canonicalize(&path).unwrap()).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    assert!(fs::remove_file(&path).is_err() && fs::rename(&path, &elsewhere).is_err());
    fs::write(&elsewhere, "").unwrap();
    assert!(fs::rename(&elsewhere, &path).is_err());
    assert!(is_at(&path, place.file()) && place.is_kept());
    assert!(place.can_be_written_to());
    drop(place);
    fs::remove_file(&path).unwrap();
}

#[test]
fn file_state_changes_with_header_or_length() {
    let (_folder, path) = scratch();
    let place = FileLocation::of(&path).unwrap();
    let before = place.state("").unwrap().unwrap();
    assert_eq!(place.state("").unwrap(), Some(before));
    fs::write(&path, "1235").unwrap();
    assert_ne!(place.state("").unwrap(), Some(before));
    assert_eq!(place.state("-wal").unwrap(), None);
    let wal = path.with_file_name("ä 日本.db-wal");
    fs::write(&wal, "1").unwrap();
    assert!(!place.state("-wal").unwrap().unwrap().is_empty());
    place.remove("-wal").unwrap();
    place.remove("-wal").unwrap();
    assert!(!wal.exists());
}

#[test]
fn rename_new_never_replaces_existing_file() {
    let (folder, path) = scratch();
    let taken = folder.path().join("taken");
    fs::write(&taken, "there").unwrap();
    assert_eq!(rename_new(&path, &taken).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&taken).unwrap(), b"there");
    rename_new(&path, &folder.path().join("free")).unwrap();
    assert!(!path.exists());
    make_like(None, None, &path).unwrap();
    assert!(make_like(None, None, &path).is_err());
    sync_file(&path).unwrap();
}

#[test]
fn file_with_read_only_attribute_is_not_writable() {
    let (_folder, path) = scratch();
    assert!(may_write(&path) && !is_forbidden_to_write(&path));
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions.clone()).unwrap();
    assert!(!may_write(&path) && is_forbidden_to_write(&path));
    let none = path.with_file_name("none");
    assert!(!may_write(&none) && !is_forbidden_to_write(&none));
    #[allow(clippy::permissions_set_readonly_false, reason = "to be removed again, on this system")]
    permissions.set_readonly(false);
    fs::set_permissions(&path, permissions).unwrap();
}

#[test]
fn file_length_lookup_does_not_block_deletion() {
    let (folder, path) = scratch();
    assert_eq!(length_of_file(&path).unwrap(), Some(4));
    assert_eq!(length_of_file(folder.path()).unwrap(), None);
    let missing =
        |path: &std::path::Path| length_of_file(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    assert!(missing(&folder.path().join("missing.db")));
    // A removed file has no name any more, even while other threads query its length.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = length_of_file(&path);
                }
            });
        }
        let all_went = (0..2000).try_for_each(|_| {
            fs::remove_file(&path)?;
            if !missing(&path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::write(&path, "1234")
        });
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        all_went.unwrap();
    });
}

#[test]
fn open_journal_cannot_be_removed() {
    let (_folder, path) = scratch();
    let journal = OsFile::open_journal(&path).unwrap();
    assert!(fs::remove_file(&path).is_err());
    drop(journal);
    fs::remove_file(&path).unwrap();
}

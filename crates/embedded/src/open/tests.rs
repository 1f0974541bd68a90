//! Tests of opening files: absent, older, newer, foreign, broken, and opened by many at once.

use std::thread;

use tempfile::TempDir;

use super::*;

fn directory() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("a file?.db");
    (directory, path)
}

/// Every file in the directory except the gate's lock file, which every program may touch.
fn contents(directory: &TempDir) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with("-door"))
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Statements that insert a row into a table of each migration, by which a test recognises it.
const MARKS: [&str; 4] = [
    "INSERT INTO leases (name, revision, body) VALUES ('mark', 1, 'kept')",
    "INSERT INTO queues (name, fifo, visibility, retention) VALUES ('mark', 0, 1, 1)",
    "INSERT INTO job_rows (job, revision, body, forget_at) VALUES ('mark', 1, 'kept', 1)",
    "INSERT INTO documents (collection, name, revision, body) VALUES ('mark', 'mark', 1, 'kept')",
];

#[test]
fn a_new_file_has_the_present_version_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    for schema in [&LEDGER, &MAILBOX] {
        let (directory, path) = directory();
        schema.prepare(&path).unwrap();
        let header = read_header(&path).unwrap().unwrap();
        assert_eq!(header.version, schema.version());
        assert_eq!(header.application_id, schema.application_id);
        assert_eq!(contents(&directory).len(), 1, "no draft is left");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let db = schema.connect(&path, PATIENCE_MAX).unwrap();
        let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}

#[test]
fn the_ledger_flushes_every_commit_and_the_mailbox_does_not() {
    for (schema, expected) in [(&LEDGER, 2), (&MAILBOX, 1)] {
        let (_directory, path) = directory();
        schema.prepare(&path).unwrap();
        let db = schema.connect(&path, PATIENCE_MAX).unwrap();
        let synchronous: i64 = db.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        assert_eq!(synchronous, expected, "{}", schema.name);
    }
}

#[test]
fn every_earlier_version_is_brought_up_to_date_with_what_is_in_it() {
    for version in 1..LEDGER.version() {
        let (_directory, path) = directory();
        LEDGER.create(&path, version).unwrap();
        let old = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
        assert_eq!(version_of(&old).unwrap(), version);
        for mark in &MARKS[..version] {
            old.execute(mark, []).unwrap();
        }
        drop(old);
        LEDGER.prepare(&path).unwrap();
        assert_eq!(read_header(&path).unwrap().unwrap().version, LEDGER.version());
        let db = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
        for mark in &MARKS[..version] {
            let again = db.execute(mark, []).unwrap_err();
            let code = again.sqlite_error_code();
            assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{mark}");
        }
        for mark in &MARKS[version..] {
            db.execute(mark, []).unwrap();
        }
    }
}

#[test]
fn an_older_file_with_a_log_left_behind_is_migrated_with_what_the_log_holds() {
    let (_directory, path) = directory();
    LEDGER.create(&path, 1).unwrap();
    let killed = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
    killed.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    killed.execute(MARKS[0], []).unwrap();
    drop(killed);
    assert!(fs::metadata(beside(&path, "-wal")).unwrap().len() > 0);
    LEDGER.prepare(&path).unwrap();
    let db = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
    assert_eq!(version_of(&db).unwrap(), LEDGER.version());
    assert!(db.execute(MARKS[0], []).is_err(), "it is there already");
}

#[test]
fn a_step_that_fails_leaves_the_file_as_it_was() {
    let (directory, path) = directory();
    LEDGER.create(&path, 1).unwrap();
    let in_the_way = Connection::open(&path).unwrap();
    in_the_way.execute_batch("CREATE TABLE job_rows (odd)").unwrap();
    drop(in_the_way);
    let before = contents(&directory);
    let error = LEDGER.prepare(&path).unwrap_err();
    assert!(matches!(error, OpenError::Migration { version: 4, .. }), "{error}");
    assert_eq!(contents(&directory), before);
    let db = Connection::open(&path).unwrap();
    assert_eq!(version_of(&db).unwrap(), 1);
    assert!(db.prepare("SELECT * FROM queues").is_err(), "it undid the first migration too");
}

/// Checks that the program refuses the file with a hint and changes nothing in the directory.
fn assert_refused(directory: &TempDir, path: &Path) -> OpenError {
    let before = contents(directory);
    let error = LEDGER.prepare(path).unwrap_err();
    assert_eq!(contents(directory), before, "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(!error.hint().is_empty());
    error
}

#[test]
fn a_newer_file_is_refused_untouched() {
    let (directory, path) = directory();
    LEDGER.prepare(&path).unwrap();
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 5).unwrap();
    drop(newer);
    let error = assert_refused(&directory, &path);
    assert!(matches!(error, OpenError::Newer { found: 5, known: 4, .. }), "{error}");
}

#[test]
fn a_newer_file_whose_version_is_only_in_its_log_is_refused_untouched() {
    let (directory, path) = directory();
    LEDGER.prepare(&path).unwrap();
    let killed = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
    killed.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    killed.pragma_update(None, "user_version", 5).unwrap();
    drop(killed);
    let file = fs::read(&path).unwrap();
    let log = fs::read(beside(&path, "-wal")).unwrap();
    let error = LEDGER.prepare(&path).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 5, known: 4, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), file);
    assert_eq!(fs::read(beside(&path, "-wal")).unwrap(), log);
    drop(directory);
}

#[test]
fn a_foreign_file_is_refused_untouched() {
    let (directory, path) = directory();
    let theirs = Connection::open(&path).unwrap();
    theirs
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    drop(theirs);
    let error = assert_refused(&directory, &path);
    assert!(matches!(error, OpenError::Foreign { application_id: 0, .. }), "{error}");

    let (directory, path) = self::directory();
    MAILBOX.prepare(&path).unwrap();
    let error = assert_refused(&directory, &path);
    assert!(matches!(error, OpenError::Foreign { wanted: "ledger", .. }), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    for bytes in [&b"notes to self"[..], &[0; 5000], b"SQLite format 3\0"] {
        let (directory, path) = directory();
        fs::write(&path, bytes).unwrap();
        let error = assert_refused(&directory, &path);
        assert!(matches!(error, OpenError::NotADatabase { .. }), "{error}");
    }
}

#[test]
fn a_broken_file_is_refused_untouched() {
    let (directory, path) = directory();
    LEDGER.prepare(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = assert_refused(&directory, &path);
    assert!(matches!(error, OpenError::Broken { .. } | OpenError::Damaged { .. }), "{error}");

    let mut scribbled = whole;
    // The beginning of the second page, with its header.
    scribbled[4096..4196].fill(0xA5);
    fs::write(&path, scribbled).unwrap();
    let error = assert_refused(&directory, &path);
    assert!(matches!(error, OpenError::Broken { .. } | OpenError::Damaged { .. }), "{error}");
}

#[test]
fn a_missing_directory_is_an_io_error() {
    let (_directory, path) = directory();
    let error = LEDGER.prepare(&path.join("deeper.db")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn concurrent_opens_make_one_file() {
    let (_directory, path) = directory();
    thread::scope(|scope| {
        for number in 0..16 {
            let path = &path;
            scope.spawn(move || {
                LEDGER.prepare(path).unwrap();
                let db = LEDGER.connect(path, PATIENCE_MAX).unwrap();
                let sql = "INSERT INTO leases (name, revision, body) VALUES (?1, 1, '')";
                db.execute(sql, [number]).unwrap();
            });
        }
    });
    let db = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
    let rows: usize = db.query_row("SELECT count(*) FROM leases", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 16);
}

/// How many locks on a file processes hold, by the kernel's list.
#[cfg(target_os = "linux")]
fn locks_on(path: &Path) -> usize {
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().filter(|line| line.contains(" POSIX ") && line.contains(&inode)).count()
}

/// Without its lock on the file a connection counts as closed: another process that closes the file
/// takes itself for the last one, and deletes the log.
#[cfg(target_os = "linux")]
#[test]
fn opening_a_file_again_takes_no_lock_from_this_process() {
    let (_directory, path) = directory();
    LEDGER.prepare(&path).unwrap();
    let db = LEDGER.connect(&path, PATIENCE_MAX).unwrap();
    assert_eq!(version_of(&db).unwrap(), LEDGER.version());
    assert_eq!(locks_on(&path), 1);
    LEDGER.prepare(&path).unwrap();
    assert_eq!(locks_on(&path), 1);
}

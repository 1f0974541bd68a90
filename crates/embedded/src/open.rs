//! Opens a database: makes it, migrates an older file, or refuses a file without changing it.
//!
//! A file is *ours* if its header has our application id; `PRAGMA user_version` is its number of
//! migrations, which cover documents too. The program reads the header of the file as immutable, and
//! refuses a newer version before SQLite opens the file to write, because its recovery writes. It holds
//! the [`WriteGate`], and renames a complete new file into place: a file is absent or complete.
//!
//! Not here: statements of any table, or waiting for a write ([`crate::store`]).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::process::geteuid;

use crate::write_gate::{GateClosed, LockWait, PATIENCE_MAX, WriteGate};

mod error;

pub use error::OpenError;

/// A kind of database and its migrations.
pub(crate) struct Schema {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// The application id in the header of every file of this kind.
    application_id: u32,
    /// The migrations; their number is the version. Add migrations, never change them.
    migrations: &'static [&'static str],
    /// The statements that a connection runs first.
    pragmas: &'static str,
}

/// Application id `BPLG`. Every answered write survives a power cut.
pub(crate) const LEDGER: Schema = Schema {
    name: "ledger",
    application_id: 0x4250_4C47,
    migrations: &[
        include_str!("../migrations/ledger/0001_records.sql"),
        include_str!("../migrations/ledger/0002_queues.sql"),
        include_str!("../migrations/ledger/0003_job_rows.sql"),
        include_str!("../migrations/ledger/0004_documents.sql"),
    ],
    pragmas: "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;",
};

/// Application id `BPMB`. Every answered write survives the death of a process; a power cut may
/// lose the last few heartbeats. SQLite overwrites deleted data, because it may be a credential.
pub(crate) const MAILBOX: Schema = Schema {
    name: "mailbox",
    application_id: 0x4250_4D42,
    migrations: &[include_str!("../migrations/mailbox/0001_mailbox.sql")],
    pragmas: "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; \
              PRAGMA secure_delete = ON;",
};

/// The largest file whose pages are all checked at opening, which takes some ten milliseconds.
/// SQLite checks the pages of a larger file when it reads them.
const CHECKED_WHOLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The statements that one connection keeps prepared: more than there are.
const STATEMENTS_MAX: usize = 128;

impl Schema {
    /// The version this program reads and writes.
    pub(crate) const fn version(&self) -> usize {
        self.migrations.len()
    }

    /// Makes sure that `path` is a database of this kind and of the current version. If several
    /// processes start at once, one of them does the work.
    pub(crate) fn prepare(&self, path: &Path) -> Result<(), OpenError> {
        let mut gate =
            WriteGate::open(path, PATIENCE_MAX).map_err(|source| OpenError::io(path, source))?;
        match gate.pass(|| self.make_or_migrate(path)) {
            Ok(outcome) => outcome,
            Err(GateClosed::Busy) => Err(OpenError::Busy { path: path.into() }),
            Err(GateClosed::Io(source)) => Err(OpenError::io(path, source)),
        }
    }

    /// Opens a connection to a prepared database ([`Schema::prepare`]); it waits for locks up to
    /// `patience`.
    pub(crate) fn connect(&self, path: &Path, patience: Duration) -> Result<Connection, OpenError> {
        let broken = |source| OpenError::broken(path, source);
        // Without `CREATE`: SQLite must not make an empty file if the file is gone meanwhile.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut db = Connection::open_with_flags(path, flags).map_err(broken)?;
        let mut patience = LockWait::new(patience);
        db.busy_handler(Some(move |attempt| patience.nap(attempt))).map_err(broken)?;
        db.execute_batch(self.pragmas).map_err(broken)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(db)
    }

    fn make_or_migrate(&self, path: &Path) -> Result<(), OpenError> {
        let Some(header) = read_header(path)? else {
            return self.create(path, self.version());
        };
        if header.application_id != self.application_id {
            return Err(OpenError::Foreign {
                path: path.into(),
                wanted: self.name,
                application_id: header.application_id,
            });
        }
        self.not_newer(path, header.version)?;
        check_private(path)?;
        check_pages(path)?;
        let db = self.connect(path, PATIENCE_MAX)?;
        // Until the version is known, closing must not write to the file.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(|source| OpenError::broken(path, source))?;
        let version = version_of(&db).map_err(|source| OpenError::broken(path, source))?;
        self.not_newer(path, version)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(|source| OpenError::broken(path, source))?;
        if version < self.version() { self.migrate(path, &db, version) } else { Ok(()) }
    }

    fn not_newer(&self, path: &Path, found: usize) -> Result<(), OpenError> {
        if found > self.version() {
            Err(OpenError::Newer { path: path.into(), found, known: self.version() })
        } else {
            Ok(())
        }
    }

    /// Runs the first `version` migrations on a file with another name, and renames it.
    fn create(&self, path: &Path, version: usize) -> Result<(), OpenError> {
        let failed = |source| OpenError::io(path, source);
        let draft = beside(path, "-new");
        remove_if_there(&draft).map_err(failed)?;
        // Only the owner may read it: it contains credentials and other people's job names.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
        self.fill(&draft, version).map_err(|source| OpenError::Migration {
            path: path.into(),
            version,
            source,
        })?;
        fs::rename(&draft, path).map_err(failed)?;
        sync_directory(path).map_err(failed)
    }

    fn fill(&self, draft: &Path, version: usize) -> rusqlite::Result<()> {
        let db = Connection::open(draft)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch("BEGIN")?;
        for step in &self.migrations[..version] {
            db.execute_batch(step)?;
        }
        db.pragma_update(None, "application_id", self.application_id)?;
        db.pragma_update(None, "user_version", version)?;
        db.execute_batch("COMMIT; PRAGMA journal_mode = WAL")?;
        db.close().map_err(|(_, error)| error)
    }

    /// Runs all missing migrations in one transaction.
    fn migrate(&self, path: &Path, db: &Connection, found: usize) -> Result<(), OpenError> {
        let version = self.version();
        let run = || {
            db.execute_batch("BEGIN IMMEDIATE")?;
            for step in &self.migrations[found..] {
                db.execute_batch(step)?;
            }
            db.pragma_update(None, "user_version", version)?;
            // The checkpoint writes the new version to the header, where an older program reads it.
            db.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        };
        run().map_err(|source| OpenError::Migration { path: path.into(), version, source })?;
        tracing::info!(path = %path.display(), from = found, to = version, "database migrated");
        Ok(())
    }
}

/// Refuses a directory or a file that other users can read, or that a user other than root and this
/// process's owns. As root it allows a directory that others may enter but not read, because jobs
/// with their own users pass through it.
pub fn check_private(path: &Path) -> Result<(), OpenError> {
    let found = fs::metadata(path).map_err(|source| OpenError::io(path, source))?;
    let (mode, owner, user) = (found.mode() & 0o7777, found.uid(), geteuid().as_raw());
    if is_private(mode, found.is_dir() && user == 0) && (owner == user || owner == 0) {
        return Ok(());
    }
    Err(OpenError::Exposed { path: path.into(), mode, owner, user })
}

const fn is_private(mode: u32, may_be_passed: bool) -> bool {
    let of_others = mode & 0o077;
    of_others == 0 || (may_be_passed && of_others == 0o011)
}

/// The number of migrations that a database has had.
pub(crate) fn version_of(db: &Connection) -> rusqlite::Result<usize> {
    db.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

struct Header {
    version: usize,
    application_id: u32,
}

/// The header on disk; `None` if the file is absent or empty. SQLite reads it, as immutable: a file
/// that this process opened and closed itself would take away the locks of its connections.
fn read_header(path: &Path) -> Result<Option<Header>, OpenError> {
    let io = |source| OpenError::io(path, source);
    match fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => return Ok(None),
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(io(io::ErrorKind::IsADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let read = || {
        let db = open_immutable(path)?;
        let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i32>(0));
        let version = number("PRAGMA user_version")?.cast_unsigned();
        Ok(Header {
            version: usize::try_from(version).unwrap_or(usize::MAX),
            application_id: number("PRAGMA application_id")?.cast_unsigned(),
        })
    };
    read().map(Some).map_err(|error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path: path.into() },
        _ => OpenError::broken(path, error),
    })
}

/// Checks every page of a small file. It opens the file as immutable so that the check writes
/// nothing, and skips a file with a write-ahead log, which another process may have open.
fn check_pages(path: &Path) -> Result<(), OpenError> {
    let broken = |source| OpenError::broken(path, source);
    let size = fs::metadata(path).map_err(|source| OpenError::io(path, source))?.len();
    if size > CHECKED_WHOLE_BYTES_MAX || beside(path, "-wal").exists() {
        return Ok(());
    }
    let db = open_immutable(path).map_err(broken)?;
    let verdict: String =
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(broken)?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(OpenError::Damaged { path: path.into(), finding: verdict })
    }
}

/// A connection that takes no lock and writes nothing, and sees the file without its log.
fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(immutable_uri(path), flags)
}

/// What is escaped in the path of a URI.
const ESCAPED_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// The path as a URI, with special characters escaped.
fn immutable_uri(path: &Path) -> String {
    let path = percent_encode(path.as_os_str().as_bytes(), ESCAPED_IN_PATHS);
    format!("file:{path}?immutable=1")
}

/// `path` with a suffix, like SQLite names its own extra files.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a rename durable by syncing its directory.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;

//! One machine's directory: its files, and how to read and write them.
//!
//! A process that holds the gate writes `machine.json`; the supervisor that holds the lock writes
//! `boot.json`. So no file has two writers, and each write replaces the whole file.
//!
//! Not here: the contents of the files (`record`).

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{ItemKind, Unreadable};
use bullpen_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::record::{BootFile, MachineFile};
use bullpen_agent::machine::{ENDS_BY, USER_DATA};

/// The longest log to continue; a longer one is renamed, over the previous renamed log.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// One machine's directory.
#[derive(Clone, Debug)]
pub(super) struct MachineDirectory {
    path: PathBuf,
}

impl MachineDirectory {
    /// The directory at this path, which must be absolute and without symbolic links.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The mark of its processes, the same as [`bullpen_agent::machine::mark`] of the canonical
    /// path.
    pub(super) fn mark(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.path.join("life.lock")
    }

    pub(super) fn machine_file(&self) -> PathBuf {
        self.path.join("machine.json")
    }

    /// Fails if the directory was deleted. Any other trouble passes.
    pub(super) fn is_there(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("{} was deleted", self.path.display());
                Err(io::Error::new(io::ErrorKind::NotFound, what))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Makes the directory and the agent's directory, and writes the user data.
    pub(super) fn create(&self, user_data: &str) -> io::Result<()> {
        private_directory(&self.path.join("agent"))?;
        replace(&self.path.join(USER_DATA), user_data.as_bytes(), Durability::Process)
    }

    /// Moves large files to the trash and removes secrets; keeps the records.
    pub(super) fn clear(&self, trash: &Path) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default();
        absent_is_fine(fs::rename(self.path.join("agent"), trash.join(name)))?;
        absent_is_fine(fs::remove_file(self.path.join(USER_DATA)))?;
        self.clear_ends_by()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        absent_is_fine(fs::remove_dir_all(&self.path))
    }

    /// The fleet's record; `None` if the machine is not made yet or was removed. A power cut may
    /// leave an empty file, which also counts as `None`: its machine died with the host.
    pub(super) fn record(&self) -> io::Result<Option<MachineFile>> {
        read(&self.machine_file())
    }

    /// The machine, if one of its files cannot be read.
    pub(super) fn unreadable(&self, error: &io::Error) -> Unreadable {
        /// The part of every version of the file.
        #[derive(Deserialize)]
        struct Versioned {
            version: serde_json::Value,
        }
        let versioned = fs::read(self.machine_file()).ok();
        let versioned = versioned.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let name = self.path.file_name().unwrap_or_default();
        Unreadable {
            kind: ItemKind::Machine,
            key: name.to_string_lossy().into_owned(),
            version: versioned.map(|Versioned { version }| version.to_string()),
            why: format!("{}: {error}; the file was not changed", self.machine_file().display()),
        }
    }

    pub(super) fn write_record(&self, record: &MachineFile) -> io::Result<()> {
        write(&self.machine_file(), record, Durability::Process)
    }

    /// The last supervisor's record.
    pub(super) fn boot(&self) -> io::Result<Option<BootFile>> {
        read(&self.path.join("boot.json"))
    }

    pub(super) fn write_boot(&self, boot: &BootFile) -> io::Result<()> {
        write(&self.path.join("boot.json"), boot, Durability::Process)
    }

    /// When the agent wants the machine to end; `None` if it wrote no valid time.
    pub(super) fn ends_by(&self) -> Option<Timestamp> {
        fs::read_to_string(self.path.join(ENDS_BY)).ok()?.trim().parse().ok()
    }

    /// Removes the agent's end time: it holds for one boot only.
    pub(super) fn clear_ends_by(&self) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.path.join(ENDS_BY)))
    }

    /// Opens a log for appending.
    pub(super) fn log(&self, name: &str) -> io::Result<fs::File> {
        let path = self.path.join(name);
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
            fs::rename(&path, self.path.join(format!("{name}.1")))?;
        }
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)
    }
}

/// A machine's directory in the fleet's `directory`; `None` if the id is not a machine's.
pub(super) fn machine_directory(directory: &Path, id: &InstanceId) -> Option<MachineDirectory> {
    let name = id.as_str();
    let hex = name.strip_prefix("i-")?;
    let is_id = !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| MachineDirectory::at(directory.join(name)))
}

/// Makes a directory and its parents, accessible to this user alone.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The failure that a written file survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The death of any process.
    Process,
    /// A power cut.
    PowerCut,
}

/// Reads a document; `None` if the file is missing or empty.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Replaces a document atomically.
pub(super) fn write(path: &Path, document: &impl Serialize, lasts: Durability) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(document)?;
    bytes.push(b'\n');
    replace(path, &bytes, lasts)
}

fn replace(path: &Path, bytes: &[u8], lasts: Durability) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    if lasts == Durability::PowerCut {
        file.sync_all()?;
    }
    fs::rename(&beside, path)?;
    if lasts == Durability::PowerCut
        && let Some(directory) = path.parent()
    {
        fs::File::open(directory)?.sync_all()?;
    }
    Ok(())
}

pub(super) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

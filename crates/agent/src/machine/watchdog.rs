//! The watchdog of a machine of the process fleet: a time in a file, which the supervisor obeys.
//!
//! Not here: arming it at boot, or ending the machine (the fleet's supervisor).

use std::fs;
use std::io;
use std::path::PathBuf;

use bullpen_core::time::Timestamp;

use crate::host::Watchdog;

/// A watchdog in a file.
#[derive(Clone, Debug)]
pub struct FileWatchdog {
    path: PathBuf,
}

impl FileWatchdog {
    /// A watchdog in this file; the file's directory must exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn armed(&self) -> Option<Timestamp> {
        fs::read_to_string(&self.path).ok()?.trim().parse().ok()
    }
}

impl Watchdog for FileWatchdog {
    async fn shorten(&self, to: Timestamp) -> io::Result<()> {
        if self.armed().is_some_and(|armed| armed <= to) {
            return Ok(());
        }
        let next = self.path.with_extension("next");
        fs::write(&next, format!("{to}\n"))?;
        fs::rename(next, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_only_ever_shortened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ends-by");
        let watchdog = FileWatchdog::new(path.clone());
        for (to, then) in [(5_000, 5_000), (9_000, 5_000), (2_000, 2_000)] {
            watchdog.shorten(Timestamp::from_millis(to)).await.unwrap();
            assert_eq!(watchdog.armed(), Some(Timestamp::from_millis(then)));
        }
        assert_eq!(fs::read_to_string(path).unwrap(), "1970-01-01T00:00:02Z\n");
    }
}

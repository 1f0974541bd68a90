//! The web server that boot scripts fetch from, as a child of the test.
//!
//! Not here: what it answers (`web.py`).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bullpen_core::download::Download;
use tempfile::TempDir;

/// The one that the test EC2 runs in: it knows how AWS signs.
pub(crate) fn python() -> PathBuf {
    bullpen_faulty::tool("BULLPEN_EC2", "moto-", Path::new("bin/python"))
        .expect("moto is not there; `cargo xtask tools` installs it, once")
}

pub(crate) struct Web {
    process: Child,
    directory: TempDir,
    pub(crate) url: String,
}

impl Web {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut process = Command::new(python())
            .arg("-B")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boot/web.py"))
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut url)
            .expect("its address");
        Self { process, directory, url: url.trim_end().to_owned() }
    }

    /// Puts something on it; `place` is where it is fetched from.
    pub(crate) fn put(&self, place: &str, text: &str) -> Download {
        let name = place.rsplit('/').next().expect("a name");
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("written");
        let output = Command::new("sha256sum").arg(path).output().expect("it runs");
        let said = String::from_utf8(output.stdout).expect("text");
        let sha256 = said.split(' ').next().expect("a sum").to_owned();
        let is_whole = place.starts_with("s3://");
        let url = if is_whole { place.to_owned() } else { format!("{}/{place}", self.url) };
        Download { url, sha256 }
    }

    /// Every request, as method, path and status.
    pub(crate) fn requests(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join("requests")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Web {
    /// The end of its input is its own.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

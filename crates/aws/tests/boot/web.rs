//! The web server that boot scripts download from, as a child process of the test.
//!
//! Not here: its answers (`web.py`).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bullpen_core::download::Download;
use tempfile::TempDir;

/// The Python of the test EC2, which has AWS's signing library.
pub(crate) fn python() -> PathBuf {
    bullpen_faulty::tool("BULLPEN_EC2", "moto-", Path::new("bin/python"))
        .expect("moto not found; `cargo xtask tools` installs it, once")
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
            .expect("the server starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe"))
            .read_line(&mut url)
            .expect("its address");
        Self { process, directory, url: url.trim_end().to_owned() }
    }

    /// Serves a file; `address` is an address in S3 or a path on this server.
    pub(crate) fn put(&self, address: &str, text: &str) -> Download {
        let name = address.rsplit('/').next().expect("a name");
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("written");
        let output = Command::new("sha256sum").arg(path).output().expect("sha256sum");
        let output = String::from_utf8(output.stdout).expect("text");
        let sha256 = output.split(' ').next().expect("a sum").to_owned();
        let is_in_s3 = address.starts_with("s3://");
        let url = if is_in_s3 { address.to_owned() } else { format!("{}/{address}", self.url) };
        Download { url, sha256 }
    }

    /// Every request, as method, path and status.
    pub(crate) fn requests(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join("requests")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Web {
    /// Closing its input ends the server.
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

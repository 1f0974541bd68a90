//! Children of a test: this test program again, with only that test selected.
//!
//! The argument of `--skip` names the child's directory; the harness takes it for a test's name, and
//! no test has that name. A child's own lines have a prefix, because the harness prints too.
//!
//! Not here: what a child does.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The prefix of a child's own lines.
const MARK: &str = "child says:";

/// The directory to work in, if this process is a child.
pub(crate) fn child_directory() -> Option<PathBuf> {
    let mut arguments = env::args().skip_while(|argument| argument != "--skip");
    arguments.nth(1)?.strip_prefix("child in ").map(PathBuf::from)
}

/// A child; dropping it kills it.
pub(crate) struct Process {
    /// The process; its input is a pipe.
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs `test` of this program again, as a child.
    pub(crate) fn start(test: &str, directory: &Path) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1", "--skip"])
            .arg(format!("child in {}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The child's next line; `None` once no process holds its output open.
    pub(crate) fn receive(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if let Some((_, text)) = line.split_once(MARK) {
                return Some(text.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    /// Kills the child and waits until it is gone; its output can still be received.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    /// Kills the child also if the test fails.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Prints a line to the parent.
pub(crate) fn print_marked(text: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{MARK} {text}").unwrap();
    output.flush().unwrap();
}

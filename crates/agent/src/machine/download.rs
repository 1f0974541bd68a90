//! Downloading the runner program to its fixed place, where the image does not have it.
//!
//! It is a step of the warm-up like a user's script: it can be ended when the time is over, and the
//! tail of its output is in the report. That is why the checksum is `sha256sum`'s, which is where
//! bash and tar are: in this process it would be a step of another kind.
//!
//! Not here: giving a machine its own directory of the program (`install`).

use std::fs;
use std::io;
use std::path::Path;

use super::user_data::RunnerProgram;
use crate::warm_up::{Often, Step};

/// What is run.
const SCRIPT: &str = include_str!("download.sh");

/// The step, if there is anything that could be downloaded; the script is written to `path`.
pub(super) fn step(program: &RunnerProgram, path: &Path) -> io::Result<Option<Step>> {
    let RunnerProgram::Image { directory, download: Some(download) } = program else {
        return Ok(None);
    };
    fs::write(path, SCRIPT)?;
    let mut step = Step::bash("runner-download", path, Often::OncePerMachine);
    let directory = directory.to_string_lossy().into_owned();
    step.arguments.extend([directory, download.url.clone(), download.sha256.clone()]);
    Ok(Some(step))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::machine::Download;

    const PROGRAM: &str = "bin/Runner.Listener";

    /// An archive of a program, and its checksum.
    fn archive(at: &Path) -> Download {
        let script = r"mkdir -p r/bin && printf '#!/bin/sh\n' >r/bin/Runner.Listener &&
            chmod +x r/bin/Runner.Listener && tar -czf r.tar.gz -C r . && sha256sum r.tar.gz";
        let made = Command::new("bash").args(["-ec", script]).current_dir(at).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        let sha256 = said.split(' ').next().unwrap().to_owned();
        Download { url: format!("file://{}/r.tar.gz", at.display()), sha256 }
    }

    /// Whether the step succeeded, and what it said.
    fn run(directory: &Path, download: Download, script: &Path) -> (bool, String) {
        let directory = directory.to_owned();
        let program = RunnerProgram::Image { directory, download: Some(download) };
        let step = step(&program, script).unwrap().unwrap();
        let output = Command::new(step.program).args(step.arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn it_is_downloaded_once_and_what_is_there_wins() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { temp.path().join(name) };
        let download = archive(temp.path());
        let (ok, said) = run(&at("fixed"), download.clone(), &at("script"));
        assert!(ok && at("fixed").join(PROGRAM).exists(), "{said}");
        fs::remove_file(at("r.tar.gz")).unwrap();
        let (ok, said) = run(&at("fixed"), download, &at("script"));
        assert!(ok && said.contains("the image has the program"), "{said}");
        assert!(!at("fixed.new").exists() && !at("fixed.tar.gz").exists());
    }

    #[test]
    fn a_wrong_checksum_says_which_was_expected_and_found() {
        let temp = tempfile::tempdir().unwrap();
        let right = archive(temp.path());
        let wrong = Download { sha256: "0".repeat(64), ..right.clone() };
        let fixed = temp.path().join("fixed");
        let (ok, said) = run(&fixed, wrong.clone(), &temp.path().join("script"));
        assert!(!ok && said.contains(&wrong.sha256) && said.contains(&right.sha256), "{said}");
        assert!(!fixed.exists() && !temp.path().join("fixed.tar.gz").exists());
    }

    #[test]
    fn a_program_of_another_kind_needs_no_step() {
        let program = RunnerProgram::Image { directory: "/opt/runner".into(), download: None };
        assert_eq!(step(&program, Path::new("/nowhere/script")).unwrap(), None);
    }
}

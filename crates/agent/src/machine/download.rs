//! Fetches files that the image does not have: the runner program and scripts.
//!
//! Each fetch is a warm-up step in bash like a user's script, so the agent can end it at the
//! deadline and report the tail of its output. The step also checks the checksum, with `sha256sum`.
//!
//! Not here: giving a machine its own directory of the program (`install`).

use std::fs;
use std::io;
use std::path::Path;

use bullpen_core::download::Download;

use super::user_data::RunnerProgram;
use crate::warm_up::{Frequency, Step};

/// Bash functions that fetch a file, for scripts to include: `bring URL SHA256 PLACE` tries for
/// `$patience` seconds.
pub const FETCH: &str = include_str!("fetch.sh");
/// Longer than the warm-up may take, so that a slow line does not end the step early.
const PATIENCE: &str = "patience=3600\n";

const PROGRAM: &str = include_str!("download.sh");
const SCRIPT: &str = include_str!("fetched.sh");

/// Makes the step that downloads the runner program, if it has an address, and writes the step's
/// script to `path`.
pub(super) fn program(program: &RunnerProgram, path: &Path) -> io::Result<Option<Step>> {
    let RunnerProgram::Image { directory, download: Some(download) } = program else {
        return Ok(None);
    };
    let step = Step::bash("runner-download", path, Frequency::OncePerMachine);
    fetching(step, PROGRAM, path, (download, directory)).map(Some)
}

/// Makes the step that runs a script. It writes the script to `path`, or the step fetches it to a
/// file beside `path`.
pub(super) fn script(step: Step, text: &str, path: &Path) -> io::Result<Step> {
    match Download::named_by(text) {
        Some(Ok(download)) => {
            fetching(step, SCRIPT, path, (&download, &path.with_extension("fetched.sh")))
        }
        // The configuration refuses a malformed address; here it would fail as a command.
        Some(Err(_)) | None => fs::write(path, text).map(|()| step),
    }
}

fn fetching(
    mut step: Step,
    script: &str,
    path: &Path,
    (download, place): (&Download, &Path),
) -> io::Result<Step> {
    fs::write(path, [PATIENCE, FETCH, script].concat())?;
    let place = place.to_string_lossy().into_owned();
    step.arguments.extend([download.url.clone(), download.sha256.clone(), place]);
    Ok(step)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    const LISTENER: &str = "bin/Runner.Listener";

    /// Packs an archive with a program, and returns its address and checksum.
    fn archive(at: &Path) -> Download {
        let script = r"mkdir -p r/bin && printf '#!/bin/sh\n' >r/bin/Runner.Listener &&
            chmod +x r/bin/Runner.Listener && tar -czf r.tar.gz -C r . && sha256sum r.tar.gz";
        let made = Command::new("bash").args(["-ec", script]).current_dir(at).output().unwrap();
        let said = String::from_utf8(made.stdout).unwrap();
        let sha256 = said.split(' ').next().unwrap().to_owned();
        Download { url: format!("file://{}/r.tar.gz", at.display()), sha256 }
    }

    /// Runs the step; returns whether it succeeded, and its output.
    fn run(directory: &Path, download: Download, script: &Path) -> (bool, String) {
        let directory = directory.to_owned();
        let program = RunnerProgram::Image { directory, download: Some(download) };
        let step = super::program(&program, script).unwrap().unwrap();
        ran(&step)
    }

    fn ran(step: &Step) -> (bool, String) {
        let output = Command::new(&step.program).args(&step.arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn it_is_downloaded_once_and_what_is_there_wins() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { temp.path().join(name) };
        let download = archive(temp.path());
        let (ok, said) = run(&at("fixed"), download.clone(), &at("script"));
        assert!(ok && at("fixed").join(LISTENER).exists(), "{said}");
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
    fn a_script_is_fetched_once_and_run_each_time_as_strictly_as_any() {
        let temp = tempfile::tempdir().unwrap();
        let source = temp.path().join("setup.sh");
        fs::write(&source, "echo it runs\nfalse\necho it goes on\n").unwrap();
        let said = Command::new("sha256sum").arg(&source).output().unwrap().stdout;
        let sha256 = String::from_utf8(said).unwrap()[..64].to_owned();
        let download = Download { url: format!("file://{}", source.display()), sha256 };
        let path = temp.path().join("preinstall.sh");
        let step = Step::bash("preinstall", &path, Frequency::EachBoot);
        let place = path.with_extension("fetched.sh");
        let step = fetching(step, SCRIPT, &path, (&download, &place)).unwrap();
        for _ in 0..2 {
            assert_eq!(ran(&step), (false, "it runs\n".to_owned()));
            // The second run must not fetch again.
            let _ = fs::remove_file(&source);
        }
    }

    #[test]
    fn an_address_in_place_of_a_script_is_fetched_and_a_script_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("prerun.sh");
        let step = Step::bash("prerun", &path, Frequency::EachBoot);
        assert_eq!(script(step.clone(), "true", &path).unwrap(), step);
        assert_eq!(fs::read_to_string(&path).unwrap(), "true");
        let sum = "0".repeat(64);
        let fetched = script(step, &format!("s3://b/k#sha256={sum}"), &path).unwrap();
        assert_eq!(fetched.arguments[5..7], ["s3://b/k".to_owned(), sum]);
        assert!(fs::read_to_string(&path).unwrap().contains(FETCH));
    }

    #[test]
    fn a_program_of_another_kind_needs_no_step() {
        let program = RunnerProgram::Image { directory: "/opt/runner".into(), download: None };
        assert_eq!(super::program(&program, Path::new("/nowhere/script")).unwrap(), None);
    }

    /// A server with an https address must not be able to redirect the fetch to plain http.
    #[test]
    fn an_https_address_never_leads_to_http() {
        use std::io::{BufRead as _, BufReader};
        use std::process::Stdio;

        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let fixture = |name: &str| crates.join("github/fixtures").join(name);
        let mut servers = Command::new("python3")
            .arg(crates.join("agent/tests/redirect.py"))
            .args([fixture("test-server.pem"), fixture("test-server-key.pem")])
            .arg("hostile")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(servers.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        // One try only, with the file's right checksum.
        let sha256 = "8f383ccddc6f17eb57a96c711523e4a8072d8e791b4a773ea0153e0d993d03e1";
        let bring = format!("patience=-1\n{FETCH}bring {} {sha256} {}", url.trim(), path.display());
        let fetched = Command::new("bash")
            .args(["-c", &bring])
            .env("CURL_CA_BUNDLE", fixture("test-ca.pem"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&fetched.stdout).into_owned();
        let why = String::from_utf8_lossy(&fetched.stderr).into_owned();
        drop(servers.stdin.take());
        servers.wait().unwrap();
        assert!(!fetched.status.success() && said.contains("could not fetch"), "{said}{why}");
        assert!(why.contains("Protocol \"http\""), "{why}");
        assert!(!place.path().join("file.new").exists(), "nothing of it was kept");
    }
}

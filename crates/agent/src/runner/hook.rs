//! The hook that the runner program calls before a job's first step. It reports the job's run, and
//! does not return for a job of another run than the machine serves.
//!
//! The script and its report are files in the runner's directory, which the program's user can
//! reach. The script's text contains the expected run, because a job can set variables. The script
//! then calls the image's own hook, also one named in `.env`, which the program would prefer.
//!
//! Not here: what the agent does about a stranger (`agent_life`), or when it looks for the report
//! (`watch`).

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use bullpen_core::ids::Repository;
use bullpen_core::mailbox::Assignment;
use bullpen_core::request::stranger::RanJob;
use rustix::fs::OFlags;

use super::leftovers::absent_is_fine;
use super::process::RunnerPaths;

/// The variable that names the hook, in the runner program's environment or its `.env`.
pub(super) const VARIABLE: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";
/// The script, in the runner's directory.
pub(super) const SCRIPT: &str = "bullpen-job-started.sh";
/// The script's report, in the runner's directory.
const REPORT: &str = ".bullpen-job";
/// The file in the state directory with the path of the image's own hook; empty if it has none.
const OF_THE_IMAGE: &str = "hook-of-the-image";
/// The most bytes of a report to read. GitHub's names are far shorter.
const REPORT_BYTES_MAX: u64 = 4 * 1024;
/// The most characters of each value to keep.
const WORD_CHARS_MAX: usize = 200;
const BODY: &str = include_str!("job_started.sh");

/// Writes the script for this assignment, and returns its path.
pub(super) fn install(place: &RunnerPaths, to: &Assignment) -> io::Result<PathBuf> {
    remove_report(&place.root);
    let path = place.root.join(SCRIPT);
    let theirs = of_the_image(place, &path)?;
    let own = to.own_run.clone().unwrap_or_default();
    let repository = own.repository.map(|own| own.as_str().to_ascii_lowercase());
    let run = own.run.map(|run| run.to_string());
    let report = place.root.join(REPORT);
    let mut text = String::from("#!/bin/bash\n");
    for (name, value) in [
        ("report", &*report.to_string_lossy()),
        ("own_repository", repository.as_deref().unwrap_or_default()),
        ("own_run", run.as_deref().unwrap_or_default()),
        ("images_hook", &*theirs),
    ] {
        let _ = writeln!(text, "{name}={}", quoted(value));
    }
    text.push_str(BODY);
    replace(&path, text.as_bytes(), 0o755, None)?;
    Ok(path)
}

/// The script's report on a job, if there is a complete one. An unreadable value becomes run 0 or
/// an empty name, which no run has: a report that is not ours must not match the expected run.
pub(super) fn read_report(root: &Path) -> Option<RanJob> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = File::options().read(true).custom_flags(flags).open(root.join(REPORT)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.ends_with("\nend\n").then(|| parse(&text))
}

/// Removes the report after the agent read it, or before a new listener starts.
pub(super) fn remove_report(root: &Path) {
    // A job may have made a directory of that name; it is no report, and ends with the machine.
    let _ = fs::remove_file(root.join(REPORT));
}

fn parse(text: &str) -> RanJob {
    let word = |name: &str| -> String {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
        found.unwrap_or_default().chars().take(WORD_CHARS_MAX).collect()
    };
    RanJob {
        repository: Repository::new(word("repository")),
        run: word("run").parse().unwrap_or(0),
        attempt: word("attempt").parse().unwrap_or(0),
        job: word("job"),
        event: word("event"),
    }
}

/// The path of the image's own hook; empty if it has none. The agent looks it up once, before a job
/// could have written one, and removes it from `.env`, which the program prefers to its
/// environment.
fn of_the_image(place: &RunnerPaths, ours: &Path) -> io::Result<String> {
    let in_env_file = take_from_env_file(&place.root.join(".env"))?;
    let memory = place.state.join(OF_THE_IMAGE);
    match fs::read_to_string(&memory) {
        Ok(known) => return Ok(known),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let of_process = || place.environment.get(VARIABLE).cloned();
    let theirs = in_env_file.or_else(of_process).unwrap_or_default();
    let theirs = if Path::new(&theirs) == ours { String::new() } else { theirs };
    replace(&memory, theirs.as_bytes(), 0o600, None)?;
    Ok(theirs)
}

/// Removes the lines that name a hook, and returns the value of the last.
fn take_from_env_file(path: &Path) -> io::Result<Option<String>> {
    let (text, file) = match fs::read_to_string(path) {
        Ok(text) => (text, fs::metadata(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let value = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == VARIABLE).then(|| value.trim().to_owned())
    };
    let Some(theirs) = text.lines().filter_map(value).next_back() else { return Ok(None) };
    let rest: Vec<&str> = text.lines().filter(|line| value(line).is_none()).collect();
    let (mode, owner) = (file.permissions().mode(), (file.uid(), file.gid()));
    replace(path, format!("{}\n", rest.join("\n")).as_bytes(), mode, Some(owner))?;
    Ok(Some(theirs))
}

/// Replaces a file atomically. Jobs may add files to the directory, so it removes an entry with the
/// draft's name first and does not write through it.
fn replace(path: &Path, text: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!("{name}.next"));
    absent_is_fine(fs::remove_file(&draft))?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&draft)?;
    file.write_all(text)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    if let Some((uid, gid)) = owner {
        chown(&draft, Some(uid), Some(gid))?;
    }
    fs::rename(draft, path)
}

/// Quotes a text as one word of bash.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bullpen_core::ids::{Generation, RequestId, RunnerName};
    use bullpen_core::instance::Owner;
    use bullpen_core::request::stranger::OwnRun;
    use bullpen_core::time::Timestamp;

    use std::os::unix::process::CommandExt as _;

    use rustix::process::{Pid, Signal, kill_process_group};

    use super::*;

    #[test]
    fn a_word_is_read_once_it_is_complete() {
        let root = tempfile::tempdir().unwrap();
        let report = root.path().join(REPORT);
        assert_eq!(read_report(root.path()), None);
        fs::write(&report, "repository=acme/app\nrun=7\n").unwrap();
        assert_eq!(read_report(root.path()), None, "the script is still writing");
        fs::write(&report, "repository=acme/app\nrun=7\nattempt=2\njob=a\nevent=push\nend\n")
            .unwrap();
        let ran = read_report(root.path()).unwrap();
        let expected = RanJob {
            repository: Repository::new("acme/app"),
            run: 7,
            attempt: 2,
            job: "a".to_owned(),
            event: "push".to_owned(),
        };
        assert_eq!(ran, expected);
        remove_report(root.path());
        assert_eq!(read_report(root.path()), None);
    }

    #[test]
    fn an_unreadable_report_matches_no_run() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(REPORT), "run=none\njob=x\nend\n").unwrap();
        let ran = read_report(root.path()).unwrap();
        assert_eq!((ran.run, ran.repository.as_str()), (0, ""));
        remove_report(root.path());
        std::os::unix::fs::symlink("/etc/passwd", root.path().join(REPORT)).unwrap();
        assert_eq!(read_report(root.path()), None, "no link is followed");
    }

    #[test]
    fn an_images_hook_is_taken_out_of_its_env_file_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(".env");
        assert_eq!(take_from_env_file(&path).unwrap(), None);
        fs::write(&path, format!("LANG=C\n{VARIABLE}=/opt/hook.sh\nA=b\n")).unwrap();
        assert_eq!(take_from_env_file(&path).unwrap().as_deref(), Some("/opt/hook.sh"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "LANG=C\nA=b\n");
        assert_eq!(take_from_env_file(&path).unwrap(), None);
    }

    #[test]
    fn a_quote_ends_no_word() {
        assert_eq!(quoted("a'b"), "'a'\\''b'");
    }

    /// The script in a directory whose image has its own hook, for an assignment of run 7.
    fn installed(root: &Path) -> PathBuf {
        let place = RunnerPaths {
            root: root.to_owned(),
            work: root.join("_work"),
            temp: root.join("tmp"),
            state: root.join("state"),
            mark: String::from("mark"),
            boot: String::from("boot"),
            url: String::from("https://github.invalid/acme/app"),
            environment: BTreeMap::new(),
            user: None,
            confinement: None,
        };
        fs::create_dir(&place.state).unwrap();
        let (theirs, ran) = (root.join("theirs.sh"), root.join("ran"));
        fs::write(&theirs, format!("touch {}", ran.display())).unwrap();
        fs::write(root.join(".env"), format!("{VARIABLE}={}\n", theirs.display())).unwrap();
        let own_run = OwnRun { repository: Some(Repository::new("Acme/App")), run: Some(7) };
        let to = Assignment {
            generation: Generation(1),
            owner: Owner::Request(RequestId::new("7.1.build")),
            runner: RunnerName::new("runner"),
            label: String::from("label"),
            credential: None,
            register_by: None,
            hard_cap: Timestamp::EPOCH,
            issued_at: None,
            own_run: Some(own_run),
            group: None,
            ephemeral: false,
        };
        install(&place, &to).unwrap()
    }

    /// Starts the hook like the runner program does, for a job of this run.
    fn started(script: &Path, repository: &str, run: &str) -> std::process::Child {
        std::process::Command::new("bash")
            .arg("-e")
            .arg(script)
            .env("GITHUB_REPOSITORY", repository)
            .env("GITHUB_RUN_ID", run)
            .env("own_run", run)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    #[test]
    fn the_runs_own_job_goes_on_after_the_images_own_hook() {
        let root = tempfile::tempdir().unwrap();
        let script = installed(root.path());
        assert!(started(&script, "acme/app", "7").wait().unwrap().success());
        assert_eq!(read_report(root.path()).unwrap().run, 7);
        assert!(root.path().join("ran").exists(), "the image's hook was called");
    }

    #[test]
    fn a_strangers_job_does_not_get_past_the_hook() {
        let root = tempfile::tempdir().unwrap();
        let script = installed(root.path());
        for (repository, run) in [("acme/app", "8"), ("acme/other", "7"), ("acme/app", "")] {
            let mut hook = started(&script, repository, run);
            let ran = loop {
                match read_report(root.path()) {
                    Some(ran) => break ran,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(ran.repository.as_str(), repository);
            assert_eq!(hook.try_wait().unwrap(), None, "it waits to be killed");
            // Kill the group: its `sleep` would outlive it.
            kill_process_group(Pid::from_child(&hook), Signal::KILL).unwrap();
            hook.wait().unwrap();
            remove_report(root.path());
        }
        assert!(!root.path().join("ran").exists(), "no other hook is called for a stranger");
    }
}

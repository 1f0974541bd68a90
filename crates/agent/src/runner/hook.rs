//! The hook that the runner program calls before a job's first step: it says which run the job is of,
//! and does not return for a job of another run than the machine is for.
//!
//! The script and what it says are files of the runner's directory, which the program's user can
//! reach. What the script compares with is part of its text: a job can set variables. A hook that the
//! image has is called after ours, also one that its `.env` names, which the program would prefer.
//!
//! Not here: what the agent does about a stranger (`life`), or when it looks for the word (`watch`).

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

/// How the runner program is told of it; also in its `.env`.
pub(super) const VARIABLE: &str = "ACTIONS_RUNNER_HOOK_JOB_STARTED";
/// The script, in the runner's directory.
pub(super) const SCRIPT: &str = "bullpen-job-started.sh";
/// What the script has said, in the runner's directory.
const SAID: &str = ".bullpen-job";
/// The file in the state that remembers the image's own hook; an empty one that it has none.
const OF_THE_IMAGE: &str = "hook-of-the-image";
/// Bytes of what the script said that are read. GitHub's names are far shorter.
const SAID_BYTES_MAX: u64 = 4 * 1024;
/// Characters kept of each thing it said.
const WORD_CHARS_MAX: usize = 200;
const BODY: &str = include_str!("job_started.sh");

/// Writes the script for this assignment, and returns where it is.
pub(super) fn install(place: &RunnerPaths, to: &Assignment) -> io::Result<PathBuf> {
    forget(&place.root);
    let path = place.root.join(SCRIPT);
    let theirs = of_the_image(place, &path)?;
    let own = to.own_run.clone().unwrap_or_default();
    let repository = own.repository.map(|own| own.as_str().to_ascii_lowercase());
    let run = own.run.map(|run| run.to_string());
    let said = place.root.join(SAID);
    let mut text = String::from("#!/bin/bash\n");
    for (name, value) in [
        ("said", &*said.to_string_lossy()),
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

/// What the script has said of a job, if it has spoken since the last time. What cannot be read of it
/// is as no run's: a word that is not ours must not pass for one.
pub(super) fn heard(root: &Path) -> Option<RanJob> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = File::options().read(true).custom_flags(flags).open(root.join(SAID)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(SAID_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.ends_with("\nend\n").then(|| read(&text))
}

/// It was heard, or is about a job of another listener.
pub(super) fn forget(root: &Path) {
    // A directory of that name would be a job's; it says nothing, and goes with the machine.
    let _ = fs::remove_file(root.join(SAID));
}

fn read(text: &str) -> RanJob {
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

/// The hook that the image has; empty if it has none. Looked up once, before any job could have
/// written one, and taken out of `.env`, which the program would believe rather than its environment.
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

/// Removes the lines that name a hook, and returns what the last of them said.
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

/// Writes a file anew, as a whole or not at all. Jobs may add files to the directory, so nothing that
/// is there by the draft's name is written through.
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

/// As one word of bash, whatever is in it.
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
        let said = root.path().join(SAID);
        assert_eq!(heard(root.path()), None);
        fs::write(&said, "repository=acme/app\nrun=7\n").unwrap();
        assert_eq!(heard(root.path()), None, "the script is still writing");
        fs::write(&said, "repository=acme/app\nrun=7\nattempt=2\njob=a\nevent=push\nend\n")
            .unwrap();
        let ran = heard(root.path()).unwrap();
        let expected = RanJob {
            repository: Repository::new("acme/app"),
            run: 7,
            attempt: 2,
            job: "a".to_owned(),
            event: "push".to_owned(),
        };
        assert_eq!(ran, expected);
        forget(root.path());
        assert_eq!(heard(root.path()), None);
    }

    #[test]
    fn what_cannot_be_read_is_no_runs_word() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(SAID), "run=none\njob=x\nend\n").unwrap();
        let ran = heard(root.path()).unwrap();
        assert_eq!((ran.run, ran.repository.as_str()), (0, ""));
        forget(root.path());
        std::os::unix::fs::symlink("/etc/passwd", root.path().join(SAID)).unwrap();
        assert_eq!(heard(root.path()), None, "no link is followed");
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

    /// A place whose image has a hook of its own, and an assignment of run 7.
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

    /// The hook as the runner program starts it, for a job of this run.
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
        assert_eq!(heard(root.path()).unwrap().run, 7);
        assert!(root.path().join("ran").exists(), "the image's hook was called");
    }

    #[test]
    fn a_strangers_job_does_not_get_past_the_hook() {
        let root = tempfile::tempdir().unwrap();
        let script = installed(root.path());
        for (repository, run) in [("acme/app", "8"), ("acme/other", "7"), ("acme/app", "")] {
            let mut hook = started(&script, repository, run);
            let ran = loop {
                match heard(root.path()) {
                    Some(ran) => break ran,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(ran.repository.as_str(), repository);
            assert_eq!(hook.try_wait().unwrap(), None, "it waits to be killed");
            // With what it waits by, which would outlive it.
            kill_process_group(Pid::from_child(&hook), Signal::KILL).unwrap();
            hook.wait().unwrap();
            forget(root.path());
        }
        assert!(!root.path().join("ran").exists(), "no other hook is called for a stranger");
    }
}

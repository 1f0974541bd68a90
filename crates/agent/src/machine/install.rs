//! Makes a machine's own runner directory, because the program writes its registration there.
//!
//! The program's files are hard links to the configured directory where the file system allows it,
//! so a machine costs neither time nor space. A writer of one copy therefore changes both: if jobs
//! run as the agent's user, namespaces make the files read-only (`crate::runner::confine`). If jobs
//! have their own user, it may add files to the directory but change none of the program's.
//!
//! Not here: downloading the program (`download`).

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Layout;
use super::user_data::RunnerProgram;
use crate::runner::user::User;

/// The program's path in its directory.
const PROGRAM: &str = "bin/Runner.Listener";
/// The program that checks whether a file is executable.
pub(super) const TEST: &str = "/usr/bin/test";
/// Entries of the configured directory that belong to another runner's registration and jobs.
const NOT_OURS: &[&str] = &[
    ".runner",
    ".credentials",
    ".credentials_rsaparams",
    ".runner_migrated",
    ".credentials_migrated",
    ".service",
    "svc.sh",
    "_diag",
    "_work",
];

/// Makes the directory atomically.
pub(super) fn install(
    program: &RunnerProgram,
    layout: &Layout,
    user: Option<&User>,
) -> io::Result<()> {
    let (target, draft) = (layout.runner(), layout.agent("runner.new"));
    for old in [&draft, &target] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match program {
        RunnerProgram::Directory(source) | RunnerProgram::Image { directory: source, .. } => {
            share(source, &draft, user)?;
        }
        RunnerProgram::StandIn { command } => write_program(command, &draft)?,
    }
    if !draft.join(PROGRAM).exists() {
        let text = format!("the runner's directory has no {PROGRAM}");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    fs::create_dir(draft.join("_work"))?;
    if let Some(user) = user {
        hand_over(&draft, user)?;
    }
    fs::rename(draft, &target)?;
    match symlink("runner/_work", layout.agent("work")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Checks that jobs can run the program, before the first owner waits for it. `tried` starts
/// [`TEST`] like a job's program.
pub(super) fn is_reachable(layout: &Layout, mut tried: Command, who: &str) -> io::Result<()> {
    let program = layout.runner().join(PROGRAM);
    let output = tried.arg("-x").arg(&program).env_clear().output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let text = format!("{who} cannot run {}: {}", program.display(), said.trim());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Lets this user add files, and remove only its own.
fn hand_over(directory: &Path, user: &User) -> io::Result<()> {
    user.own(&directory.join("_work"))?;
    chown(directory, None, Some(user.gid))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1775))
}

/// Links the files to another path. It copies files that this user could change. If jobs run as the
/// agent's user, it copies the few files at the top: the program reads some of them.
fn share(source: &Path, target: &Path, user: Option<&User>) -> io::Result<()> {
    // Copying a directory that contains the machine into the machine would never end.
    if target.starts_with(fs::canonicalize(source)?) {
        let text = format!("{} holds this machine", source.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut left = vec![(source.to_owned(), target.to_owned())];
    while let Some((from, to)) = left.pop() {
        fs::create_dir(&to)?;
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let name = entry.file_name();
            if from == source && NOT_OURS.iter().any(|other| name == *other) {
                continue;
            }
            let (path, next): (PathBuf, PathBuf) = (entry.path(), to.join(&name));
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push((path, next));
            } else if kind.is_symlink() {
                symlink(fs::read_link(path)?, next)?;
            } else {
                let theirs = user.map_or(from == source, |user| is_of(&entry, user));
                if theirs || fs::hard_link(&path, &next).is_err() {
                    fs::copy(path, next)?;
                }
            }
        }
    }
    Ok(())
}

fn is_of(entry: &fs::DirEntry, user: &User) -> bool {
    entry.metadata().is_ok_and(|found| found.uid() == user.uid)
}

/// Makes the official layout around a command.
fn write_program(command: &[String], target: &Path) -> io::Result<()> {
    let program = target.join(PROGRAM);
    fs::create_dir_all(target.join("bin"))?;
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    fs::write(&program, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(directory: &Path) -> Layout {
        fs::create_dir_all(directory.join("m/agent")).unwrap();
        // Canonical, as in `live`.
        Layout::of(&fs::canonicalize(directory.join("m")).unwrap())
    }

    #[test]
    fn a_machine_shares_the_programs_files_and_not_its_registration() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("official");
        fs::create_dir_all(source.join("bin")).unwrap();
        fs::create_dir_all(source.join("_work/leftover")).unwrap();
        for (name, text) in [(PROGRAM, "#!/bin/sh\n"), (".runner", "theirs"), (".env", "LANG=C")] {
            fs::write(source.join(name), text).unwrap();
        }
        symlink("Runner.Listener", source.join("bin/link")).unwrap();
        let layout = layout(directory.path());
        let program = RunnerProgram::Directory(source);
        for _ in 0..2 {
            install(&program, &layout, None).unwrap();
        }
        let runner = layout.runner();
        assert!(runner.join(PROGRAM).exists() && runner.join(".env").exists());
        assert!(runner.join("bin/link").is_symlink() && !runner.join(".runner").exists());
        let links = |name: &str| fs::metadata(runner.join(name)).unwrap().nlink();
        assert_eq!((links(PROGRAM), links(".env")), (2, 1), "a job's `.env` is one machine's");
        fs::write(layout.work().join("x"), "").unwrap();
        assert!(layout.agent("work/x").exists() && !runner.join("_work/leftover").exists());
    }

    #[test]
    fn a_directory_without_the_program_is_refused_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(directory.path());
        let empty = directory.path().join("empty");
        fs::create_dir(&empty).unwrap();
        for (source, kind) in [
            (empty, io::ErrorKind::NotFound),
            (directory.path().join("absent"), io::ErrorKind::NotFound),
            (directory.path().to_owned(), io::ErrorKind::InvalidInput),
        ] {
            let refused = install(&RunnerProgram::Directory(source), &layout, None).unwrap_err();
            assert_eq!(refused.kind(), kind, "{refused}");
            assert!(!layout.runner().exists());
        }
    }

    #[test]
    fn a_command_is_taken_word_by_word() {
        let directory = tempfile::tempdir().unwrap();
        let layout = layout(directory.path());
        let command = ["printf", "<%s>", "it's $HOME"].map(String::from).to_vec();
        install(&RunnerProgram::StandIn { command }, &layout, None).unwrap();
        let output = std::process::Command::new(layout.runner().join(PROGRAM)).arg("a b").output();
        assert_eq!(output.unwrap().stdout, b"<it's $HOME><a b>");
    }

    #[test]
    fn a_user_may_add_to_the_directory_and_share_nothing_that_it_could_change() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can change its user; the gate runs this as root.
        }
        let directory = tempfile::tempdir_in("/var/lib").unwrap();
        let uid = 2_000_000 + std::process::id();
        let user = User {
            name: "jobs".into(),
            uid,
            gid: uid,
            groups: Vec::new(),
            home: "/nonexistent".into(),
        };
        let source = directory.path().join("image");
        fs::create_dir_all(source.join("bin")).unwrap();
        for name in [PROGRAM, "bin/theirs"] {
            fs::write(source.join(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        chown(source.join("bin/theirs"), Some(uid), None).unwrap();
        let (layout, program) =
            (layout(directory.path()), RunnerProgram::Directory(source.clone()));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let test = || user.command(Path::new(TEST));
        install(&program, &layout, Some(&user)).unwrap();
        let error = is_reachable(&layout, test(), &user.name).unwrap_err();
        assert!(error.to_string().contains("jobs cannot run"), "{error}");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
        install(&program, &layout, Some(&user)).unwrap();
        is_reachable(&layout, test(), &user.name).unwrap();
        let file = |path: PathBuf| fs::metadata(path).unwrap();
        let is_shared =
            |name: &str| file(source.join(name)).ino() == file(layout.runner().join(name)).ino();
        assert!(is_shared(PROGRAM) && !is_shared("bin/theirs"));
        assert_eq!(file(layout.runner().join("bin/theirs")).uid(), 0);
        assert_eq!(file(layout.runner().join("bin")).uid(), 0);
        let runner = file(layout.runner());
        assert_eq!((runner.uid(), runner.gid(), runner.mode() & 0o7777), (0, uid, 0o1775));
        assert_eq!(file(layout.work()).uid(), uid);
    }
}

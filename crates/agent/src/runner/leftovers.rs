//! What the jobs' own user left on a machine, and how it is removed before the next owner's jobs.
//!
//! | what | which of it goes |
//! |---|---|
//! | timetables, lingering sessions | all |
//! | containers, networks, volumes | all, where there is a container engine; images stay |
//! | temporary directories | whatever belongs to the user |
//! | the home directory | whatever was made or changed after the warm-up |
//!
//! What the image and the warm-up put into the home stays, because its change time is not after the
//! [`stamp`] that the warm-up leaves at its end; a user without root cannot set that time. A file of
//! the image's that a job changed is removed, not restored.
//!
//! Whatever cannot be removed is an error, and a machine that cannot be cleaned is not used again.
//!
//! Not here: ending the user's processes, which goes first (`process`), or what a job with root left:
//! such a machine serves one trust group.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::user::User;

/// Where anybody may write.
const SHARED: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];
/// Directories with a file per user of what is run for it later, or without it.
const PER_USER: &[&str] =
    &["/var/spool/cron/crontabs", "/var/spool/cron", "/var/lib/systemd/linger"];
/// Jobs for later, which are files of their users.
const LATER: &[&str] = &["/var/spool/cron/atjobs", "/var/spool/at"];

/// Where the container engine listens, or what starts it does.
const ENGINE: &str = "/var/run/docker.sock";

/// What is listed and removed at the container engine.
const CONTAINERS: &[(&[&str], &[&str])] = &[
    (&["ps", "--all", "--quiet"], &["rm", "--force", "--volumes"]),
    (&["network", "ls", "--quiet", "--filter", "type=custom"], &["network", "rm"]),
    (&["volume", "ls", "--quiet"], &["volume", "rm", "--force"]),
];

/// What one user left.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers {
    user: User,
    /// The machine's files; `/`, but in tests.
    root: PathBuf,
    /// Where programs are looked for.
    path: String,
    stamp: PathBuf,
}

impl Leftovers {
    /// On this machine, with the stamp in this file.
    pub(crate) fn new(user: User, path: &str, stamp: PathBuf) -> Self {
        Self { user, root: PathBuf::from("/"), path: path.to_owned(), stamp }
    }

    /// Removes what would start again by itself; before the processes are ended.
    pub(crate) fn stop_what_comes_again(&self) -> io::Result<()> {
        for directory in PER_USER {
            absent_is_fine(fs::remove_file(self.at(directory).join(&self.user.name)))?;
        }
        LATER.iter().try_for_each(|directory| self.remove_owned(&self.at(directory)))
    }

    /// Removes the rest, also from the runner's directory; when no process of the user's runs any
    /// more.
    pub(crate) fn remove(&self, runner: &Path) -> io::Result<()> {
        self.remove_containers()?;
        self.remove_owned(runner)?;
        for directory in SHARED {
            self.remove_owned(&self.at(directory))?;
        }
        self.remove_owned(&self.at("/run/user").join(self.user.uid.to_string()))?;
        let since = self.since()?;
        remove_changed(&self.at(&self.user.home.to_string_lossy()), since)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Everything that belongs to the user below this directory, at any depth.
    fn remove_owned(&self, directory: &Path) -> io::Result<()> {
        for (path, found) in entries(directory)? {
            if found.uid() == self.user.uid {
                remove(&path, &found)?;
            } else if found.is_dir() {
                self.remove_owned(&path)?;
            }
        }
        Ok(())
    }

    /// When the warm-up ended, by the clock that stamps files.
    fn since(&self) -> io::Result<(i64, i64)> {
        let told = |error| {
            io::Error::other(format!("nothing says what the warm-up left in the home: {error}"))
        };
        let since = changed(&fs::metadata(&self.stamp).map_err(told)?);
        let probe = self.stamp.with_extension("now");
        fs::write(&probe, "")?;
        if changed(&fs::metadata(&probe)?) < since {
            return Err(io::Error::other("the clock went back, and what is new cannot be told"));
        }
        Ok(since)
    }

    fn remove_containers(&self) -> io::Result<()> {
        for (list, removal) in CONTAINERS {
            let Some(listed) = self.engine(list, &[])? else { return Ok(()) };
            let ids: Vec<&str> = listed.split_ascii_whitespace().collect();
            if !ids.is_empty() {
                self.engine(removal, &ids)?;
            }
        }
        Ok(())
    }

    /// What the container engine answers; nothing if there is none. Its program alone is no engine: one that
    /// does not run, and that nothing would start, has no containers.
    fn engine(&self, words: &[&str], ids: &[&str]) -> io::Result<Option<String>> {
        let mut docker = Command::new("docker");
        docker.args(words).args(ids).env_clear().env("PATH", &self.path).stdin(Stdio::null());
        let output = match docker.output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if !output.status.success() && !self.at(ENGINE).exists() {
            return Ok(None);
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let text = format!("docker {}: {}: {}", words.join(" "), output.status, said.trim());
            return Err(io::Error::other(text));
        }
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// Notes that the warm-up is over: what is in the home now may stay there.
pub(crate) fn stamp(file: &Path) -> io::Result<()> {
    let next = file.with_extension("next");
    absent_is_fine(fs::remove_file(&next))?;
    fs::write(&next, "")?;
    // Renaming is a change of the file, and the last one before the first job.
    fs::rename(next, file)
}

/// Removes what is newer, at any depth, and directories that are newer and empty then.
fn remove_changed(directory: &Path, since: (i64, i64)) -> io::Result<()> {
    for (path, found) in entries(directory)? {
        let is_new = changed(&found) > since;
        if found.is_dir() {
            remove_changed(&path, since)?;
            if is_new && entries(&path)?.is_empty() {
                fs::remove_dir(&path)?;
            }
        } else if is_new {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// What is in a directory, if there is one; links are not followed.
fn entries(directory: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => found.push((entry.path(), metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn remove(path: &Path, found: &Metadata) -> io::Result<()> {
    absent_is_fine(if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

fn changed(file: &Metadata) -> (i64, i64) {
    (file.ctime(), file.ctime_nsec())
}

/// What is gone already need not be removed.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    /// A machine in a directory whose jobs are this process's own user, and its engine's calls.
    struct Yard {
        directory: tempfile::TempDir,
        leftovers: Leftovers,
    }

    impl Yard {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("root");
            let uid = fs::metadata(directory.path()).unwrap().uid();
            let user = User {
                name: "runner".into(),
                uid,
                gid: uid,
                groups: Vec::new(),
                home: "/home/runner".into(),
            };
            let path = directory.path().join("bin").to_string_lossy().into_owned();
            let stamp = directory.path().join("home.stamp");
            for name in SHARED.iter().chain(PER_USER).chain(&["/home/runner/.config", "/outside"]) {
                fs::create_dir_all(root.join(&name[1..])).unwrap();
            }
            fs::create_dir(&path).unwrap();
            Self { directory, leftovers: Leftovers { user, root, path, stamp } }
        }

        fn write(&self, path: &str) -> PathBuf {
            let path = self.leftovers.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            path
        }

        /// Time passes as files see it: their clock ticks a few hundred times a second.
        fn tick(&self) {
            let (probe, mut writes) = (self.directory.path().join("tick"), 0_u32);
            fs::write(&probe, "").unwrap();
            let before = changed(&fs::metadata(&probe).unwrap());
            while changed(&fs::metadata(&probe).unwrap()) <= before {
                fs::write(&probe, "").unwrap();
                writes += 1;
                assert!(writes < 10_000_000, "the clock of files stands still");
            }
        }

        fn clean(&self) -> io::Result<()> {
            self.leftovers.remove(&self.leftovers.at("/runner"))
        }

        fn docker(&self, script: &str) {
            let path = self.directory.path().join("bin/docker");
            fs::write(&path, format!("#!/bin/bash\necho \"$@\" >>{}\n{script}\n", self.calls()))
                .unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn calls(&self) -> String {
            self.directory.path().join("calls").to_string_lossy().into_owned()
        }
    }

    #[test]
    fn the_home_is_as_the_warm_up_left_it() {
        let yard = Yard::new();
        let kept = yard.write("/home/runner/.cargo/config");
        let changed = yard.write("/home/runner/.profile");
        yard.tick();
        stamp(&yard.leftovers.stamp).unwrap();
        yard.tick();
        fs::write(&changed, "alias sudo=evil").unwrap();
        let left = yard.write("/home/runner/.aws/credentials");
        let deep = yard.write("/home/runner/.cargo/bin/tool");
        let outside = yard.write("/outside/precious");
        symlink(yard.leftovers.at("/outside"), yard.leftovers.at("/home/runner/link")).unwrap();
        yard.clean().unwrap();
        assert!(kept.exists() && !changed.exists() && !deep.exists());
        assert!(!left.parent().unwrap().exists(), "new and empty directories go");
        assert!(outside.exists() && !yard.leftovers.at("/home/runner/link").is_symlink());
    }

    #[test]
    fn without_a_stamp_nothing_tells_what_is_new() {
        let yard = Yard::new();
        yard.clean().unwrap_err();
    }

    #[test]
    fn what_is_the_users_goes_wherever_anybody_may_write() {
        let yard = Yard::new();
        stamp(&yard.leftovers.stamp).unwrap();
        let files = [
            "/tmp/a",
            "/var/tmp/deep/er/b",
            "/dev/shm/c",
            "/runner/.env",
            "/var/spool/cron/crontabs/runner",
        ];
        let files = files.map(|path| yard.write(path));
        let other = yard.write("/var/spool/cron/crontabs/root");
        yard.leftovers.stop_what_comes_again().unwrap();
        assert!(!files[4].exists() && other.exists());
        yard.clean().unwrap();
        assert!(files.iter().all(|path| !path.exists()));
    }

    #[test]
    fn what_is_somebody_elses_stays() {
        let yard = Yard::new();
        if yard.leftovers.user.uid != 0 {
            return; // Only root can give a file away.
        }
        stamp(&yard.leftovers.stamp).unwrap();
        let (theirs, mine) = (yard.write("/tmp/theirs/file"), yard.write("/tmp/theirs/mine"));
        for path in [&theirs, &theirs.parent().unwrap().to_owned()] {
            chown(path, Some(77), None).unwrap();
        }
        yard.clean().unwrap();
        assert!(theirs.exists() && !mine.exists());
    }

    #[test]
    fn containers_networks_and_volumes_go_and_trouble_is_not_hidden() {
        let yard = Yard::new();
        stamp(&yard.leftovers.stamp).unwrap();
        yard.docker("echo 'is it running?' >&2; exit 1");
        yard.clean().expect("no engine runs");
        fs::remove_file(yard.calls()).unwrap();
        yard.write(ENGINE);
        yard.docker(
            "case $1 in ps) echo c1; echo c2;; volume) [[ $2 == ls ]] && echo v1;; esac; true",
        );
        yard.clean().unwrap();
        let calls = fs::read_to_string(yard.calls()).unwrap();
        assert_eq!(
            calls.lines().collect::<Vec<_>>(),
            [
                "ps --all --quiet",
                "rm --force --volumes c1 c2",
                "network ls --quiet --filter type=custom",
                "volume ls --quiet",
                "volume rm --force v1",
            ]
        );
        yard.docker("echo 'permission denied' >&2; exit 1");
        let error = yard.clean().unwrap_err().to_string();
        assert!(error.contains("permission denied") && error.contains("docker ps"), "{error}");
    }
}

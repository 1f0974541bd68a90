//! Starting programs that cannot see the host they share with the service: as another user, in mount,
//! process and user namespaces, by `unshare`, `mount` and `setpriv` of the system.
//!
//! The first process of the namespaces is a shell that hides directories under empty ones, binds what
//! jobs need over them again, and waits. It keeps the rights that this takes, and the program gets none:
//! so jobs cannot undo it, trace it or end it. Everything in there ends with it.
//!
//! Not here: whether the host allows any of it (the fleet), or the user of an EC2 machine (`user`).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::leftovers::absent_is_fine;
use crate::machine::{Isolation, Limits};

const UNSHARE: &str = "/usr/bin/unshare";
const SETPRIV: &str = "/usr/bin/setpriv";
const SHELL: &str = "/bin/sh";
/// Where everybody may write, and jobs get something of their own.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const SHARED_MEMORY: &str = "/dev/shm";
/// The parts of the runner program that jobs of the same user must not change.
const PROGRAM_PARTS: [&str; 2] = ["bin", "externals"];
/// The first file that the shell holds open, and how many there can be besides its table.
const FIRST_FILE: usize = 3;
const FILES_MAX: usize = 6;
/// The shell's table of what it binds.
const TABLE_FILE: usize = 9;

/// How one machine's programs are started.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// What holds them.
    pub isolation: Isolation,
    /// The runner's directory, where they start.
    pub root: PathBuf,
    /// Where they put temporary files.
    pub temp: PathBuf,
    /// Where the agent's own files are: the tables of mounts.
    pub state: PathBuf,
    /// Programs that they need, wherever those are.
    pub programs: Vec<PathBuf>,
}

impl Confinement {
    /// A command that is held.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        let mut words: Vec<std::ffi::OsString> = Vec::new();
        if let Some(limits) = &self.isolation.limits {
            match limits.make() {
                // Everything that the shell becomes and starts is in there from then on.
                Ok(()) => {
                    let enter = "echo $$ >\"$0/cgroup.procs\"; exec \"$@\"";
                    words.extend([SHELL, "-c", enter].map(Into::into));
                    words.push(limits.cgroup.clone().into());
                }
                Err(error) => tracing::warn!(%error, "jobs are not limited by a cgroup"),
            }
        }
        if self.isolation.namespaces {
            let script = self.prepare()?;
            words.extend(unshare(&self.isolation).into_iter().map(Into::into));
            words.extend([SHELL, "-c", &script, "sh"].map(Into::into));
        }
        words.extend(setpriv(&self.isolation).into_iter().map(Into::into));
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Writes the shell's tables; returns its script.
    fn prepare(&self) -> io::Result<String> {
        let Isolation { user, hidden, secrets, visible, .. } = &self.isolation;
        let mut kept: Vec<PathBuf> = vec![self.root.clone(), self.temp.clone()];
        kept.extend(
            self.programs.iter().chain(visible).filter_map(|path| path.canonicalize().ok()),
        );
        let directories: Vec<PathBuf> =
            hidden.iter().filter(|path| path.is_dir()).cloned().collect();
        let secrets: Vec<PathBuf> = secrets.iter().filter(|path| path.is_file()).cloned().collect();
        let mut plan = Mounts::plan(&directories, &kept, &secrets);
        if user.is_none() {
            let parts = PROGRAM_PARTS.iter().map(|part| self.root.join(part));
            plan.fixed = parts.filter(|part| part.is_dir()).collect();
        }
        let (covers, binds) = (self.state.join("covers"), self.state.join("binds"));
        fs::write(&covers, plan.covers())?;
        fs::write(&binds, plan.binds(&self.temp))?;
        let is_file = |path: &Path| path.is_file();
        Ok(plan.script(&covers, &binds, &self.root, is_file))
    }
}

impl Limits {
    /// Makes the cgroup as it is to be.
    pub fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.cgroup) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.files.iter().try_for_each(|(file, text)| fs::write(self.cgroup.join(file), text))
    }
}

fn unshare(isolation: &Isolation) -> Vec<&'static str> {
    let mut words = vec![UNSHARE];
    if isolation.user.is_none() {
        words.extend(["--user", "--map-current-user", "--keep-caps"]);
    }
    words.extend(["--mount", "--pid", "--ipc", "--fork", "--kill-child"]);
    if isolation.own_processes {
        words.push("--mount-proc");
    }
    words
}

/// No rights, and none to be had.
fn setpriv(isolation: &Isolation) -> Vec<String> {
    let mut words = vec![SETPRIV.to_owned()];
    if let Some(id) = isolation.user {
        words.extend([format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".into()]);
    }
    let none = ["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"];
    words.extend(none.map(String::from));
    words
}

/// What is mounted where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mounts {
    /// Directories that are covered by empty ones, and their options.
    covered: Vec<(PathBuf, &'static str)>,
    /// What is bound over those again.
    kept: Vec<PathBuf>,
    /// Where the machine's own temporary files are as well.
    temporary: Vec<PathBuf>,
    /// Files that are empty.
    secrets: Vec<PathBuf>,
    /// What nothing may be written to.
    fixed: Vec<PathBuf>,
}

impl Mounts {
    fn plan(hidden: &[PathBuf], kept: &[PathBuf], secrets: &[PathBuf]) -> Self {
        let below =
            |path: &Path, directory: &Path| path != directory && path.starts_with(directory);
        let mut covered: Vec<(PathBuf, &str)> = vec![(SHARED_MEMORY.into(), "mode=1777")];
        let mut temporary = Vec::new();
        for directory in TEMPORARY.map(PathBuf::from) {
            if kept.iter().any(|one| below(one, &directory)) {
                covered.push((directory, "mode=1777"));
            } else {
                temporary.push(directory);
            }
        }
        covered.extend(hidden.iter().map(|path| (path.clone(), "mode=711,size=1m")));
        let others = covered.clone();
        covered.retain(|(path, _)| !others.iter().any(|(other, _)| below(path, other)));
        covered.sort();
        covered.dedup_by(|one, other| one.0 == other.0);
        let is_covered = |path: &Path| covered.iter().any(|(other, _)| path.starts_with(other));
        let kept: Vec<PathBuf> = kept.iter().filter(|path| is_covered(path)).cloned().collect();
        let secrets = secrets.iter().filter(|path| !is_covered(path)).cloned().collect();
        Self { covered, kept, temporary, secrets, fixed: Vec::new() }
    }

    fn covers(&self) -> String {
        let line = |(path, options): &(PathBuf, &str)| {
            format!("bullpen {} tmpfs {options},nosuid,nodev 0 0\n", escaped(path))
        };
        self.covered.iter().map(line).collect()
    }

    fn binds(&self, temp: &Path) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut line = |from: &str, to: &Path, options: &str| {
            lines.push(format!("{from} {} none {options} 0 0\n", escaped(to)));
        };
        for (number, path) in self.files() {
            line(&format!("/proc/self/fd/{number}"), path, "rbind");
        }
        for path in &self.temporary {
            line(&escaped(temp), path, "rbind");
        }
        for path in &self.secrets {
            line("/dev/null", path, "bind");
        }
        for path in &self.fixed {
            line(&escaped(path), path, "bind,ro,nosuid,nodev");
        }
        lines.concat()
    }

    fn files(&self) -> impl Iterator<Item = (usize, &PathBuf)> {
        self.kept.iter().take(FILES_MAX).enumerate().map(|(at, path)| (FIRST_FILE + at, path))
    }

    /// What was opened before it was covered leads out of the namespace: all of it is closed, and the
    /// way to where the program starts is gone anew.
    fn script(
        &self,
        covers: &Path,
        binds: &Path,
        root: &Path,
        is_file: impl Fn(&Path) -> bool,
    ) -> String {
        let mut lines = vec!["set -eu; umask 022".to_owned()];
        for (number, path) in self.files() {
            lines.push(format!("exec {number}<{}", quoted(path)));
        }
        lines.push(format!("exec {TABLE_FILE}<{}", quoted(binds)));
        lines.push(format!("/bin/mount -a -c -T {}", quoted(covers)));
        let (mut made, mut empty) = (Vec::new(), Vec::new());
        for (_, path) in self.files() {
            if is_file(path) {
                made.extend(path.parent().map(quoted));
                empty.push(format!(": >{}", quoted(path)));
            } else {
                made.push(quoted(path));
            }
        }
        lines.push(format!("/bin/mkdir -p {}", made.join(" ")));
        lines.extend(empty);
        lines.push(format!("/bin/mount -a -c -T /proc/self/fd/{TABLE_FILE}"));
        let numbers = self.files().map(|(number, _)| number).chain([TABLE_FILE]);
        lines.push(format!(
            "exec {}",
            numbers.map(|number| format!("{number}<&-")).collect::<Vec<_>>().join(" ")
        ));
        lines.push(format!("cd {}", quoted(root)));
        // A signal to the group is the program's to answer, and the shell waits for it.
        lines.push("trap : HUP INT QUIT TERM; set +e\n\"$@\"\nexit $?".to_owned());
        lines.join("\n")
    }
}

/// A word of a shell.
fn quoted(path: impl AsRef<Path>) -> String {
    format!("'{}'", path.as_ref().to_string_lossy().replace('\'', r"'\''"))
}

/// A word of a table of mounts.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|byte| if plain(*byte) { char::from(*byte).into() } else { format!("\\{byte:03o}") })
        .collect()
}

/// The directory to hide so that another user can reach what is bound below it: the state itself, or
/// the highest one on the way to it that others may not pass through.
pub fn cover_of(state: &Path) -> PathBuf {
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 == 0);
    let mut ways: Vec<&Path> = state.ancestors().collect();
    ways.reverse();
    ways.into_iter().find(is_closed).unwrap_or(state).to_owned()
}

/// Removes what belongs to this user below a directory, at any depth.
pub(crate) fn remove_owned(directory: &Path, uid: u32) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(found) = entry.metadata() else { continue };
        let path = entry.path();
        if found.uid() == uid {
            let is_dir = found.is_dir();
            absent_is_fine(if is_dir {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            })?;
        } else if found.is_dir() {
            remove_owned(&path, uid)?;
        }
    }
    Ok(())
}

/// Removes what a machine's own user left where everybody may write. In namespaces that is the
/// machine's own, and is emptied with it.
pub(crate) fn remove_left(isolation: &Isolation, root: &Path) -> io::Result<()> {
    let Some(uid) = isolation.user else { return Ok(()) };
    remove_owned(root, uid)?;
    if isolation.namespaces {
        return Ok(());
    }
    let shared = TEMPORARY.iter().chain([&SHARED_MEMORY]);
    shared.into_iter().try_for_each(|directory| remove_owned(Path::new(directory), uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_is_needed_below_a_hidden_directory_is_bound_again() {
        let kept = paths(&["/s/m/runner", "/s/m/temp", "/usr/bin/bullpen"]);
        let plan = Mounts::plan(
            &paths(&["/s", "/home/ci", "/home/ci/x"]),
            &kept,
            &paths(&["/s/k", "/etc/k"]),
        );
        let covered: Vec<&Path> = plan.covered.iter().map(|(path, _)| &**path).collect();
        assert_eq!(covered, paths(&["/dev/shm", "/home/ci", "/s"]));
        assert_eq!(plan.kept, kept[..2]);
        assert_eq!(plan.temporary, paths(&["/tmp", "/var/tmp"]));
        assert_eq!(plan.secrets, paths(&["/etc/k"]), "what is covered needs nothing else");
        let binds = plan.binds(Path::new("/s/m/temp"));
        assert!(binds.starts_with("/proc/self/fd/3 /s/m/runner none rbind 0 0\n"), "{binds}");
        assert!(binds.contains("/s/m/temp /tmp none rbind") && binds.contains("/dev/null /etc/k"));
    }

    #[test]
    fn a_state_below_tmp_is_found_in_an_empty_tmp() {
        let plan = Mounts::plan(&paths(&["/tmp/a"]), &paths(&["/tmp/a/runner"]), &[]);
        let covered: Vec<&Path> = plan.covered.iter().map(|(path, _)| &**path).collect();
        assert_eq!(covered, paths(&["/dev/shm", "/tmp"]));
        assert_eq!(plan.temporary, paths(&["/var/tmp"]));
    }

    #[test]
    fn nothing_that_leads_out_stays_open() {
        let plan = Mounts::plan(&paths(&["/s"]), &paths(&["/s/runner", "/s/it's"]), &[]);
        let no_file = |_: &Path| false;
        let script =
            plan.script(Path::new("/s/c"), Path::new("/s/b"), Path::new("/s/runner"), no_file);
        let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("no {text} in {script}"));
        assert!(at("exec 3<'/s/runner'") < at("mount -a -c -T '/s/c'"));
        assert!(script.contains(r"exec 4<'/s/it'\''s'"), "{script}");
        assert!(at("fd/9") < at("exec 3<&- 4<&- 9<&-") && at("9<&-") < at("cd '/s/runner'"));
        assert!(at("cd '/s/runner'") < at("\"$@\""));
    }

    #[test]
    fn names_with_spaces_are_one_word() {
        assert_eq!(escaped(Path::new("/my dir/#1")), r"/my\040dir/\0431");
    }

    #[test]
    fn jobs_get_no_rights() {
        let own = Isolation { user: Some(7), namespaces: true, ..Isolation::default() };
        assert!(
            setpriv(&own).join(" ").contains("--reuid=7 --regid=7 --clear-groups --no-new-privs")
        );
        assert!(!unshare(&own).contains(&"--user") && !unshare(&own).contains(&"--mount-proc"));
        let shared = Isolation { namespaces: true, own_processes: true, ..Isolation::default() };
        assert!(unshare(&shared).contains(&"--user") && unshare(&shared).contains(&"--mount-proc"));
        assert!(setpriv(&shared).iter().any(|word| word == "--bounding-set=-all"));
    }

    #[test]
    fn a_cgroup_is_made_as_it_is_to_be_and_again() {
        let tree = tempfile::tempdir().unwrap();
        let quota = bullpen_core::isolation::Quota { vcpu: 2, memory_mib: 1, processes_max: 9 };
        let files = quota.files().map(|(file, text)| (file.to_owned(), text)).into();
        let limits = Limits { cgroup: tree.path().join("i-1"), processes_max: 9, files };
        limits.make().unwrap();
        limits.make().unwrap();
        let read = |file: &str| fs::read_to_string(tree.path().join("i-1").join(file)).unwrap();
        assert_eq!((read("cpu.max"), read("pids.max")), ("200000 100000".into(), "9".into()));
        assert_eq!(read("memory.max"), "1048576");
    }
}

//! Starts programs that cannot see the host they share with the service: as another user, in mount,
//! process and user namespaces, with the system's `unshare`, `mount` and `setpriv`.
//!
//! The first process of the namespaces is a shell. It mounts empty directories over the hidden
//! ones, binds what jobs need into them again, and waits. It keeps its capabilities and the program
//! gets none, so jobs cannot undo the mounts, trace the shell or end it. When it ends, the kernel
//! ends everything in its namespaces.
//!
//! Not here: whether the host allows any of it (the fleet), or the user of an EC2 machine (`user`).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bullpen_core::isolation::{ROOTS_FRIENDS, cgroup_mounts, telling_groups};
use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid, getgroups};

use super::leftovers::absent_is_fine;
use super::program;
use crate::machine::{Isolation, Limits};
use mounts::{MountRequest, Mounts, SHARED_MEMORY, TEMPORARY};

mod mounts;

const UNSHARE: &str = "/usr/bin/unshare";
const SETPRIV: &str = "/usr/bin/setpriv";
const SHELL: &str = "/bin/sh";
/// Moves the shell, and so every program that it executes, into the cgroup of its first argument.
const ENTER: &str = "echo $$ >\"$0/cgroup.procs\" || exit 1";
/// In its own cgroup namespace a job could mount its cgroup again, and change it, because its user
/// owns it. If the namespaces share the host's `/proc`, the write may fail; the fleet checks and
/// reports that.
const NO_CGROUP_NAMESPACES: &str = "echo 0 >/proc/sys/user/max_cgroup_namespaces";
/// The file with the names of groups.
const GROUPS: &str = "/etc/group";
/// Where most hosts mount cgroups, of both versions.
const CGROUPS: &str = "/sys/fs/cgroup";

/// How the agent starts one machine's programs.
#[derive(Clone, Debug)]
pub struct Confinement {
    /// How they are kept from the host.
    pub isolation: Isolation,
    /// The runner's directory, their working directory.
    pub root: PathBuf,
    /// Their directory for temporary files.
    pub temp: PathBuf,
    /// The agent's own files, here the tables of mounts.
    pub state: PathBuf,
    /// Other programs that they need, also in hidden directories.
    pub programs: Vec<PathBuf>,
    /// The names of the jobs' groups that give rights beyond their user's.
    pub groups: Vec<String>,
}

/// The groups that give jobs more rights if they run as the agent's own user.
pub fn own_groups() -> Vec<String> {
    let all = getgroups().unwrap_or_default();
    let all: Vec<u32> = all.into_iter().map(rustix::process::Gid::as_raw).collect();
    let names = fs::read_to_string(GROUPS).unwrap_or_default();
    telling_groups(getegid().as_raw(), &all, &names)
}

impl Confinement {
    /// An error if jobs could have left files where the agent does not find them: members of a
    /// container engine's group, for example, can change its images, its caches and root's files.
    pub(crate) fn is_cleanable(&self) -> io::Result<()> {
        match self.groups.iter().find(|name| ROOTS_FRIENDS.contains(&name.as_str())) {
            Some(name) => Err(io::Error::other(format!(
                "jobs are in the group {name} and can become root: what they left cannot be found"
            ))),
            None => Ok(()),
        }
    }

    /// The command that starts `program` in this confinement.
    pub fn command(&self, program: &Path) -> io::Result<Command> {
        let mut words: Vec<std::ffi::OsString> = Vec::new();
        let limits = self.isolation.limits.as_ref().filter(|limits| match limits.make() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "no cgroup limits the jobs");
                false
            }
        });
        if let Some(limits) = limits {
            let enter = format!("{ENTER}; exec \"$@\"");
            words.extend([SHELL, "-c", &enter].map(Into::into));
            words.push(limits.cgroup.clone().into());
        }
        if self.isolation.namespaces {
            let script = self.prepare(limits)?;
            words.extend(unshare(&self.isolation, limits.is_some()).into_iter().map(Into::into));
            words.extend([SHELL, "-c", &script, "sh"].map(Into::into));
        }
        words.extend(setpriv(&self.isolation).into_iter().map(Into::into));
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Writes the shell's tables of mounts; returns its script.
    fn prepare(&self, limits: Option<&Limits>) -> io::Result<String> {
        let mut plan = Mounts::plan(&self.wanted(limits)?, may_change);
        if self.isolation.user.is_none() {
            plan.parts = program::parts(&self.root, &self.state)?;
        }
        let (covers, binds) = (self.state.join("covers"), self.state.join("binds"));
        fs::write(&covers, plan.covers())?;
        fs::write(&binds, plan.binds(&self.temp))?;
        let is_file = |path: &Path| path.is_file();
        let script = plan.script(&covers, &binds, &self.root, is_file);
        Ok(match (self.isolation.user, self.isolation.own_processes) {
            (Some(_), _) => script,
            (None, true) => format!("{NO_CGROUP_NAMESPACES} || exit 1\n{script}"),
            (None, false) => format!("{NO_CGROUP_NAMESPACES} 2>/dev/null || :\n{script}"),
        })
    }

    fn wanted(&self, limits: Option<&Limits>) -> io::Result<MountRequest> {
        let Isolation { user, hidden, secrets, fixed, visible, .. } = &self.isolation;
        // Resolve links now: they may lead elsewhere than at the launch.
        let real = |path: &PathBuf| path.canonicalize().ok();
        let mut kept: Vec<PathBuf> = vec![self.root.clone(), self.temp.clone()];
        kept.extend(self.programs.iter().chain(visible).filter_map(real));
        let mut wanted = MountRequest {
            hidden: hidden.iter().filter(|path| path.is_dir()).cloned().collect(),
            kept,
            secrets: secrets.iter().filter_map(real).filter(|path| path.is_file()).collect(),
            fixed: fixed.iter().filter_map(real).collect(),
            ..MountRequest::default()
        };
        if user.is_none() {
            // Jobs run as the service's user, who owns these cgroups: a job could lift its limits
            // or end the service there.
            let mounted = cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo")?);
            let all = mounted.into_iter().chain([PathBuf::from(CGROUPS)]);
            wanted.cgroups = all.filter(|path| path.is_dir()).collect();
            wanted.own_cgroup = limits.map(|limits| limits.cgroup.clone());
        }
        Ok(wanted)
    }
}

/// Whether this process's user could rename entries of a directory. The owner of a directory can
/// always give itself that right.
fn may_change(directory: &Path) -> bool {
    let is_own = |found: fs::Metadata| found.uid() == geteuid().as_raw();
    access(directory, Access::WRITE_OK).is_ok() || fs::metadata(directory).is_ok_and(is_own)
}

impl Limits {
    /// Creates and configures the cgroup, and checks that a process can enter it.
    pub fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.cgroup) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut files = self.files.iter();
        files.try_for_each(|(file, text)| fs::write(self.cgroup.join(file), text))?;
        let mut tried = Command::new(SHELL);
        tried.args(["-c", ENTER]).arg(&self.cgroup).env_clear().stdin(Stdio::null());
        let output = tried.output()?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("no process can enter the cgroup: {}", stderr.trim())))
    }
}

fn unshare(isolation: &Isolation, is_limited: bool) -> Vec<&'static str> {
    let mut words = vec![UNSHARE];
    if isolation.user.is_none() {
        words.extend(["--user", "--map-current-user", "--keep-caps"]);
    }
    words.extend(["--mount", "--pid", "--ipc", "--fork", "--kill-child"]);
    if isolation.own_processes {
        words.push("--mount-proc");
    }
    if is_limited {
        // A program that looks up its cgroup's path then finds the machine's limits.
        words.push("--cgroup");
    }
    words
}

/// Drops all capabilities, and the way to get any.
fn setpriv(isolation: &Isolation) -> Vec<String> {
    let mut words = vec![SETPRIV.to_owned()];
    if let Some(id) = isolation.user {
        words.extend([format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".into()]);
    }
    let none = ["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"];
    words.extend(none.map(String::from));
    words
}

/// The directory to hide so that another user can reach the directories bound below it: the
/// highest parent of `state` that other users may not enter, or `state` itself.
pub fn cover_of(state: &Path) -> PathBuf {
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 == 0);
    let mut ways: Vec<&Path> = state.ancestors().collect();
    ways.reverse();
    ways.into_iter().find(is_closed).unwrap_or(state).to_owned()
}

/// Removes this user's files below a directory, at any depth.
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

/// Removes the files of a machine's own user in directories that every user may write to. In
/// namespaces the machine has its own such directories, and cleaning empties them.
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

    #[test]
    fn jobs_get_no_rights() {
        let own = Isolation { user: Some(7), namespaces: true, ..Isolation::default() };
        assert!(
            setpriv(&own).join(" ").contains("--reuid=7 --regid=7 --clear-groups --no-new-privs")
        );
        let words = unshare(&own, false);
        assert!(!["--user", "--mount-proc", "--cgroup"].iter().any(|word| words.contains(word)));
        let shared = Isolation { namespaces: true, own_processes: true, ..Isolation::default() };
        let words = unshare(&shared, true);
        assert!(["--user", "--mount-proc", "--cgroup"].iter().all(|word| words.contains(word)));
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

    #[test]
    fn a_cgroup_that_nothing_can_be_put_into_limits_nothing() {
        let tree = tempfile::tempdir().unwrap();
        let limits = Limits { cgroup: tree.path().join("i-1"), ..Limits::default() };
        // A directory of that name: root could write to a file of every mode.
        fs::create_dir_all(limits.cgroup.join("cgroup.procs")).unwrap();
        let error = limits.make().unwrap_err().to_string();
        assert!(error.starts_with("no process can enter the cgroup: "), "{error}");
    }
}

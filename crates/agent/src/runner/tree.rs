//! Finds and signals the processes of one instance, by a mark in their environment.
//!
//! A *marked* process started with `BULLPEN_LISTENER_OF=<mark>` in its environment; its children
//! inherit it. Marks nest: `<mark>/agent` is *under* `<mark>`. An [`Identity`] is a process id with
//! its start time, because the kernel reuses ids. A process that drops or hides its environment
//! escapes the search; the agent still ends it by the listener's process group, or by its user
//! ([`kill_of_user`]) if jobs have their own.
//!
//! Not here: starting a process (`process`).

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The kernel's flag for its own threads, which have no environment.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// How often to read an empty environment again. During an exec it is empty for a moment; few
/// processes have none at all.
const EMPTY_READS_MAX: u32 = 50;

/// The variable that holds the mark.
pub const MARK: &str = "BULLPEN_LISTENER_OF";

/// Identifies a process while the machine is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its id.
    pub pid: i32,
    /// When it started, in ticks since the boot.
    pub started: u64,
}

/// The used fields of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    zombie: bool,
    kernel: bool,
    group: i32,
    started: u64,
}

impl Identity {
    /// The process that has this id now.
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, started: stat.started })
    }

    /// Whether the process still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.zombie)
    }

    /// Signals the group that this process leads, if the process still runs.
    pub fn signal_group(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) else { return Ok(()) };
        gone_is_fine(kill_process_group(pid, signal))
    }

    /// Kills this process and no other.
    pub fn kill(self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends SIGTERM to this process and no other.
    pub fn warn(self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Opens a handle first and checks the identity after that: the handle never means another
    /// process.
    fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) if self.is_alive() => gone_is_fine(pidfd_send_signal(handle, signal)),
            Ok(_) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Every running process with this mark, except this process.
pub fn marked(mark: &str) -> io::Result<Vec<Identity>> {
    with_mark(|found| found == mark.as_bytes())
}

/// Every running process under one of these marks, except this process, in one pass over all.
pub fn under(marks: &BTreeSet<String>) -> io::Result<Vec<Identity>> {
    with_mark(|found| is_under(found, marks))
}

/// Whether a mark is one of these, or begins with one of them and a slash.
fn is_under(mark: &[u8], marks: &BTreeSet<String>) -> bool {
    let Ok(mark) = std::str::from_utf8(mark) else { return false };
    let above = mark.match_indices('/').map(|(end, _)| &mark[..end]);
    above.chain([mark]).any(|one| marks.contains(one))
}

fn with_mark(is_wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Identity>> {
    let variable = format!("{MARK}=");
    let mut found = Vec::new();
    for identity in processes()? {
        let Some(environment) = environment(identity.pid) else { continue };
        let mut marks = environment
            .split(|byte| *byte == 0)
            .filter_map(|one| one.strip_prefix(variable.as_bytes()));
        if marks.any(&is_wanted) && identity.is_alive() {
            found.push(identity);
        }
    }
    Ok(found)
}

/// The marked process that leads a group: the listener itself.
pub fn leader(mark: &str) -> io::Result<Option<Identity>> {
    let leads = |one: &Identity| stat(one.pid).is_some_and(|stat| stat.group == one.pid);
    Ok(marked(mark)?.into_iter().find(leads))
}

/// Kills every process with this mark; returns how many there were.
pub fn kill_marked(mark: &str) -> io::Result<usize> {
    let all = marked(mark)?;
    for one in &all {
        one.kill()?;
    }
    Ok(all.len())
}

/// Kills every process of this user; returns how many there were. This includes a process that
/// changed its user while one of its four user ids is still this one.
pub fn kill_of_user(uid: u32) -> io::Result<usize> {
    let all = of_users(&BTreeSet::from([uid]))?;
    for one in &all {
        one.kill()?;
    }
    Ok(all.len())
}

/// Every running process of these users, except this process.
pub fn of_users(uids: &BTreeSet<u32>) -> io::Result<Vec<Identity>> {
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let is_theirs = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        users(&status).any(|one| uids.contains(&one))
    };
    Ok(processes()?.filter(|one| is_theirs(one.pid) && one.is_alive()).collect())
}

/// A process's user ids: real, effective, saved, and for files.
fn users(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|one| one.parse().ok())
}

/// Every process except this one. It takes the identity before a caller reads more: if the kernel
/// reuses the id in between, the start time differs.
fn processes() -> io::Result<impl Iterator<Item = Identity>> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let names: Vec<_> = fs::read_dir("/proc")?
        .map(|process| process.map(|process| process.file_name()))
        .collect::<io::Result<_>>()?;
    let ids = names.into_iter().filter_map(|name| name.to_str()?.parse::<i32>().ok());
    Ok(ids.filter(move |pid| *pid != own).filter_map(Identity::of))
}

/// The environment that a process started with; `None` if it is gone or this user may not read it.
fn environment(pid: i32) -> Option<Vec<u8>> {
    for _ in 0..EMPTY_READS_MAX {
        let read = fs::read(format!("/proc/{pid}/environ")).ok()?;
        if !read.is_empty() {
            return Some(read);
        }
        stat(pid).filter(|stat| !stat.zombie && !stat.kernel)?;
        std::thread::yield_now();
    }
    None
}

fn gone_is_fine(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field, the name, may hold any character: count fields after its last parenthesis.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Stat {
        zombie: matches!(*fields.first()?, "Z" | "X"),
        kernel: fields.get(6)?.parse::<u32>().ok()? & KERNEL_THREAD != 0,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) b) S 1 40 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let stat = Stat { zombie: false, kernel: false, group: 40, started: 777 };
        assert_eq!(parse(text), Some(stat));
        let thread = text.replace(" -1 0 ", " -1 2129984 ");
        assert_eq!(parse(&thread), Some(Stat { kernel: true, ..stat }));
    }

    #[test]
    fn this_process_is_alive_and_not_marked() {
        let own = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        assert!(!Identity { started: own.started + 1, ..own }.is_alive());
        assert_eq!(marked("an unused mark").unwrap(), []);
    }

    #[test]
    fn a_processes_users_are_all_four() {
        let status = "Name:\tUid: 9\nUid:\t1001\t0\t0\t1001\nGid:\t7\t7\t7\t7\n";
        assert_eq!(users(status).collect::<Vec<_>>(), [1001, 0, 0, 1001]);
        assert_eq!(users("").count(), 0);
    }

    #[test]
    fn marks_nest_at_slashes_only() {
        let marks = BTreeSet::from(["/m/i-1".to_owned(), "/m/i-2".to_owned()]);
        for mark in ["/m/i-1", "/m/i-1/agent", "/m/i-2/agent/listener", "/m/i-1/"] {
            assert!(is_under(mark.as_bytes(), &marks), "{mark}");
        }
        for mark in ["/m", "/m/i-10", "/m/i-3/agent", "m/i-1", ""] {
            assert!(!is_under(mark.as_bytes(), &marks), "{mark}");
        }
        assert!(!is_under(b"/m/i-1/\xff", &marks), "no mark of ours is not text");
    }
}

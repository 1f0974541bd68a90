//! How jobs are isolated from the service that shares their host: the operator's setting, what the
//! host allows, and the decision from both; users for machines, and one machine's limits for cgroup v2.
//!
//! Not here: asking the host (`bullpen-embedded`), or starting anything (`bullpen-agent`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The operator's setting: `isolation` of `[process-fleet]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationMode {
    /// Launch a machine only if its jobs are fully isolated.
    Required,
    /// Isolate jobs as far as the host allows; the service reports what is missing.
    #[default]
    Best,
    /// Run jobs as the service's own user.
    None,
}

impl IsolationMode {
    /// Each mode with its name in the configuration.
    pub const ALL: [(&'static str, Self); 3] =
        [("required", Self::Required), ("best", Self::Best), ("none", Self::None)];
}

/// User ids that no account has: `users` of `[process-fleet]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    first: u32,
    last: u32,
}

impl UserRange {
    /// Linux distributions leave this range unused, and it is wide enough that two stacks on one host
    /// do not pick the same id.
    pub const DEFAULT: Self = Self { first: 1_900_000_000, last: 1_999_999_999 };
    /// Lower ids belong to the system and to people's accounts.
    const LEAST: u32 = 100_000;

    /// `first-last`, both included.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let is_usable = (Self::LEAST..=last).contains(&first) && last < u32::MAX;
        is_usable.then_some(Self { first, last })
    }

    /// The first id.
    pub const fn first(self) -> u32 {
        self.first
    }

    /// The last id.
    pub const fn last(self) -> u32 {
        self.last
    }

    /// An id that is not taken. The search starts at a random place, so that ids are not soon reused.
    pub fn pick(self, taken: &BTreeSet<u32>, random: u64) -> Option<u32> {
        let size = u64::from(self.last - self.first) + 1;
        let start = random % size;
        // Of one more id than are taken, at least one is free.
        let looks = size.min(u64::try_from(taken.len()).unwrap_or(u64::MAX).saturating_add(1));
        (0..looks)
            .map(|step| (start + step) % size)
            .filter_map(|at| self.first.checked_add(u32::try_from(at).ok()?))
            .find(|id| !taken.contains(id))
    }
}

/// What a host allows, with the reason for each thing that it does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIsolation {
    /// Whether the service is root.
    pub root: bool,
    /// Whether it can start a program as another user.
    pub user: Result<(), String>,
    /// Whether it can make namespaces in which its state is hidden.
    pub namespaces: Result<(), String>,
    /// Whether those namespaces can have a `/proc` of their own.
    pub own_processes: Result<(), String>,
    /// The service's supplementary groups, which a user namespace does not remove.
    pub groups: Vec<String>,
}

/// Groups whose members can become root: a user of a container engine, for example, can mount `/`.
pub const ROOTS_FRIENDS: &[&str] =
    &["docker", "lxd", "incus", "podman", "libvirt", "disk", "sudo", "wheel", "admin"];

/// The names of the groups that give jobs more rights: every supplementary group, and the user's own
/// group if it is in [`ROOTS_FRIENDS`]. `file` is the text of `/etc/group`.
pub fn telling_groups(own: u32, supplementary: &[u32], file: &str) -> Vec<String> {
    let name = |id: u32| {
        let of = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, number, ..] = fields[..] else { return None };
            (number.parse() == Ok(id)).then(|| name.to_owned())
        };
        file.lines().find_map(of).unwrap_or_else(|| id.to_string())
    };
    let others: BTreeSet<u32> = supplementary.iter().copied().filter(|id| *id != own).collect();
    let own = Some(name(own)).filter(|name| ROOTS_FRIENDS.contains(&&**name));
    own.into_iter().chain(others.into_iter().map(name)).collect()
}

/// What no isolation mode prevents, and what the operator can do about it.
pub const SHARED_NETWORK: MissingIsolation = MissingIsolation {
    what: Cow::Borrowed(
        "jobs share this host's network: they reach what listens on loopback, the admin listener \
         among it, and a cloud's metadata service",
    ),
    then: "set admin-token in [listeners] of bullpen.toml, and close the metadata service to this host's \
           users where it has one",
};

/// How jobs are isolated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Every machine has a user of its own.
    pub user: bool,
    /// Every listener has namespaces of its own.
    pub namespaces: bool,
    /// Jobs see no processes but their own.
    pub own_processes: bool,
    /// What is not isolated.
    pub lacking: Vec<MissingIsolation>,
}

/// Something that is not isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingIsolation {
    /// What jobs can do, and why.
    pub what: Cow<'static, str>,
    /// What the operator can do about it.
    pub then: &'static str,
}

const MAKE_NAMESPACES: &str = "run the service as root, or allow user namespaces to its user (sysctl \
     user.max_user_namespaces; on Debian kernel.unprivileged_userns_clone=1, on Ubuntu \
     kernel.apparmor_restrict_unprivileged_userns=0) with unshare, mount and setpriv of util-linux \
     2.36 or newer";
const MAKE_NAMESPACES_AS_ROOT: &str = "let the service make namespaces (CAP_SYS_ADMIN in a container), \
     with unshare and mount of util-linux 2.36 or newer";
const CHANGE_USER: &str = "install setpriv of util-linux, let the service change its user (CAP_SETUID \
     and CAP_SETGID in a container), and keep the state in a directory that others may pass through, \
     such as /var/lib/bullpen";
const UNMASK_PROC: &str = "mount /proc without masked paths (in a container: \
     --security-opt systempaths=unconfined)";
const LEAVE_GROUPS: &str = "run the service as a user that is in no other group, or as root";
const ACCEPTED: &str = "set isolation = \"best\" in [process-fleet] of bullpen.toml";

/// Decides how jobs are isolated, and lists what is not.
pub fn decide(mode: IsolationMode, host: &HostIsolation) -> Decision {
    let mut decision = Decision::default();
    let mut lacks =
        |what: String, then| decision.lacking.push(MissingIsolation { what: what.into(), then });
    if mode == IsolationMode::None {
        let what = "jobs run as the service's own user and can read its environment, state and \
                    sockets: isolation is \"none\"";
        lacks(what.to_owned(), ACCEPTED);
        return decision;
    }
    if host.root {
        if let Err(why) = &host.user {
            // A job that is root can leave its namespaces again.
            let what = format!("jobs run as root and can do all that the service can: {why}");
            lacks(what, CHANGE_USER);
            return decision;
        }
        if let Err(why) = &host.namespaces {
            let what = format!("jobs see the host's list of processes and its /tmp: {why}");
            lacks(what, MAKE_NAMESPACES_AS_ROOT);
        }
        decision.user = true;
    } else if let Err(why) = &host.namespaces {
        let what = format!(
            "jobs run as the service's own user and can read its environment, state and sockets: {why}"
        );
        lacks(what, MAKE_NAMESPACES);
    }
    decision.namespaces = host.namespaces.is_ok();
    if decision.namespaces {
        match &host.own_processes {
            Ok(()) => decision.own_processes = true,
            Err(why) => {
                let what = format!("jobs see the host's list of processes: {why}");
                decision.lacking.push(MissingIsolation { what: what.into(), then: UNMASK_PROC });
            }
        }
        if !decision.user && !host.groups.is_empty() {
            let groups = host.groups.join(", ");
            let what = format!(
                "jobs are in the groups of the service's user and may do what those may, which is \
                 everything in a group such as docker, lxd, disk or sudo: {groups}"
            );
            decision.lacking.push(MissingIsolation { what: what.into(), then: LEAVE_GROUPS });
        }
    }
    decision
}

impl Decision {
    /// Whether the service must not launch any machine.
    pub fn refuses(&self, mode: IsolationMode) -> bool {
        mode == IsolationMode::Required && !self.lacking.is_empty()
    }

    /// What isolates jobs, in words for the operator.
    pub const fn held_by(&self) -> &'static str {
        match (self.user, self.namespaces) {
            (true, true) => "a user and namespaces of their own",
            (true, false) => "a user of their own",
            (false, true) => "namespaces of their own",
            (false, false) => "nothing",
        }
    }
}

/// What one machine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Processors.
    pub vcpu: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Processes and threads.
    pub processes_max: u32,
}

/// The period over which the kernel counts processor time, in microseconds; its own default.
const PERIOD_US: u64 = 100_000;
/// The controllers that keep a [`Quota`].
pub const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

impl Quota {
    /// The cgroup files to write, and their content.
    pub fn files(&self) -> [(&'static str, String); 3] {
        let Self { vcpu, memory_mib, processes_max } = *self;
        [
            ("cpu.max", format!("{} {PERIOD_US}", u64::from(vcpu.max(1)) * PERIOD_US)),
            ("memory.max", (u64::from(memory_mib.max(1)) * 1024 * 1024).to_string()),
            ("pids.max", processes_max.max(1).to_string()),
        ]
    }
}

/// The path of a process's own cgroup v2, from `/proc/self/cgroup` and `/proc/self/mountinfo`; none
/// if it has none.
pub fn own_cgroup(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mountinfo.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let at = fields.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(at)
    })?;
    Some(if own.is_empty() { mount.into() } else { Path::new(mount).join(own) })
}

/// Where cgroups of any version are mounted, from `/proc/self/mountinfo`.
pub fn cgroup_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let mount = |line: &str| {
        let (fields, kind) = line.split_once(" - ")?;
        let is_cgroup = kind.starts_with("cgroup ") || kind.starts_with("cgroup2 ");
        fields.split(' ').nth(4).filter(|_| is_cgroup).map(PathBuf::from)
    };
    mountinfo.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(root: bool) -> HostIsolation {
        let groups = Vec::new();
        HostIsolation { root, user: Ok(()), namespaces: Ok(()), own_processes: Ok(()), groups }
    }

    fn no<T>() -> Result<T, String> {
        Err("EPERM".to_owned())
    }

    #[test]
    fn all_that_the_host_allows_is_used() {
        let root = decide(IsolationMode::Best, &host(true));
        assert!(root.user && root.namespaces && root.own_processes && root.lacking.is_empty());
        let ordinary =
            decide(IsolationMode::Required, &HostIsolation { user: no(), ..host(false) });
        assert!(!ordinary.user && ordinary.namespaces && ordinary.own_processes);
        assert!(ordinary.lacking.is_empty() && !ordinary.refuses(IsolationMode::Required));
    }

    #[test]
    fn what_is_not_isolated_is_said_with_its_reason_and_refused_only_where_it_is_required() {
        let none = HostIsolation { namespaces: no(), own_processes: no(), ..host(false) };
        for (host, held_by, missing) in [
            (none.clone(), "nothing", "environment, state and sockets: EPERM"),
            (
                HostIsolation { root: true, ..none },
                "a user of their own",
                "list of processes and its /tmp",
            ),
            (HostIsolation { user: no(), ..host(true) }, "nothing", "jobs run as root"),
            (
                HostIsolation { own_processes: no(), ..host(false) },
                "namespaces of their own",
                "the host's list of processes: EPERM",
            ),
            (
                HostIsolation { groups: vec!["docker".to_owned()], ..host(false) },
                "namespaces of their own",
                "docker, lxd, disk or sudo: docker",
            ),
        ] {
            let decision = decide(IsolationMode::Best, &host);
            assert_eq!(decision.held_by(), held_by, "{host:?}");
            assert_eq!(decision.lacking.len(), 1, "{decision:?}");
            assert!(decision.lacking[0].what.contains(missing), "{decision:?}");
            assert!(
                !decision.refuses(IsolationMode::Best) && decision.refuses(IsolationMode::Required)
            );
        }
    }

    #[test]
    fn mode_none_reports_that_nothing_is_isolated() {
        let decision = decide(IsolationMode::None, &host(true));
        assert_eq!(decision.held_by(), "nothing");
        assert!(decision.lacking[0].what.contains("none"), "{decision:?}");
        assert!(!decision.refuses(IsolationMode::None));
    }

    #[test]
    fn groups_are_told_where_jobs_have_them() {
        let file = "root:x:0:\ndocker:x:999:ci\nci:x:1000:\nvideo:x:44:ci\n";
        assert_eq!(telling_groups(1000, &[1000, 999, 44, 7], file), ["7", "video", "docker"]);
        assert_eq!(telling_groups(999, &[999], file), ["docker"], "it may be the service's own");
        assert!(telling_groups(1000, &[], file).is_empty());
        let groups = vec!["docker".to_owned()];
        let root = decide(IsolationMode::Required, &HostIsolation { groups, ..host(true) });
        assert!(root.lacking.is_empty(), "a machine's own user is in no group: {root:?}");
    }

    #[test]
    fn ranges_of_users_leave_the_systems_alone() {
        let parse = UserRange::parse;
        assert_eq!(parse("200000-200009"), Some(UserRange { first: 200_000, last: 200_009 }));
        for bad in ["", "5", "0-10", "1000-2000", "200001-200000", "200000-4294967295", "a-b"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse("1900000000-1999999999"), Some(UserRange::DEFAULT));
    }

    #[test]
    fn a_user_is_given_once_and_all_of_a_range_can_be() {
        let range = UserRange::parse("200000-200002").unwrap();
        let mut taken = BTreeSet::new();
        for random in [1, 1, u64::MAX] {
            let id = range.pick(&taken, random).unwrap();
            assert!((200_000..=200_002).contains(&id) && taken.insert(id), "{id}");
        }
        assert_eq!(range.pick(&taken, 0), None);
        let others = BTreeSet::from([5, 6, 7, 200_000]);
        assert_eq!(range.pick(&others, 0), Some(200_001));
    }

    #[test]
    fn a_quota_is_written_as_the_kernel_reads_it() {
        let files = Quota { vcpu: 4, memory_mib: 2048, processes_max: 500 }.files();
        let expected =
            [("cpu.max", "400000 100000"), ("memory.max", "2147483648"), ("pids.max", "500")];
        assert_eq!(files, expected.map(|(file, text)| (file, text.to_owned())));
        let least = Quota { vcpu: 0, memory_mib: 0, processes_max: 0 }.files();
        assert!(least.iter().all(|(_, text)| !text.starts_with('0')), "{least:?}");
    }

    #[test]
    fn only_a_cgroup_of_version_two_counts() {
        let hybrid = "8:pids:/x\n0::/system.slice/bullpen.service\n";
        let mounts = "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let found = own_cgroup(hybrid, mounts);
        assert_eq!(found, Some("/sys/fs/cgroup/system.slice/bullpen.service".into()));
        assert_eq!(own_cgroup("0::/\n", mounts), Some("/sys/fs/cgroup".into()));
        assert_eq!(own_cgroup("8:pids:/x\n", mounts), None);
        assert_eq!(own_cgroup(hybrid, mounts.lines().next().unwrap()), None);
        let others = format!("{mounts}32 24 0:28 / /sys rw - sysfs sysfs rw\n");
        let all = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(PathBuf::from);
        assert_eq!(cgroup_mounts(&others), all);
    }
}

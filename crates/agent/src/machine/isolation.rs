//! The machine's settings that keep its jobs from the host they share with the service.
//!
//! Not here: applying them (`crate::runner::confine`), or finding out what the host allows (the
//! fleet).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bullpen_core::isolation::{Decision, Quota};
use serde::{Deserialize, Serialize};

/// How one machine's jobs are kept from the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Isolation {
    /// Whether every machine has its own user.
    pub users: bool,
    /// This machine's user and group, an id that no account has.
    pub user: Option<u32>,
    /// Whether its listeners have their own namespaces.
    pub namespaces: bool,
    /// Whether the namespaces have their own `/proc`.
    pub own_processes: bool,
    /// Directories that the namespaces hide from jobs.
    pub hidden: Vec<PathBuf>,
    /// Files that appear empty in the namespaces.
    pub secrets: Vec<PathBuf>,
    /// Paths that are read-only in the namespaces.
    pub fixed: Vec<PathBuf>,
    /// Paths below hidden directories that jobs still see.
    pub visible: Vec<PathBuf>,
    /// The most that jobs may use.
    pub limits: Option<Limits>,
}

/// The most that jobs may use, by a cgroup of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The machine's own cgroup; in the settings for all machines, its parent.
    pub cgroup: PathBuf,
    /// The most processes.
    pub processes_max: u32,
    /// The cgroup's files and their contents.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

impl Isolation {
    /// The settings for all machines by this decision.
    pub fn of(decision: &Decision) -> Self {
        Self {
            users: decision.user,
            namespaces: decision.namespaces,
            own_processes: decision.own_processes,
            ..Self::default()
        }
    }

    /// The settings for the machine with this id, user and size.
    #[must_use]
    pub fn of_machine(mut self, id: &str, user: Option<u32>, vcpu: u32, memory_mib: u32) -> Self {
        self.user = user;
        if let Some(limits) = &mut self.limits {
            let quota = Quota { vcpu, memory_mib, processes_max: limits.processes_max };
            limits.cgroup = limits.cgroup.join(id);
            limits.files = quota.files().map(|(file, text)| (file.to_owned(), text)).into();
        }
        self
    }

    /// Whether it keeps jobs from the host at all.
    pub fn holds(&self) -> bool {
        self.user.is_some() || self.namespaces
    }

    /// This machine's cgroup.
    pub fn cgroup(&self) -> Option<&Path> {
        self.limits.as_ref().map(|limits| &*limits.cgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_keeps_parsing() {
        let text = r#"{"users":true,"user":200001,"namespaces":true,"own_processes":true,
            "hidden":["/s"],"secrets":["/k"],"fixed":["/p"],"visible":["/v"],
            "limits":{"cgroup":"/c/i-1","processes_max":7,"files":{"pids.max":"7"}}}"#;
        let isolation: Isolation = serde_json::from_str(text).unwrap();
        assert!(isolation.holds() && isolation.user == Some(200_001));
        let earlier: Isolation =
            serde_json::from_str(&text.replace(r#""fixed":["/p"],"#, "")).unwrap();
        assert_eq!(earlier, Isolation { fixed: Vec::new(), ..isolation });
        assert_eq!(serde_json::from_str::<Isolation>("{}").unwrap(), Isolation::default());
        assert!(!Isolation::default().holds());
    }

    #[test]
    fn a_machine_has_its_own_user_and_its_own_limits() {
        let limits = Limits { cgroup: "/c".into(), processes_max: 7, files: BTreeMap::new() };
        let all = Isolation { limits: Some(limits), ..Isolation::default() };
        let one = all.of_machine("i-1", Some(5), 2, 1);
        assert_eq!((one.user, one.cgroup()), (Some(5), Some(Path::new("/c/i-1"))));
        let files = one.limits.unwrap().files;
        assert_eq!(files["cpu.max"], "200000 100000");
        assert_eq!((&*files["memory.max"], &*files["pids.max"]), ("1048576", "7"));
    }
}

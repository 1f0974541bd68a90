//! Plans the mounts in a listener's namespaces, and writes the shell's script and tables for them.
//!
//! Not here: choosing the paths (`super`).

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories that every user may write to; jobs get their own.
pub(super) const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// The first file descriptor of the paths that the shell holds open, and the most such paths.
const FIRST_FILE: usize = 3;
const FILES_MAX: usize = 6;
/// The file descriptor of the shell's table of binds.
const TABLE_FILE: usize = 9;
/// Options of an empty file system; its small size is enough for directories.
const EMPTY: &str = "mode=711,size=1m";
/// Options of an empty file system that every user may write to.
const OPEN: &str = "mode=1777";

/// The wishes for the mounts, as paths without links.
#[derive(Clone, Debug, Default)]
pub(super) struct MountRequest {
    /// Directories to hide.
    pub(super) hidden: Vec<PathBuf>,
    /// Paths that jobs need, also below hidden directories.
    pub(super) kept: Vec<PathBuf>,
    /// Files that must appear empty.
    pub(super) secrets: Vec<PathBuf>,
    /// Paths that must be read-only.
    pub(super) fixed: Vec<PathBuf>,
    /// Directories where cgroups are mounted.
    pub(super) cgroups: Vec<PathBuf>,
    /// The machine's own cgroup.
    pub(super) own_cgroup: Option<PathBuf>,
}

/// A mount that hides a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    /// An empty file system with these options.
    Empty(&'static str),
    /// Another directory, read-only.
    Other(PathBuf),
}

/// The plan of all mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    /// Directories that are hidden.
    covered: Vec<(PathBuf, Cover)>,
    /// Paths that the shell binds again inside those.
    kept: Vec<PathBuf>,
    /// Directories that the machine's own temporary directory is bound over.
    temporary: Vec<PathBuf>,
    /// Files that appear empty.
    secrets: Vec<PathBuf>,
    /// Parent directories of `secrets` and `fixed`. The kernel does not rename a mount point, so no
    /// job can put another file at such a path.
    pinned: Vec<PathBuf>,
    /// Paths that are read-only.
    fixed: Vec<PathBuf>,
    /// Read-only paths in the machine's own directory, where nothing is mounted yet.
    pub(super) parts: Vec<PathBuf>,
}

fn below(path: &Path, directory: &Path) -> bool {
    path != directory && path.starts_with(directory)
}

impl Mounts {
    /// `may_change`: whether jobs could rename entries of a directory.
    pub(super) fn plan(wanted: &MountRequest, may_change: impl Fn(&Path) -> bool) -> Self {
        let mut covered = vec![(SHARED_MEMORY.into(), Cover::Empty(OPEN))];
        let mut temporary = Vec::new();
        for directory in TEMPORARY.map(PathBuf::from) {
            if wanted.kept.iter().any(|one| below(one, &directory)) {
                covered.push((directory, Cover::Empty(OPEN)));
            } else {
                temporary.push(directory);
            }
        }
        let hidden = wanted.hidden.iter().chain(&wanted.cgroups);
        covered.extend(hidden.map(|path| (path.clone(), Cover::Empty(EMPTY))));
        let others = covered.clone();
        covered.retain(|(path, _)| !others.iter().any(|(other, _)| below(path, other)));
        covered.sort();
        covered.dedup_by(|one, other| one.0 == other.0);
        if let Some(own) = &wanted.own_cgroup
            && let Some((_, cover)) = covered.iter_mut().find(|(path, _)| below(own, path))
        {
            *cover = Cover::Other(own.clone());
        }
        let is_covered = |path: &Path| covered.iter().any(|(other, _)| path.starts_with(other));
        let kept = wanted.kept.iter().filter(|path| is_covered(path));
        let kept = kept.take(FILES_MAX).cloned().collect();
        let mut all = Self { covered, kept, temporary, ..Self::default() };
        let seen = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().filter(|path| all.shows(path)).cloned().collect()
        };
        let (secrets, fixed) = (seen(&wanted.secrets), seen(&wanted.fixed));
        let mut pinned: Vec<PathBuf> = Vec::new();
        for path in secrets.iter().chain(&fixed) {
            let ways = path.ancestors().skip(1).filter(|way| {
                let is_kept = all.kept.iter().any(|kept| kept == way);
                !is_kept && all.shows(way) && way.parent().is_some_and(&may_change)
            });
            pinned.extend(ways.map(Path::to_owned));
        }
        // Sorted, a directory comes before its entries.
        pinned.sort();
        pinned.dedup();
        (all.secrets, all.pinned, all.fixed) = (secrets, pinned, fixed);
        all
    }

    /// Whether jobs see the host's own file at this path.
    fn shows(&self, path: &Path) -> bool {
        let is_in = |directory: &PathBuf| path.starts_with(directory);
        self.kept.iter().any(is_in)
            || !self.temporary.iter().chain(self.covered.iter().map(|(at, _)| at)).any(is_in)
    }

    pub(super) fn covers(&self) -> String {
        let line = |(path, cover): &(PathBuf, Cover)| {
            let at = escaped(path);
            match cover {
                Cover::Empty(options) => format!("bullpen {at} tmpfs {options},nosuid,nodev 0 0\n"),
                Cover::Other(other) => {
                    format!("{} {at} none bind,ro,nosuid,nodev,noexec 0 0\n", escaped(other))
                }
            }
        };
        self.covered.iter().map(line).collect()
    }

    pub(super) fn binds(&self, temp: &Path) -> String {
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
        for path in self.pinned.iter().chain(&self.fixed) {
            line(&escaped(path), path, "rbind");
        }
        for path in &self.secrets {
            line("/dev/null", path, "bind");
        }
        for path in &self.parts {
            line(&escaped(path), path, "bind,ro,nosuid,nodev");
        }
        lines.concat()
    }

    fn files(&self) -> impl Iterator<Item = (usize, &PathBuf)> {
        self.kept.iter().enumerate().map(|(at, path)| (FIRST_FILE + at, path))
    }

    /// A descriptor that the shell opened before a mount leads out of the namespace, so the script
    /// closes all of them, and enters the working directory again by its path.
    pub(super) fn script(
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
        for path in &self.fixed {
            // `mount -a` skips a path that is mounted already, and so would not make it read-only.
            let what = "/bin/mount --options-source mtab -o remount,bind,ro,nosuid,nodev";
            lines.push(format!("{what} {}", quoted(path)));
        }
        let numbers = self.files().map(|(number, _)| number).chain([TABLE_FILE]);
        lines.push(format!(
            "exec {}",
            numbers.map(|number| format!("{number}<&-")).collect::<Vec<_>>().join(" ")
        ));
        lines.push(format!("cd {}", quoted(root)));
        // The program handles signals to the group; the shell ignores them and waits for it.
        lines.push("trap : HUP INT QUIT TERM; set +e\n\"$@\"\nexit $?".to_owned());
        lines.join("\n")
    }
}

/// Quotes a path as a word of the shell.
fn quoted(path: impl AsRef<Path>) -> String {
    format!("'{}'", path.as_ref().to_string_lossy().replace('\'', r"'\''"))
}

/// Escapes a path as a word of a table of mounts.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .map(|byte| if plain(*byte) { char::from(*byte).into() } else { format!("\\{byte:03o}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&str]) -> Vec<PathBuf> {
        all.iter().map(PathBuf::from).collect()
    }

    fn wanted(hidden: &[&str], kept: &[&str], secrets: &[&str]) -> MountRequest {
        let (hidden, kept, secrets) = (paths(hidden), paths(kept), paths(secrets));
        MountRequest { hidden, kept, secrets, ..MountRequest::default() }
    }

    fn plan(wanted: &MountRequest) -> Mounts {
        Mounts::plan(wanted, |directory| directory.starts_with("/srv"))
    }

    fn covered(plan: &Mounts) -> Vec<&Path> {
        plan.covered.iter().map(|(path, _)| &**path).collect()
    }

    #[test]
    fn what_is_needed_below_a_hidden_directory_is_bound_again() {
        let kept = ["/s/m/runner", "/s/m/temp", "/usr/bin/bullpen"];
        let plan = plan(&wanted(&["/s", "/home/ci", "/home/ci/x"], &kept, &["/s/k", "/etc/k"]));
        assert_eq!(covered(&plan), paths(&["/dev/shm", "/home/ci", "/s"]));
        assert_eq!(plan.kept, paths(&kept[..2]));
        assert_eq!(plan.temporary, paths(&["/tmp", "/var/tmp"]));
        assert_eq!(plan.secrets, paths(&["/etc/k"]), "a hidden file needs no mount of its own");
        let binds = plan.binds(Path::new("/s/m/temp"));
        assert!(binds.starts_with("/proc/self/fd/3 /s/m/runner none rbind 0 0\n"), "{binds}");
        assert!(binds.contains("/s/m/temp /tmp none rbind") && binds.contains("/dev/null /etc/k"));
    }

    #[test]
    fn a_state_below_tmp_is_found_in_an_empty_tmp() {
        let plan = plan(&wanted(&["/tmp/a"], &["/tmp/a/runner"], &[]));
        assert_eq!(covered(&plan), paths(&["/dev/shm", "/tmp"]));
        assert_eq!(plan.temporary, paths(&["/var/tmp"]));
    }

    #[test]
    fn a_secret_is_emptied_wherever_jobs_would_find_it_and_nowhere_else() {
        let secrets = ["/h/tools/key", "/h/key", "/tmp/key", "/var/tmp/key"];
        let plan = plan(&wanted(&["/h"], &["/h/tools", "/s/runner"], &secrets));
        // The machine's own temporary directories have no such file to mount on.
        assert_eq!(plan.secrets, paths(&["/h/tools/key"]));
    }

    #[test]
    fn what_jobs_run_next_is_read_only_and_stays_at_its_path() {
        let fixed = paths(&["/srv/ci/runner", "/opt/runner", "/s/own", "/tmp/own"]);
        let plan = plan(&MountRequest { fixed, ..wanted(&["/s"], &["/s/own"], &["/srv/ci/key"]) });
        assert_eq!(plan.fixed, paths(&["/srv/ci/runner", "/opt/runner", "/s/own"]));
        assert_eq!(plan.pinned, paths(&["/srv/ci"]), "and root's own directories stay anyway");
        let binds = plan.binds(Path::new("/s/temp"));
        let at = |text: &str| binds.find(text).unwrap_or_else(|| panic!("no {text} in {binds}"));
        assert!(at("/fd/3 /s/own none rbind") < at("/s/own /s/own none rbind"));
        assert!(at("/srv/ci /srv/ci none rbind") < at("/srv/ci/runner /srv/ci/runner none"));
        assert!(at("/srv/ci /srv/ci none rbind") < at("/dev/null /srv/ci/key none"));
        let nothing = Path::new("/s");
        let script = plan.script(nothing, nothing, nothing, |_| false);
        for path in &plan.fixed {
            assert!(script.contains(&format!("remount,bind,ro,nosuid,nodev {}", quoted(path))));
        }
    }

    #[test]
    fn the_machines_own_cgroup_is_all_of_them_that_is_seen() {
        let cgroups = paths(&["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/cgroup2"]);
        let without = MountRequest { cgroups, ..wanted(&[], &[], &[]) };
        let covers = plan(&without).covers();
        for at in ["/sys/fs/cgroup", "/cgroup2"] {
            let line = format!("bullpen {at} tmpfs mode=711,size=1m,nosuid,nodev 0 0\n");
            assert!(covers.contains(&line), "{covers}");
        }
        let own = Some(PathBuf::from("/sys/fs/cgroup/b/i-1"));
        let covers = plan(&MountRequest { own_cgroup: own, ..without }).covers();
        let line = "/sys/fs/cgroup/b/i-1 /sys/fs/cgroup none bind,ro,nosuid,nodev,noexec 0 0\n";
        assert!(covers.contains(line), "{covers}");
        assert!(!covers.contains("unified") && covers.contains("bullpen /cgroup2 tmpfs"));
    }

    #[test]
    fn nothing_that_leads_out_stays_open() {
        let plan = plan(&wanted(&["/s"], &["/s/runner", "/s/it's"], &[]));
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
}

//! What this host allows for keeping jobs from the service: each way is tried once, with a file
//! that the tried program must not see; and the cgroup that machines' own are kept in.
//!
//! Not here: what follows from it (`bullpen_core::isolation`), or holding jobs (`bullpen-agent`).

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};

use bullpen_agent::machine::{Isolation, Limits};
use bullpen_agent::runner::confine::{Confinement, cover_of, own_groups};
use bullpen_core::isolation::{
    CONTROLLERS, Decision, HostIsolation, IsolationMode, MissingIsolation, UserRange, decide,
    own_cgroup,
};
use rustix::process::geteuid;

use super::directory::{absent_is_fine, private_directory};

/// Marks a cgroup as given away; systemd sets it.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// Where the service's own processes go: a cgroup with others in it has no processes itself.
const SERVICE: &str = "bullpen-service";
/// What to do where there are no limits.
const DELEGATE: &str = "delegate a cgroup of version 2 to the service (Delegate=yes in its unit), or \
     write limits = false in [process-fleet] of bullpen.toml";

/// What the operator wants of it.
#[derive(Clone, Debug)]
pub struct IsolationSettings {
    /// How much.
    pub wish: IsolationMode,
    /// The ids of machines' own users.
    pub users: UserRange,
    /// The state directory.
    pub state: PathBuf,
    /// The home of the service's user, hidden where jobs are the same user.
    pub home: Option<PathBuf>,
    /// Files with secrets, likewise.
    pub secrets: Vec<PathBuf>,
    /// What the service and later jobs run or read, and jobs must not write to, likewise.
    pub fixed: Vec<PathBuf>,
    /// What jobs see of hidden directories.
    pub visible: Vec<PathBuf>,
    /// The most processes of a machine; nothing for no limits at all.
    pub processes_max: Option<u32>,
    /// The cgroup to use; absent, the process's own.
    pub cgroup: Option<PathBuf>,
}

/// What was found and decided.
#[derive(Clone, Debug)]
pub struct ChosenIsolation {
    /// What holds jobs, and what is lacking.
    pub decision: Decision,
    /// Whether nothing may be launched.
    pub refused: bool,
    /// Where limits are kept, or why they are not.
    pub limits: Result<PathBuf, String>,
    /// Whether the operator wants limits.
    pub(super) is_to_be_limited: bool,
    pub(super) told: Isolation,
    pub(super) users: Option<UserRange>,
}

impl ChosenIsolation {
    /// All that is not isolated, in one sentence.
    pub fn lacking(&self) -> Option<String> {
        let says = |one: &MissingIsolation| format!("{}; {}", one.what, one.then);
        let all: Vec<String> = self.decision.lacking.iter().map(says).collect();
        (!all.is_empty()).then(|| all.join(". "))
    }

    /// The same, and what is not limited although the operator did not say so.
    pub fn warning(&self) -> Option<String> {
        let unlimited = self.limits.as_ref().err().filter(|_| self.is_to_be_limited);
        let unlimited = unlimited.map(|why| {
            format!("jobs' processors, memory and processes are not limited: {why}; {DELEGATE}")
        });
        let all: Vec<String> = self.lacking().into_iter().chain(unlimited).collect();
        (!all.is_empty()).then(|| all.join(". "))
    }
}

/// Tries what this host allows, in a directory of its own among the machines in `directory`.
pub fn choose(settings: &IsolationSettings, directory: &Path) -> ChosenIsolation {
    let root = geteuid().is_root();
    let means = if settings.wish == IsolationMode::None {
        let untried = || Err("not tried".to_owned());
        let groups = Vec::new();
        HostIsolation {
            root,
            user: untried(),
            namespaces: untried(),
            own_processes: untried(),
            groups,
        }
    } else {
        try_all(settings, directory, root)
    };
    let decision = decide(settings.wish, &means);
    let mut told = with_paths(Isolation::of(&decision), settings);
    let processes_max = settings.processes_max.filter(|_| settings.wish != IsolationMode::None);
    let limits = limits(settings, &decision);
    if let (Ok(cgroup), Some(processes_max)) = (&limits, processes_max) {
        let cgroup = cgroup.clone();
        told.limits = Some(Limits { cgroup, processes_max, ..Limits::default() });
    }
    let users = decision.user.then_some(settings.users);
    let (refused, is_to_be_limited) = (decision.refuses(settings.wish), processes_max.is_some());
    ChosenIsolation { decision, refused, limits, is_to_be_limited, told, users }
}

/// The cgroup for limits; else why there are none.
fn limits(settings: &IsolationSettings, decision: &Decision) -> Result<PathBuf, String> {
    if settings.processes_max.is_none() || settings.wish == IsolationMode::None {
        return Err("limits are switched off".to_owned());
    }
    // They are kept by what starts held programs.
    if !decision.user && !decision.namespaces {
        return Err("nothing holds jobs here".to_owned());
    }
    cgroup(settings.cgroup.as_deref())
}

/// The same for launches: from now on the cgroup is used.
pub(super) fn choose_for_launches(
    settings: &IsolationSettings,
    directory: &Path,
) -> ChosenIsolation {
    let mut chosen = choose(settings, directory);
    if let Err(why) = chosen.limits.clone().and_then(|cgroup| ready(&cgroup)) {
        if chosen.limits.is_ok() {
            tracing::warn!(why, "jobs are not limited by a cgroup");
        }
        chosen.told.limits = None;
        chosen.limits = Err(why);
    }
    chosen
}

fn with_paths(told: Isolation, settings: &IsolationSettings) -> Isolation {
    let state = settings.state.canonicalize().unwrap_or_else(|_| settings.state.clone());
    let mut hidden = vec![if told.users { cover_of(&state) } else { state }];
    let (mut secrets, mut fixed) = (Vec::new(), Vec::new());
    if !told.users {
        let real = |path: &PathBuf| path.canonicalize().ok();
        hidden.extend(settings.home.iter().filter_map(real).filter(|home| home != Path::new("/")));
        // Who can speak to the user's own systemd can start anything.
        hidden.push(PathBuf::from(format!("/run/user/{}", geteuid().as_raw())));
        // Where links lead may change, and is looked up when a listener starts.
        let whole = |path: &PathBuf| path::absolute(path).ok();
        secrets.extend(settings.secrets.iter().filter_map(whole));
        fixed.extend(settings.fixed.iter().filter_map(whole));
    }
    Isolation { hidden, secrets, fixed, visible: settings.visible.clone(), ..told }
}

fn try_all(settings: &IsolationSettings, directory: &Path, root: bool) -> HostIsolation {
    let user = root.then(|| settings.users.first());
    let alone = Isolation { users: root, user, ..Isolation::default() };
    let namespaces = |own_processes| {
        let held = Isolation { namespaces: true, own_processes, ..alone.clone() };
        try_one(&with_paths(held, settings), directory)
    };
    let own_processes = namespaces(true);
    let namespaces = if own_processes.is_ok() { Ok(()) } else { namespaces(false) };
    let user = match user {
        None => Err("the service is not root".to_owned()),
        // What namespaces allow is reached without passing the directories above.
        Some(_) if namespaces.is_ok() => Ok(()),
        Some(_) => open_way(settings, directory, 0o711)
            .map_err(|error| error.to_string())
            .and_then(|()| try_one(&alone, directory))
            .inspect_err(|_| drop(open_way(settings, directory, 0o700))),
    };
    HostIsolation { root, user, namespaces, own_processes, groups: own_groups() }
}

/// Where no namespace has another way to the machines' directories, others may pass through those
/// above; what is in them stays closed.
fn open_way(settings: &IsolationSettings, directory: &Path, mode: u32) -> io::Result<()> {
    private_directory(directory)?;
    for path in [&*settings.state, directory] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Runs a program that is held like this, and sees to it that it cannot read a file of ours.
fn try_one(isolation: &Isolation, directory: &Path) -> Result<(), String> {
    let place = directory.join(format!("trial-{}", std::process::id()));
    let tried = try_in(isolation, &place);
    let removed = absent_is_fine(fs::remove_dir_all(&place));
    tried.and(removed).map_err(|error| error.to_string())
}

fn try_in(isolation: &Isolation, place: &Path) -> io::Result<()> {
    let at = |name: &str| place.join(name);
    for part in ["runner/bin", "temp", "state"] {
        private_directory(&at(part))?;
    }
    // As a machine's own are.
    for (path, mode) in [(place.to_owned(), 0o711), (at("runner"), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let canary = at("canary");
    fs::write(&canary, "")?;
    // Where it is hidden, its mode does not matter; a user of a machine's own is to see it closed.
    let mode = if isolation.namespaces { 0o644 } else { 0o600 };
    fs::set_permissions(&canary, fs::Permissions::from_mode(mode))?;
    let held = Confinement {
        isolation: isolation.clone(),
        root: at("runner"),
        temp: at("temp"),
        state: at("state"),
        programs: Vec::new(),
        groups: Vec::new(),
    };
    let mut command: Command = held.command(Path::new("/bin/sh"))?;
    let test = "cd \"$2\" || exit 1
        if [ -r \"$1\" ]; then echo 'the state can still be read' >&2; exit 1; fi";
    let output = command
        .args(["-c", test, "sh"])
        .arg(&canary)
        .arg(at("runner"))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("a tried program failed").trim().to_owned();
    Err(io::Error::other(said))
}

/// The cgroup that machines' own can be kept in; else why not. Nothing is changed.
fn cgroup(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return usable(named.to_owned());
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let own = own_cgroup(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    // After a restart the service is where it went before.
    let own = own.map(|own| {
        if own.ends_with(SERVICE) { own.parent().map_or(own.clone(), Path::to_owned) } else { own }
    });
    let own = own.ok_or("this host has no cgroup of version 2")?;
    if !is_delegated(&own) {
        return Err(format!("{} was not delegated to the service", own.display()));
    }
    usable(own)
}

fn is_delegated(cgroup: &Path) -> bool {
    let Ok(found) = fs::metadata(cgroup) else { return false };
    let user = geteuid();
    if !user.is_root() {
        return found.uid() == user.as_raw();
    }
    let marked = |name: &str| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(cgroup, name, &mut value).is_ok_and(|size| value[..size] == *b"1")
    };
    DELEGATED.into_iter().any(marked)
}

/// Whether it could limit anything.
fn usable(cgroup: PathBuf) -> Result<PathBuf, String> {
    let at = cgroup.display();
    let there = fs::read_to_string(cgroup.join("cgroup.controllers"));
    let there = there.map_err(|error| format!("{at} cannot be used: {error}"))?;
    let has = |name: &str| there.split_whitespace().any(|one| one == name);
    match CONTROLLERS.into_iter().find(|name| !has(name)) {
        Some(missing) => Err(format!("{at} has no controller {missing}")),
        None => Ok(cgroup),
    }
}

/// Moves this process to one below it, if it is there, and has it hand controllers down.
fn ready(cgroup: &Path) -> Result<(), String> {
    let file = |name: &str| cgroup.join(name);
    let told = |error: io::Error| format!("{} cannot be used: {error}", cgroup.display());
    let processes = fs::read_to_string(file("cgroup.procs")).map_err(told)?;
    if !processes.trim().is_empty() {
        match fs::create_dir(file(SERVICE)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(told(error)),
            _ => {}
        }
        // Processes of others stay, and stop the next step.
        let own = std::process::id().to_string();
        fs::write(file(SERVICE).join("cgroup.procs"), own).map_err(told)?;
    }
    let wanted = CONTROLLERS.map(|one| format!("+{one}")).join(" ");
    fs::write(file("cgroup.subtree_control"), wanted).map_err(told)?;
    let cgroup = file(&format!("trial-{}", std::process::id()));
    let tried = Limits { cgroup: cgroup.clone(), ..Limits::default() }.make();
    // One that stays costs nothing.
    let _ = fs::remove_dir(cgroup);
    tried.map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree that looks like a cgroup's.
    fn tree(controllers: &str, processes: &str) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (file, text) in [("cgroup.controllers", controllers), ("cgroup.procs", processes)] {
            fs::write(tree.path().join(file), text).unwrap();
        }
        tree
    }

    #[test]
    fn a_cgroup_hands_its_controllers_down_and_holds_no_processes_itself() {
        let tree = tree("cpuset cpu io memory pids\n", "41\n42\n");
        assert_eq!(cgroup(Some(tree.path())).unwrap(), tree.path());
        assert!(!tree.path().join("bullpen-service").exists(), "looking changes nothing");
        fs::create_dir(tree.path().join("bullpen-service")).unwrap();
        ready(tree.path()).unwrap();
        let read = |file: &str| fs::read_to_string(tree.path().join(file)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+cpu +memory +pids");
        assert_eq!(read("bullpen-service/cgroup.procs"), std::process::id().to_string());
    }

    #[test]
    fn a_cgroup_that_no_process_can_be_put_into_is_told_of() {
        let tree = tree("cpu memory pids\n", "");
        let trial = format!("trial-{}/cgroup.procs", std::process::id());
        // A file that is closed would not be to root.
        fs::create_dir_all(tree.path().join(trial)).unwrap();
        let why = ready(tree.path()).unwrap_err();
        assert!(why.contains("no process can enter the cgroup"), "{why}");
    }

    #[test]
    fn jobs_that_nothing_holds_are_told_of_as_unlimited() {
        let tree = tree("cpu memory pids\n", "");
        let settings = IsolationSettings {
            wish: IsolationMode::Best,
            users: UserRange::DEFAULT,
            state: tree.path().to_owned(),
            home: None,
            secrets: Vec::new(),
            fixed: Vec::new(),
            visible: Vec::new(),
            processes_max: Some(1),
            cgroup: Some(tree.path().to_owned()),
        };
        let held = Decision { namespaces: true, ..Decision::default() };
        assert_eq!(limits(&settings, &held).unwrap(), tree.path());
        let why = limits(&settings, &Decision::default()).unwrap_err();
        assert_eq!(why, "nothing holds jobs here");
        let off = IsolationSettings { processes_max: None, ..settings };
        assert_eq!(limits(&off, &held).unwrap_err(), "limits are switched off");
    }

    fn chosen(wish: IsolationMode, limits: Result<PathBuf, String>) -> ChosenIsolation {
        let means = HostIsolation {
            root: true,
            user: Ok(()),
            namespaces: Ok(()),
            own_processes: Ok(()),
            groups: Vec::new(),
        };
        let decision = decide(wish, &means);
        let told = Isolation::of(&decision);
        ChosenIsolation {
            decision,
            refused: false,
            limits,
            is_to_be_limited: true,
            told,
            users: None,
        }
    }

    #[test]
    fn limits_that_are_lacking_are_in_the_warning_and_refuse_nothing() {
        let why = Err("this host has no cgroup of version 2".to_owned());
        let without = chosen(IsolationMode::Required, why.clone());
        let warning = without.warning().unwrap();
        assert!(warning.contains("are not limited: this host has no cgroup"), "{warning}");
        assert_eq!(without.lacking(), None);
        assert_eq!(ChosenIsolation { is_to_be_limited: false, ..without }.warning(), None);
        assert_eq!(chosen(IsolationMode::Required, Ok("/c".into())).warning(), None);
        let both = chosen(IsolationMode::None, why).warning().unwrap();
        assert!(both.contains("isolation is \"none\"") && both.contains("not limited"), "{both}");
    }

    #[test]
    fn a_cgroup_that_cannot_limit_is_refused_with_the_reason() {
        let tree = tree("cpu memory\n", "");
        assert!(cgroup(Some(tree.path())).unwrap_err().contains("no controller pids"));
        let absent = tree.path().join("absent");
        assert!(cgroup(Some(&absent)).unwrap_err().contains("cannot be used"));
    }
}

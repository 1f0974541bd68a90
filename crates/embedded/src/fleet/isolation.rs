//! Finds out how this host can isolate jobs from the service. [`choose`] tries each way once, with
//! a program that must not be able to read a file; it also finds the cgroup for the machines'
//! cgroups.
//!
//! Not here: the decision (`bullpen_core::isolation`), and isolating jobs (`bullpen-agent`).

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

/// The attributes with which systemd marks a delegated cgroup.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// The cgroup for the service's own processes: a cgroup with child cgroups may have no processes.
const SERVICE: &str = "bullpen-service";
/// The advice where limits are impossible.
const DELEGATE: &str = "delegate a cgroup of version 2 to the service (Delegate=yes in its unit), or \
     write limits = false in [process-fleet] of bullpen.toml";

/// The operator's settings of isolation.
#[derive(Clone, Debug)]
pub struct IsolationSettings {
    /// How much isolation the operator wants.
    pub mode: IsolationMode,
    /// The ids of the machines' own users.
    pub users: UserRange,
    /// The state directory.
    pub state: PathBuf,
    /// The home of the service's user; hidden from jobs that run as the same user.
    pub home: Option<PathBuf>,
    /// Files with secrets; hidden from jobs that run as the same user.
    pub secrets: Vec<PathBuf>,
    /// Paths that the service and later jobs run or read; read-only for jobs of the same user.
    pub fixed: Vec<PathBuf>,
    /// Paths inside hidden directories that jobs may see.
    pub visible: Vec<PathBuf>,
    /// The most processes of a machine; `None` for no limits at all.
    pub processes_max: Option<u32>,
    /// The cgroup to use; if `None`, the process's own.
    pub cgroup: Option<PathBuf>,
}

/// The isolation that this host allows, and the decision.
#[derive(Clone, Debug)]
pub struct ChosenIsolation {
    /// How jobs are isolated, and what is lacking.
    pub decision: Decision,
    /// Whether the fleet must not launch machines.
    pub refused: bool,
    /// The cgroup for limits, or why there is none.
    pub limits: Result<PathBuf, String>,
    /// Whether the operator wants limits.
    pub(super) is_to_be_limited: bool,
    /// The isolation that agents apply.
    pub(super) for_agents: Isolation,
    pub(super) users: Option<UserRange>,
}

impl ChosenIsolation {
    /// The lacking isolation with advice, as one text.
    pub fn lacking(&self) -> Option<String> {
        let text = |missing: &MissingIsolation| format!("{}; {}", missing.what, missing.then);
        let all: Vec<String> = self.decision.lacking.iter().map(text).collect();
        (!all.is_empty()).then(|| all.join(". "))
    }

    /// The lacking isolation, and the limits that the operator wants and that are impossible.
    pub fn warning(&self) -> Option<String> {
        let unlimited = self.limits.as_ref().err().filter(|_| self.is_to_be_limited);
        let unlimited = unlimited.map(|why| {
            format!("jobs' processors, memory and processes are not limited: {why}; {DELEGATE}")
        });
        let all: Vec<String> = self.lacking().into_iter().chain(unlimited).collect();
        (!all.is_empty()).then(|| all.join(". "))
    }
}

/// Tries what this host allows, in a temporary directory below `directory`.
pub fn choose(settings: &IsolationSettings, directory: &Path) -> ChosenIsolation {
    let root = geteuid().is_root();
    let means = if settings.mode == IsolationMode::None {
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
    let decision = decide(settings.mode, &means);
    let mut for_agents = with_paths(Isolation::of(&decision), settings);
    let processes_max = settings.processes_max.filter(|_| settings.mode != IsolationMode::None);
    let limits = limits(settings, &decision);
    if let (Ok(cgroup), Some(processes_max)) = (&limits, processes_max) {
        let cgroup = cgroup.clone();
        for_agents.limits = Some(Limits { cgroup, processes_max, ..Limits::default() });
    }
    let users = decision.user.then_some(settings.users);
    let (refused, is_to_be_limited) = (decision.refuses(settings.mode), processes_max.is_some());
    ChosenIsolation { decision, refused, limits, is_to_be_limited, for_agents, users }
}

/// The cgroup for limits, or why there are no limits.
fn limits(settings: &IsolationSettings, decision: &Decision) -> Result<PathBuf, String> {
    if settings.processes_max.is_none() || settings.mode == IsolationMode::None {
        return Err("limits are switched off".to_owned());
    }
    // The program that isolates a job also puts it into its cgroup.
    if !decision.user && !decision.namespaces {
        return Err("nothing isolates jobs here".to_owned());
    }
    cgroup(settings.cgroup.as_deref())
}

/// Like [`choose`], and prepares the cgroup for launches.
pub(super) fn choose_for_launches(
    settings: &IsolationSettings,
    directory: &Path,
) -> ChosenIsolation {
    let mut chosen = choose(settings, directory);
    if let Err(why) = chosen.limits.clone().and_then(|cgroup| prepare(&cgroup)) {
        if chosen.limits.is_ok() {
            tracing::warn!(why, "no cgroup limits the jobs");
        }
        chosen.for_agents.limits = None;
        chosen.limits = Err(why);
    }
    chosen
}

fn with_paths(for_agents: Isolation, settings: &IsolationSettings) -> Isolation {
    let state = settings.state.canonicalize().unwrap_or_else(|_| settings.state.clone());
    let mut hidden = vec![if for_agents.users { cover_of(&state) } else { state }];
    let (mut secrets, mut fixed) = (Vec::new(), Vec::new());
    if !for_agents.users {
        let real = |path: &PathBuf| path.canonicalize().ok();
        hidden.extend(settings.home.iter().filter_map(real).filter(|home| home != Path::new("/")));
        // A job that reaches the user's systemd can start any process.
        hidden.push(PathBuf::from(format!("/run/user/{}", geteuid().as_raw())));
        // The targets of links may change; the agent resolves them when a listener starts.
        let absolute = |path: &PathBuf| path::absolute(path).ok();
        secrets.extend(settings.secrets.iter().filter_map(absolute));
        fixed.extend(settings.fixed.iter().filter_map(absolute));
    }
    Isolation { hidden, secrets, fixed, visible: settings.visible.clone(), ..for_agents }
}

fn try_all(settings: &IsolationSettings, directory: &Path, root: bool) -> HostIsolation {
    let user = root.then(|| settings.users.first());
    let by_user = Isolation { users: root, user, ..Isolation::default() };
    let namespaces = |own_processes| {
        let by_namespaces = Isolation { namespaces: true, own_processes, ..by_user.clone() };
        try_one(&with_paths(by_namespaces, settings), directory)
    };
    let own_processes = namespaces(true);
    let namespaces = if own_processes.is_ok() { Ok(()) } else { namespaces(false) };
    let user = match user {
        None => Err("the service is not root".to_owned()),
        // With namespaces, a job reaches its directory without access to the parents.
        Some(_) if namespaces.is_ok() => Ok(()),
        Some(_) => open_path(settings, directory, 0o711)
            .map_err(|error| error.to_string())
            .and_then(|()| try_one(&by_user, directory))
            .inspect_err(|_| drop(open_path(settings, directory, 0o700))),
    };
    HostIsolation { root, user, namespaces, own_processes, groups: own_groups() }
}

/// Sets the mode of the parents of the machines' directories. Without namespaces, other users must
/// be able to pass through the parents; they still cannot list them or open other machines' files.
fn open_path(settings: &IsolationSettings, directory: &Path, mode: u32) -> io::Result<()> {
    private_directory(directory)?;
    for path in [&*settings.state, directory] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Runs an isolated program, and checks that it cannot read a file of the service.
fn try_one(isolation: &Isolation, directory: &Path) -> Result<(), String> {
    let trial = directory.join(format!("trial-{}", std::process::id()));
    let tried = try_in_directory(isolation, &trial);
    let removed = absent_is_fine(fs::remove_dir_all(&trial));
    tried.and(removed).map_err(|error| error.to_string())
}

fn try_in_directory(isolation: &Isolation, trial: &Path) -> io::Result<()> {
    let at = |name: &str| trial.join(name);
    for part in ["runner/bin", "temp", "state"] {
        private_directory(&at(part))?;
    }
    // The modes of a machine's directories.
    for (path, mode) in [(trial.to_owned(), 0o711), (at("runner"), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let canary = at("canary");
    fs::write(&canary, "")?;
    // With namespaces the test must show that the file is hidden, so any user may read it; without
    // them its mode keeps the machine's user out.
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.lines().next().unwrap_or("a tried program failed").trim().to_owned();
    Err(io::Error::other(why))
}

/// The parent for the machines' cgroups, or why there is none. Changes nothing.
fn cgroup(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(named) = named {
        return usable(named.to_owned());
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let own = own_cgroup(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    // After a restart the service may already be in its own child cgroup.
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

/// The cgroup if it has all controllers, or why it cannot be used.
fn usable(cgroup: PathBuf) -> Result<PathBuf, String> {
    let at = cgroup.display();
    let controllers = fs::read_to_string(cgroup.join("cgroup.controllers"));
    let controllers = controllers.map_err(|error| format!("{at} cannot be used: {error}"))?;
    let has = |name: &str| controllers.split_whitespace().any(|controller| controller == name);
    match CONTROLLERS.into_iter().find(|name| !has(name)) {
        Some(missing) => Err(format!("{at} has no controller {missing}")),
        None => Ok(cgroup),
    }
}

/// Moves this process to a child cgroup if the cgroup has processes, enables the controllers for
/// child cgroups, and tries one.
fn prepare(cgroup: &Path) -> Result<(), String> {
    let file = |name: &str| cgroup.join(name);
    let unusable = |error: io::Error| format!("{} cannot be used: {error}", cgroup.display());
    let processes = fs::read_to_string(file("cgroup.procs")).map_err(unusable)?;
    if !processes.trim().is_empty() {
        match fs::create_dir(file(SERVICE)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(unusable(error));
            }
            _ => {}
        }
        // Other processes stay in the cgroup, and then the next step fails.
        let own = std::process::id().to_string();
        fs::write(file(SERVICE).join("cgroup.procs"), own).map_err(unusable)?;
    }
    let wanted = CONTROLLERS.map(|controller| format!("+{controller}")).join(" ");
    fs::write(file("cgroup.subtree_control"), wanted).map_err(unusable)?;
    let cgroup = file(&format!("trial-{}", std::process::id()));
    let tried = Limits { cgroup: cgroup.clone(), ..Limits::default() }.make();
    // A cgroup that cannot be removed costs nothing.
    let _ = fs::remove_dir(cgroup);
    tried.map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a cgroup.
    fn tree(controllers: &str, processes: &str) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (file, text) in [("cgroup.controllers", controllers), ("cgroup.procs", processes)] {
            fs::write(tree.path().join(file), text).unwrap();
        }
        tree
    }

    #[test]
    fn a_prepared_cgroup_enables_its_controllers_and_has_no_processes() {
        let tree = tree("cpuset cpu io memory pids\n", "41\n42\n");
        assert_eq!(cgroup(Some(tree.path())).unwrap(), tree.path());
        assert!(!tree.path().join("bullpen-service").exists(), "`cgroup` changed the cgroup");
        fs::create_dir(tree.path().join("bullpen-service")).unwrap();
        prepare(tree.path()).unwrap();
        let read = |file: &str| fs::read_to_string(tree.path().join(file)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+cpu +memory +pids");
        assert_eq!(read("bullpen-service/cgroup.procs"), std::process::id().to_string());
    }

    #[test]
    fn a_cgroup_that_takes_no_process_is_refused_with_the_reason() {
        let tree = tree("cpu memory pids\n", "");
        let trial = format!("trial-{}/cgroup.procs", std::process::id());
        // A directory instead of the file: root could write a file without permission.
        fs::create_dir_all(tree.path().join(trial)).unwrap();
        let why = prepare(tree.path()).unwrap_err();
        assert!(why.contains("no process can enter the cgroup"), "{why}");
    }

    #[test]
    fn jobs_without_isolation_have_no_limits() {
        let tree = tree("cpu memory pids\n", "");
        let settings = IsolationSettings {
            mode: IsolationMode::Best,
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
        assert_eq!(why, "nothing isolates jobs here");
        let off = IsolationSettings { processes_max: None, ..settings };
        assert_eq!(limits(&off, &held).unwrap_err(), "limits are switched off");
    }

    fn chosen(mode: IsolationMode, limits: Result<PathBuf, String>) -> ChosenIsolation {
        let means = HostIsolation {
            root: true,
            user: Ok(()),
            namespaces: Ok(()),
            own_processes: Ok(()),
            groups: Vec::new(),
        };
        let decision = decide(mode, &means);
        let for_agents = Isolation::of(&decision);
        ChosenIsolation {
            decision,
            refused: false,
            limits,
            is_to_be_limited: true,
            for_agents,
            users: None,
        }
    }

    #[test]
    fn lacking_limits_are_in_the_warning_and_do_not_refuse_launches() {
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

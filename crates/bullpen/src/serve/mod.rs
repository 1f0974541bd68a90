//! `bullpen serve`: takes webhooks and gives every job a runner, until a signal ends it.
//!
//! One process does everything, or the roles that it is given; any number of replicas share a ledger.
//! After the first signal the process takes on nothing new, finishes what it can in its time, hands
//! back the rest, and takes webhooks to the last moment. After a second signal it ends at once; other
//! processes find the work that it leaves.
//!
//! Not here: serving jobs (`bullpen_engine::jobs`), or keeping a stack in order
//! (`bullpen_engine::refresh`).

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bullpen_core::class::RunnerClass;
use bullpen_core::config::stack::Network;
use bullpen_core::config::{Config, RUNS_ON_BYTES_MAX, Stack as StackFile};
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::isolation::{MissingIsolation, SHARED_NETWORK};
use bullpen_core::parameters::Parameters;
use bullpen_core::pool::{Blueprint, Blueprints, StackBase};
use bullpen_core::ports::{Clock as _, Forge as _, JobForge, Ports};
use bullpen_core::scope::{Installations, OutOfScope, ServedRepositories, ServiceScope};
use bullpen_embedded::StoreLost;
use bullpen_embedded::system::SystemClock;
use bullpen_engine::Stack;
use bullpen_engine::jobs::{
    Duties, JobSettings, Service, ServiceEvent, ensure_queues, run as run_jobs,
};
use bullpen_engine::refresh::{DesiredStack, learn_site};
use bullpen_github::GitHub;
use bullpen_github::webhook::Secrets;
use futures_util::future::join;
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::coop::unconstrained;

use crate::exit::Exit;
use crate::inputs::{self, CommonArgs, CommonInputs, Environment, StackInputs, UsageError, files};
use crate::render;
#[cfg(feature = "aws")]
use crate::runtime::IfMissing;
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan};
use crate::signals::{EndSignal, Signals};
use crate::workflow::{Failure, Loaded, load, run_command, tokens_every};

mod admin;
mod calls;
mod configuration;
mod connections;
mod descriptors;
mod http;
mod metrics;
mod webhook;

use admin::Admin;
use calls::answer_calls;
use configuration::Configuration;
pub(crate) use configuration::Source;
use connections::ConnectionLimits;
use metrics::Metrics;
use webhook::Webhooks;

/// Connections for webhooks at once: with what the service opens itself, about the 1,024 files that a
/// process may have open by default ([`descriptors`]).
const WEBHOOK_CONNECTIONS_MAX: usize = 640;
/// Connections of one address that have carried no signed delivery: more than one of GitHub's
/// addresses opens within the moment that a delivery takes to arrive.
const UNPROVEN_MAX: usize = 128;
/// Connections for the operator and the monitoring.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// How often the configuration is read between two questions where the Apps are installed: a minute, if
/// it is read every 30 seconds. A stranger's webhook can raise the doubt.
const LOOKS_BETWEEN_ASKING: u32 = 2;
/// The region of a stack whose machines are processes.
const LOCAL: &str = "local";
/// Where the secrets are if `bullpen.toml` does not say.
pub(crate) const SECRET: &str = "BULLPEN_WEBHOOK_SECRET";
const SECRET_BEFORE: &str = "BULLPEN_WEBHOOK_SECRET_PREVIOUS";

/// What is served, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where webhooks are taken [default: listeners.webhook of bullpen.toml, 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) webhook: Option<SocketAddr>,
    /// Where health and metrics are [default: listeners.admin of bullpen.toml, 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// What this process does; others may do the rest
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Role::Webhook, Role::Jobs, Role::Pools])]
    pub(crate) roles: Vec<Role>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// A part of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// Takes webhooks and makes them durable
    Webhook,
    /// Gives waiting jobs their runners, and finds jobs that no webhook announced
    Jobs,
    /// Keeps standby pools, and the stack in order: what `refresh` does, again and again
    Pools,
}

/// Serves.
pub(crate) fn serve(args: &ServeArgs) -> Exit {
    run_command(async |environment| Box::pin(run(args, environment)).await)
}

async fn run(args: &ServeArgs, environment: &Environment) -> Result<Exit, Failure> {
    // Taken over before anything is begun, so that no end is missed.
    let signals = Signals::take_over().map_err(|error| Failure::new(Exit::Failed, &error))?;
    survive_full_files().map_err(|error| Failure::new(Exit::Failed, &error))?;
    let common = CommonInputs::read(&args.common, environment)?;
    let Loaded { common, file } = load(&common, environment)?;
    runtime::require_ceiling(&file, &common.stack)?;
    runtime::require_runner_program(&common)?;
    if let Some(path) = &common.stack.config {
        files::text(path, RUNS_ON_BYTES_MAX)?;
    }
    let place = ListenerSettings::of(args, &file, environment)?;
    descriptors::prepare(file.process_fleet.capacity);
    let plan = RuntimePlan { common: &common, config: None, file: &file, environment };
    if common.stack.is_on_this_machine() {
        report_isolation(&plan)?;
    }
    let opening = ServeOptions { place, common: &common, file: &file };
    runtime::run(&plan, Serving { opening, signals }).await?
}

/// Makes a write beyond the limit of a file's size fail, as on a full disk. By default a signal ends
/// the process.
fn survive_full_files() -> io::Result<()> {
    // Taking the signal over is enough.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

/// Logs what jobs could do to this service. Fails if isolation is required and missing.
fn report_isolation(plan: &RuntimePlan<'_>) -> Result<(), Failure> {
    let chosen = runtime::isolated(plan)?;
    if chosen.refused {
        let what = format!("isolation is required, and {}", chosen.lacking().unwrap_or_default());
        return Err(UsageError::new(what).into());
    }
    if let Some(lacking) = chosen.warning() {
        tracing::warn!(lacking, "jobs are not fully isolated");
    }
    let MissingIsolation { what, then } = SHARED_NETWORK;
    tracing::info!(%what, then, "jobs share the network");
    Ok(())
}

/// The addresses, secrets and roles of the listeners.
pub(crate) struct ListenerSettings {
    roles: Vec<Role>,
    webhook: SocketAddr,
    admin: SocketAddr,
    secrets: Option<Secrets>,
    token: Option<Secrets>,
    proxies: Vec<Network>,
}

impl ListenerSettings {
    /// Reads arguments, file and environment.
    pub(crate) fn of(
        args: &ServeArgs,
        file: &StackFile,
        environment: &Environment,
    ) -> Result<Self, UsageError> {
        let listeners = &file.listeners;
        let admin = args.admin.unwrap_or(listeners.admin);
        let takes = args.roles.contains(&Role::Webhook);
        let token = listeners.admin_token.as_ref();
        let token = token.map(|at| files::secret("listeners.admin-token", at, environment));
        let token = token.transpose()?;
        if token.is_none() && !admin.ip().is_loopback() {
            return Err(UsageError::new(format!(
                "--admin: {admin} is reachable from outside without listeners.admin-token; name one \
                 in bullpen.toml, or listen on 127.0.0.1"
            )));
        }
        let checked = |token| Secrets::new(&token, None);
        let token = token.map(checked).transpose();
        Ok(Self {
            roles: args.roles.clone(),
            webhook: args.webhook.unwrap_or(listeners.webhook),
            admin,
            secrets: if takes { Some(secrets(file, environment)?) } else { None },
            token: token.map_err(|error| UsageError::new(error.to_string()))?,
            proxies: listeners.proxies.clone(),
        })
    }

    fn does(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// The secrets that webhooks are signed with: from the place that `bullpen.toml` names, else from the
/// environment.
fn secrets(file: &StackFile, environment: &Environment) -> Result<Secrets, UsageError> {
    let named = file.github.webhook_secrets.iter();
    let named = named.map(|at| files::secret("github.webhook-secrets", at, environment));
    let mut secrets = named.collect::<Result<Vec<_>, _>>()?;
    if secrets.is_empty() {
        let set = [SECRET, SECRET_BEFORE].map(|name| environment.get(name)).into_iter().flatten();
        secrets.extend(set.map(|text| bullpen_core::mailbox::Secret::new(text.trim())));
    }
    let [current, before @ ..] = secrets.as_slice() else {
        return Err(UsageError::new(format!(
            "there is no webhook secret: set {SECRET}, or name one as github.webhook-secrets in \
             bullpen.toml; without it any sender could start machines"
        )));
    };
    Secrets::new(current, before.first()).map_err(|error| UsageError::new(error.to_string()))
}

/// A service that is about to begin.
struct Serving<'a> {
    opening: ServeOptions<'a>,
    signals: Signals,
}

impl Command for Serving<'_> {
    type Outcome = Result<Exit, Failure>;

    #[cfg(feature = "aws")]
    fn if_missing(&self) -> IfMissing {
        IfMissing::Make
    }

    async fn run<P: Ports<Forge = GithubAccess>>(self, mut runtime: Runtime<P>) -> Self::Outcome {
        let Self { opening, mut signals } = self;
        bound(&mut runtime.stack.ceilings, opening.file, &opening.common.stack);
        let received: Cell<Option<EndSignal>> = Cell::new(None);
        let (stop, mut stopped) = watch::channel(false);
        let stopped = async { drop(stopped.wait_for(|stopped| *stopped).await) };
        let listening = async {
            received.set(Some(signals.next().await));
            render::talk(
                "draining: what has begun is finished or handed back; again to end at once",
            );
            stop.send_replace(true);
            received.set(Some(signals.next().await));
        };
        // Signals first: a busy service still obeys the operator.
        tokio::select! {
            biased;
            () = listening => {}
            served = Box::pin(serve_in(&runtime, opening, announce, stopped)) => served?,
        }
        Ok(received.get().map_or(Exit::Done, EndSignal::exit))
    }
}

/// Limits the stack to the machines that this host has room for. Jobs wait under a ceiling until a
/// machine is free; a launch that failed for lack of capacity would be retried a few times and then given up.
pub(crate) fn bound(ceilings: &mut Vec<Ceiling>, file: &StackFile, inputs: &StackInputs) {
    let has_one = ceilings.iter().any(|ceiling| ceiling.scope == Scope::Stack);
    if inputs.is_on_this_machine() && !has_one {
        ceilings.push(Ceiling { scope: Scope::Stack, max: file.process_fleet.capacity });
    }
}

/// Prints the addresses as one line of data: the service listens from now on.
fn announce(addresses: &Addresses) {
    let webhook = addresses.webhook_url();
    let admin = format!("http://{}", addresses.admin);
    render::json(&json!({"webhook": webhook, "admin": admin}).to_string());
}

/// The inputs of a service.
pub(crate) struct ServeOptions<'a> {
    /// The listeners' settings.
    pub(crate) place: ListenerSettings,
    /// The command's inputs.
    pub(crate) common: &'a CommonInputs,
    /// `bullpen.toml`.
    pub(crate) file: &'a StackFile,
}

/// The addresses that the listeners have bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// For webhooks, if it takes any.
    pub(crate) webhook: Option<SocketAddr>,
    /// For the operator.
    pub(crate) admin: SocketAddr,
}

impl Addresses {
    /// The URL to configure at GitHub.
    pub(crate) fn webhook_url(&self) -> Option<String> {
        self.webhook.map(|at| format!("http://{at}{}", webhook::PATH))
    }
}

/// Serves in a runtime until `stop`, and drains.
pub(crate) async fn serve_in<P: Ports<Forge = GithubAccess>>(
    runtime: &Runtime<P>,
    opening: ServeOptions<'_>,
    ready: impl FnOnce(&Addresses),
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let ServeOptions { place, common, file } = opening;
    let stack = &runtime.stack;
    let github = stack.ports.forge().manager().ok_or_else(no_credential)?;
    let listeners = Listeners::bind(&place).await?;
    let made = ensure_queues(stack).await;
    made.map_err(|fault| Failure::of("could not make the queues", &fault))?;
    learn(runtime).await?;
    let metrics = Arc::new(Metrics::new());
    // Set when another installation announces an own repository: the App may have been installed anew.
    let doubt = AtomicBool::new(false);
    let note = |noted: &ServiceEvent| {
        if matches!(noted, ServiceEvent::Foreign(OutOfScope::Installation)) {
            doubt.store(true, Ordering::Relaxed);
        }
        metrics.note(noted);
    };
    let configured = Configured::new(file, runtime, served(common)?, &doubt);
    configured.learn_installations(github).await;
    let service = Service::new(stack, github, configured.settings(None)).observed_by(&note);
    let mut configuration = Configuration::of(&common.stack, &common.github, file);
    configured.look(&mut configuration, &service).await;
    ready(&listeners.addresses()?);
    let duties = duties(&place, runtime);
    let (close, closing) = watch::channel(false);
    let work = async {
        run_jobs(&service, &duties, || configured.desired(stack), stop).await;
        close.send_replace(true);
    };
    let listening = listeners.serve(&service, &metrics, place, closing);
    // The future with the least work comes first, because tokio bounds what all of them do in one turn.
    tokio::select! {
        biased;
        () = watch_configuration(&service, &configured, configuration, github) => {}
        // Draining would hand nothing back: there is no store to write it to.
        lost = runtime.lost() => return Err(lost_store(&lost)),
        ((), ()) = join(Box::pin(listening), Box::pin(work)) => {}
    }
    Ok(())
}

fn lost_store(lost: &StoreLost) -> Failure {
    let failure = Failure::new(Exit::Failed, lost);
    Failure { hint: Some(lost.hint().to_owned()), ..failure }
}

/// Learns what launches need, because a process without the role `pools` never refreshes. If the cloud
/// does not answer, the site's document in the ledger serves.
async fn learn<P: Ports>(runtime: &Runtime<P>) -> Result<(), Failure> {
    match learn_site(&runtime.stack).await {
        Ok(_) => Ok(()),
        Err(fault) if fault.is_transient() && runtime.has_site => {
            tracing::warn!(%fault, "could not ask for launch site; using the stored one");
            Ok(())
        }
        Err(fault) => Err(Failure::of("could not learn where machines may be launched", &fault)),
    }
}

/// Whose jobs are served: the same whose runners are managed.
fn served(common: &CommonInputs) -> Result<ServedRepositories, Failure> {
    match &common.github.scope {
        Some(inputs::Scope::Repository(repository)) => {
            Ok(ServedRepositories::Repository(repository.clone()))
        }
        Some(inputs::Scope::Organisation(name)) => Ok(ServedRepositories::Owner(name.clone())),
        None => Err(no_credential()),
    }
}

fn no_credential() -> Failure {
    let what = "serving needs a credential for GitHub, and whose runners they are".to_owned();
    let hint = "give --repository, and --github-token-file or --app-id with --app-key, or name them in \
                bullpen.toml";
    Failure { exit: Exit::Usage, what, hint: Some(hint.to_owned()) }
}

fn duties<P: Ports>(place: &ListenerSettings, runtime: &Runtime<P>) -> Duties {
    let repositories = runtime.repository.iter().cloned().collect();
    let (jobs, pools) = (place.does(Role::Jobs), place.does(Role::Pools));
    Duties { jobs, upkeep: pools, pools, repositories }
}

/// Reads the configuration again and again, as long as the service runs.
async fn watch_configuration<P: Ports, J: JobForge>(
    service: &Service<'_, P, J>,
    configured: &Configured<'_>,
    mut configuration: Configuration<'_>,
    github: &GitHub<SystemClock>,
) {
    loop {
        service.stack.ports.clock().sleep(service.stack.limits.configuration).await;
        let look = async {
            if configured.learn_installations(github).await {
                configured.apply(service, &configuration);
            }
            configured.look(&mut configuration, service).await;
            if service.stack.clock_error().is_some() {
                // A process that does nothing would not learn that its clock is right again.
                let _ = github.runners().await;
            }
        };
        // The next look follows a panic.
        let _ = service.stack.caught("configuration", "", look).await;
    }
}

/// The current configuration, as the engine needs it.
struct Configured<'a> {
    file: &'a StackFile,
    parameters: &'a Parameters,
    foundation: &'a StackBase,
    region: &'a str,
    classes: RefCell<Vec<RunnerClass>>,
    scope: RefCell<ServiceScope>,
    /// Whether there may be more installations than the known ones.
    doubt: &'a AtomicBool,
    /// How often the configuration was read since GitHub was last asked where the Apps are installed.
    looks: Cell<u32>,
    /// The configuration that was read last.
    config: RefCell<Option<Config>>,
}

impl<'a> Configured<'a> {
    fn new<P>(
        file: &'a StackFile,
        runtime: &'a Runtime<P>,
        served: ServedRepositories,
        doubt: &'a AtomicBool,
    ) -> Self {
        let Runtime { parameters, foundation, region, .. } = runtime;
        let region = region.as_deref().or(file.aws.region.as_deref()).unwrap_or(LOCAL);
        let classes = RefCell::new(runtime::classes(None, parameters));
        let scope = ServiceScope { served, installations: Installations::NotAsked };
        let (scope, config) = (RefCell::new(scope), RefCell::default());
        let looks = Cell::default();
        Self { file, parameters, foundation, region, classes, scope, doubt, looks, config }
    }

    fn settings(&self, config: Option<Config>) -> JobSettings {
        JobSettings::new(&self.file.env, self.region, config)
            .built_from(self.foundation.clone())
            .within(self.scope.borrow().clone())
    }

    /// The named classes, and those of pools that are not among them: something is launched for both.
    fn classes_of(&self, config: &Config) -> Vec<RunnerClass> {
        let mut classes = runtime::classes(Some(config), self.parameters);
        let pools = Blueprints::of(&self.file.env, config, self.foundation).pools;
        for Blueprint { class, .. } in pools.into_values() {
            if classes.iter().all(|known| known.name != class.name) {
                classes.push(class);
            }
        }
        classes
    }

    /// Asks GitHub where the Apps are installed, if that is unknown, or if it is in doubt and was not
    /// asked lately. Returns whether the answer is new.
    async fn learn_installations(&self, github: &GitHub<SystemClock>) -> bool {
        let known = self.scope.borrow().installations.clone();
        self.looks.set(self.looks.get().saturating_add(1));
        let is_due = match known {
            Installations::NotAsked => true,
            Installations::Known(_) => {
                self.doubt.load(Ordering::Relaxed) && self.looks.get() >= LOOKS_BETWEEN_ASKING
            }
            Installations::Any => false,
        };
        if !is_due {
            return false;
        }
        self.looks.set(0);
        self.doubt.store(false, Ordering::Relaxed);
        let installations = match github.installations().await {
            Ok(Some(installed)) => {
                if !installed.is_complete {
                    self.doubt.store(true, Ordering::Relaxed);
                }
                Installations::Known(installed.ids)
            }
            Ok(None) => Installations::Any,
            Err(fault) => {
                tracing::warn!(%fault, "App installation unknown");
                self.doubt.store(true, Ordering::Relaxed);
                return false;
            }
        };
        let is_news = installations != known;
        self.scope.borrow_mut().installations = installations;
        is_news
    }

    /// Gives the service the current configuration.
    fn apply<P: Ports, J: JobForge>(
        &self,
        service: &Service<'_, P, J>,
        configuration: &Configuration<'_>,
    ) {
        let config = self.config.borrow().clone();
        let is_found = config.is_none() || configuration.is_found();
        let settings = self.settings(config);
        service.configure(if is_found { settings } else { settings.without_pools() });
    }

    /// Applies a new and good configuration.
    async fn look<P: Ports, J: JobForge>(
        &self,
        configuration: &mut Configuration<'_>,
        service: &Service<'_, P, J>,
    ) {
        if let Some(config) = configuration.look(service.forge).await {
            self.classes.replace(self.classes_of(&config));
            self.config.replace(Some(config));
            self.apply(service, configuration);
        }
    }

    fn desired<P: Ports<Forge = GithubAccess>>(&self, stack: &Stack<P>) -> DesiredStack {
        let forge = stack.ports.forge();
        DesiredStack {
            classes: self.classes.borrow().clone(),
            are_classes_known: self.config.borrow().is_some(),
            parameters: Parameters::default(),
            tokens_every: tokens_every(forge, None),
            reads_runs: forge.reads(),
            manages_runners: forge.manages(),
        }
    }
}

/// The bound listeners.
struct Listeners {
    webhook: Option<TcpListener>,
    admin: TcpListener,
}

impl Listeners {
    async fn bind(place: &ListenerSettings) -> Result<Self, Failure> {
        let webhook =
            if place.does(Role::Webhook) { Some(bind(place.webhook).await?) } else { None };
        Ok(Self { webhook, admin: bind(place.admin).await? })
    }

    fn addresses(&self) -> Result<Addresses, Failure> {
        let of = |listener: &TcpListener| {
            listener.local_addr().map_err(|error| Failure::new(Exit::Failed, &error))
        };
        Ok(Addresses {
            webhook: self.webhook.as_ref().map(of).transpose()?,
            admin: of(&self.admin)?,
        })
    }

    /// Serves both until `closing`, and then the requests that have begun.
    async fn serve<P: Ports, J: JobForge>(
        &self,
        service: &Service<'_, P, J>,
        metrics: &Arc<Metrics>,
        place: ListenerSettings,
        closing: watch::Receiver<bool>,
    ) {
        let clock = service.stack.ports.clock();
        let limits = |connections, unproven_per_peer| {
            let proxies = place.proxies.clone();
            ConnectionLimits { connections, unproven_per_peer, proxies }
        };
        let (caller, calls) = calls::channel(WEBHOOK_CONNECTIONS_MAX + ADMIN_CONNECTIONS_MAX);
        let admin = admin::router(Admin { service: caller.clone(), token: place.token });
        let webhooks = async {
            if let (Some(listener), Some(secrets)) = (&self.webhook, place.secrets) {
                let (metrics, system) = (Arc::clone(metrics), SystemClock::new());
                let router = webhook::router(Webhooks::new(caller, secrets, metrics, system));
                let limits = limits(WEBHOOK_CONNECTIONS_MAX, UNPROVEN_MAX);
                http::listen(listener, clock, closing.clone(), limits, router).await;
            }
        };
        let limits = limits(ADMIN_CONNECTIONS_MAX, ADMIN_CONNECTIONS_MAX);
        let both = join(http::listen(&self.admin, clock, closing.clone(), limits, admin), webhooks);
        // What connections do does not count, nor does what they wait for: see `http`.
        let answers = unconstrained(answer_calls(service, metrics, calls));
        tokio::select! {
            biased;
            ((), ()) = both => {}
            () = answers => {}
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| Failure {
        exit: Exit::Failed,
        what: format!("could not listen on {address}: {error}"),
        hint: Some(
            "is another process there? --webhook and --admin name other addresses".to_owned(),
        ),
    })
}

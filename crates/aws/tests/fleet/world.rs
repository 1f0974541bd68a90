//! A world for one test: a test EC2 with a network, a role and an image, and a stack on them.
//!
//! A server takes two seconds to start and none to reset, so tests reuse servers: the process
//! starts as many as tests run at once.
//!
//! Not here: assertions beyond the success of these steps.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::Region;
use aws_credential_types::Credentials;
use aws_sdk_ec2::types::Instance;
use bullpen_agent::machine::{RunnerProgram, UserData};
use bullpen_aws::{Ec2Fleet, Ec2Settings, SHOWN_WITHIN, SdkConfig, StackName, config};
use bullpen_core::class::{Architecture, RunnerClass, Usage};
use bullpen_core::creation::{LaunchRequest, Offering};
use bullpen_core::ids::{ImageName, InstanceId, InstanceType, IntentId, SpecHash, StopOp, Zone};
use bullpen_core::ports::{
    Clock as _, Fault, Fleet as _, Machine, MachineState, Site as _, StopOrder,
};
use bullpen_core::request::TypePattern;
use bullpen_core::site::SiteDocument;
use bullpen_faulty::ec2::{Admin, Options};
use bullpen_faulty::{Ec2, Plan, Proxy};
use bullpen_sim::clock::ManualClock;

pub(crate) type Fleet = Ec2Fleet<ManualClock>;

/// The image of the test EC2 for `x86_64`.
pub(crate) const IMAGE: &str = "ami-00000000000000864";
/// The zones of the stack's subnets.
pub(crate) const ZONES: [&str; 2] = ["us-east-1a", "us-east-1b"];
/// The types that [`request`] allows.
pub(crate) const TYPES: [&str; 2] = ["c5.large", "m5.large"];
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

const REGION: &str = "us-east-1";
const PROFILE: &str = "bullpen-agent";

/// A server that only one test uses at a time.
struct Server(Option<Ec2>);

/// Servers that no test uses. They end when the process does.
static FREE: Mutex<Vec<Ec2>> = Mutex::new(Vec::new());

impl Server {
    fn take() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let server = free.unwrap_or_else(|| {
            Ec2::start(&Options::default()).unwrap_or_else(|error| panic!("{error}"))
        });
        server.admin().reset();
        Self(Some(server))
    }
}

impl Deref for Server {
    type Target = Ec2;

    fn deref(&self) -> &Ec2 {
        self.0.as_ref().expect("a server until the drop")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).extend(self.0.take());
    }
}

/// A stack in an empty EC2.
pub(crate) struct World {
    server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) settings: Ec2Settings,
    /// What `refresh` has kept of the site.
    pub(crate) site: Option<SiteDocument>,
    /// The fleet's configuration; its calls go through the proxy.
    config: SdkConfig,
    /// The test's own client; its calls bypass the proxy and are not counted.
    pub(crate) client: aws_sdk_ec2::Client,
}

impl World {
    /// A world with a network and a role, before the first `refresh`.
    pub(crate) async fn bare() -> Self {
        let server = Server::take();
        let proxy = Proxy::start(server.address(), Plan::calm()).await.expect("a free port");
        let direct = configured(&server.url()).await;
        make_profile(&aws_sdk_iam::Client::new(&direct)).await;
        let client = aws_sdk_ec2::Client::new(&direct);
        let settings = settings(&client).await;
        let config = configured(&proxy.url()).await;
        Self { server, proxy, clock: ManualClock::new(), settings, site: None, config, client }
    }

    /// A world after `refresh`.
    pub(crate) async fn new() -> Self {
        let mut world = Self::bare().await;
        let fleet = world.learned().await;
        fleet.prepare(&[class()], true).await.expect("a launch template");
        world
    }

    /// The fleet that learned the site, which all fleets after it recall.
    pub(crate) async fn learned(&mut self) -> Fleet {
        let fleet = self.fleet();
        let learned = fleet.learn("2026-01-05", None).await.expect("a launch site");
        self.site = learned.map(|learned| learned.document);
        fleet
    }

    /// The fleet of another process.
    pub(crate) fn fleet(&self) -> Fleet {
        self.fleet_with(self.settings.clone())
    }

    pub(crate) fn fleet_with(&self, settings: Ec2Settings) -> Fleet {
        let runner = RunnerProgram::Directory(PathBuf::from("/opt/runner"));
        let user_data =
            UserData::new(PathBuf::from("/mailbox"), "https://github.com/octo".into(), runner);
        let fleet = Ec2Fleet::new(&self.config, settings, user_data, Arc::clone(&self.clock));
        if let Some(site) = &self.site {
            fleet.recall(site).expect("EC2's own document");
        }
        fleet
    }

    pub(crate) fn admin(&self) -> &Admin {
        self.server.admin()
    }

    /// Advances our clock and EC2's.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
        self.admin().advance(time);
    }

    /// Launches machines and waits until they run.
    pub(crate) async fn running(&self, fleet: &Fleet, intent: &str, count: u32) -> Vec<InstanceId> {
        let launched = fleet.launch(&request(intent, count)).await.expect("EC2 has capacity");
        assert_eq!(launched.machines.len(), usize::try_from(count).expect("a small number"));
        self.advance(HOUR);
        ids(&launched.machines)
    }

    /// Launches machines, and stops them once they run.
    pub(crate) async fn stopped(&self, fleet: &Fleet, intent: &str, count: u32) -> Vec<InstanceId> {
        let all = self.running(fleet, intent, count).await;
        fleet.stop(&self.orders(&all)).await.expect("the machines run");
        self.advance(HOUR);
        all
    }

    /// Stop orders that are valid for an hour.
    pub(crate) fn orders(&self, ids: &[InstanceId]) -> Vec<StopOrder> {
        let until = self.clock.now().after(HOUR);
        let order = |id: &InstanceId| StopOrder {
            id: id.clone(),
            op: StopOp::new(format!("op-{id}")),
            until,
        };
        ids.iter().map(order).collect()
    }

    /// Every instance that any stack ever launched, with EC2's name of its state.
    pub(crate) async fn instances(&self) -> BTreeMap<InstanceId, String> {
        let all = self.all().await;
        let id = |found: &Instance| InstanceId::new(found.instance_id().unwrap_or_default());
        let state = |found: &Instance| Some(found.state()?.name()?.as_str().to_owned());
        all.iter().map(|found| (id(found), state(found).unwrap_or_default())).collect()
    }

    pub(crate) async fn all(&self) -> Vec<Instance> {
        let pages = self.client.describe_instances().into_paginator().items().send();
        let all = pages.collect::<Result<Vec<_>, _>>().await.expect("EC2 answers");
        all.into_iter().flat_map(|reservation| reservation.instances.unwrap_or_default()).collect()
    }

    /// How many of these instances are in this state, in EC2's words.
    pub(crate) async fn count_in_state(&self, ids: &[InstanceId], state: &str) -> usize {
        let all = self.instances().await;
        ids.iter().filter(|id| all.get(id).is_some_and(|found| found == state)).count()
    }

    /// The fleets' calls of this action up to now.
    pub(crate) fn calls(&self, action: &str) -> u64 {
        self.proxy.counts().operation(action).arrived
    }
}

async fn configured(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::new("plane", "not a secret", None, None, "tests");
    let loader = config::loader().endpoint_url(endpoint).region(Region::new(REGION));
    loader.credentials_provider(credentials).load().await
}

async fn make_profile(iam: &aws_sdk_iam::Client) {
    let role = iam.create_role().role_name(PROFILE).assume_role_policy_document("{}");
    role.send().await.expect("a role");
    let profile = iam.create_instance_profile().instance_profile_name(PROFILE);
    profile.send().await.expect("a profile");
    let add = iam.add_role_to_instance_profile().instance_profile_name(PROFILE);
    add.role_name(PROFILE).send().await.expect("the role in the profile");
}

async fn settings(client: &aws_sdk_ec2::Client) -> Ec2Settings {
    let answer = client.describe_subnets().send().await.expect("the default network");
    let here = |zone: Option<&str>| zone.is_some_and(|zone| ZONES.contains(&zone));
    let subnets = answer.subnets().iter().filter(|subnet| here(subnet.availability_zone()));
    let subnets = subnets.filter_map(|subnet| subnet.subnet_id().map(str::to_owned)).collect();
    let answer = client.describe_security_groups().send().await.expect("the default group");
    let groups = answer.security_groups().iter();
    let security_groups = groups.filter_map(|group| group.group_id().map(str::to_owned)).collect();
    Ec2Settings {
        stack: StackName::new("contract").expect("a valid name"),
        subnets,
        security_groups,
        instance_profile: PROFILE.to_owned(),
        images: BTreeMap::from([(ImageName::new("ubuntu24-full-x64"), IMAGE.to_owned())]),
        agents: BTreeMap::new(),
        runners: BTreeMap::new(),
        watchdog: HOUR,
        shown_within: SHOWN_WITHIN,
        user: "runner".to_owned(),
        sudo: false,
        docker: false,
        metadata_hops: 1,
        price_protection: 100,
    }
}

/// A class of machines with two vCPUs.
pub(crate) fn class() -> RunnerClass {
    let class = RunnerClass::defaults().remove(0);
    assert_eq!((class.vcpu.max, class.architecture), (2, Architecture::X64));
    class
}

/// A request for on-demand machines of [`TYPES`].
pub(crate) fn request(intent: &str, count: u32) -> LaunchRequest {
    LaunchRequest {
        intent: IntentId::new(intent),
        class: class(),
        pool: None,
        usage: Usage::OnDemand,
        allowed_types: TYPES.map(TypePattern::new).into(),
        avoid: BTreeSet::new(),
        spec_hash: SpecHash::new("1:abc"),
        count,
    }
}

pub(crate) fn offering(usage: Usage, instance_type: &str, zone: &str) -> Offering {
    Offering { usage, instance_type: InstanceType::new(instance_type), zone: Zone::new(zone) }
}

/// Every offering that [`request`] allows.
pub(crate) fn every(usage: Usage) -> BTreeSet<Offering> {
    let of = |zone| TYPES.map(|instance_type| offering(usage, instance_type, zone));
    ZONES.into_iter().flat_map(of).collect()
}

pub(crate) fn ids(machines: &[Machine]) -> Vec<InstanceId> {
    machines.iter().map(|machine| machine.id.clone()).collect()
}

pub(crate) fn set<T: Ord + Clone>(all: &[T]) -> BTreeSet<T> {
    all.iter().cloned().collect()
}

/// The ids of the machines that are not gone.
pub(crate) fn alive(machines: Vec<Machine>) -> BTreeSet<InstanceId> {
    let alive = machines.into_iter().filter(|machine| machine.state != MachineState::Gone);
    alive.map(|machine| machine.id).collect()
}

/// The text of a denial, which tells an operator what to do.
#[track_caller]
pub(crate) fn denial<T: std::fmt::Debug>(answer: Result<T, Fault>) -> String {
    match answer {
        Err(Fault::Denied(why)) => why,
        other => panic!("not denied: {other:?}"),
    }
}

/// Runs a case on a runtime with real threads.
pub(crate) fn block_on<F: Future>(case: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("two threads");
    runtime.block_on(case)
}

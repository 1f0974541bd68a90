//! A process fleet that a test controls itself.
//!
//! Not here: the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{IntentId, SpecHash};
use bullpen_core::ports::Ids as _;
use bullpen_core::request::TypePattern;
use bullpen_embedded::fleet::{Capacity, Catalogue, Entropy, FleetSettings, ProcessFleet};
use bullpen_embedded::system::{SystemClock, SystemIds};

const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");
const HOUR: Duration = Duration::from_secs(3_600);

/// The fleet of this directory, whose machines get this user data.
pub(crate) fn fleet(directory: PathBuf, user_data: String) -> ProcessFleet<SystemClock> {
    let ids = SystemIds::new();
    let settings = FleetSettings {
        directory,
        supervisor: [BULLPEN, "supervise"].map(OsString::from).into(),
        agent: [BULLPEN, "agent"].map(OsString::from).into(),
        environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        user_data,
        watchdog: HOUR,
        boot_delay: Duration::ZERO,
        capacity: Capacity::default(),
        catalogue: Catalogue::built_in(),
        isolation: None,
        entropy: Entropy::new(move || ids.jitter(u64::MAX)),
    };
    ProcessFleet::open(settings, Arc::new(SystemClock::new())).expect("a fleet")
}

/// A launch of one machine of a built-in class, without a pool.
pub(crate) fn one_machine() -> LaunchRequest {
    LaunchRequest {
        intent: IntentId::new("intent"),
        class: RunnerClass::defaults().remove(0),
        pool: None,
        usage: Usage::Spot,
        allowed_types: vec![TypePattern::new("*")],
        avoid: BTreeSet::new(),
        spec_hash: SpecHash::new("1-abc"),
        count: 1,
    }
}

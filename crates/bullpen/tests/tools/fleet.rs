//! A process fleet that a test controls itself.
//!
//! Not here: the tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::ports::Ids as _;
use bullpen_embedded::fleet::{Capacity, Catalogue, Entropy, FleetSettings, ProcessFleet};
use bullpen_embedded::system::{SystemClock, SystemIds};

const BULLPEN: &str = env!("CARGO_BIN_EXE_bullpen");

/// The fleet of this directory, whose machines get this user data and end by themselves after
/// `watchdog` without a control plane.
pub(crate) fn fleet(
    directory: PathBuf,
    user_data: String,
    watchdog: Duration,
) -> ProcessFleet<SystemClock> {
    let ids = SystemIds::new();
    let settings = FleetSettings {
        directory,
        supervisor: [BULLPEN, "supervise"].map(OsString::from).into(),
        agent: [BULLPEN, "agent"].map(OsString::from).into(),
        environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        user_data,
        watchdog,
        boot_delay: Duration::ZERO,
        capacity: Capacity::default(),
        catalogue: Catalogue::built_in(),
        isolation: None,
        entropy: Entropy::new(move || ids.jitter(u64::MAX)),
    };
    ProcessFleet::open(settings, Arc::new(SystemClock::new())).expect("a fleet")
}

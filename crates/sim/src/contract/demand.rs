//! The contract of the `DemandSource` port.
//!
//! Not here: signatures, labels, or the later states of a job.

use std::collections::BTreeSet;

use bullpen_core::ids::{JobId, Repository};
use bullpen_core::ports::{Demand, DemandSource};

use super::{Harness, answered};

/// One test per case of the demand source's contract.
#[macro_export]
macro_rules! demand_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            demand,
            [
                a_demand_is_handed_out_until_it_is_settled,
                no_more_are_handed_out_than_asked_for,
                settling_twice_is_harmless,
                a_demand_comes_whole,
            ]
        );
    };
}

/// A harness that can announce jobs.
pub trait DemandHarness: Harness<Port: DemandSource> {
    /// The source announces a job, and keeps it until it is settled.
    fn announce(&self, demand: Demand) -> impl Future<Output = ()>;
}

async fn announce<H: DemandHarness>(harness: &H, jobs: &[&str]) {
    for job in jobs {
        let demand = Demand {
            job: JobId::new(job),
            repository: Repository::new("octo/repo"),
            labels: vec!["bullpen".into(), format!("pool={job}")],
            queued_at: harness.now(),
        };
        harness.announce(demand).await;
    }
    harness.settle().await;
}

/// All demands that the port hands out; polls several times where demands may be late.
async fn handed_out<H: DemandHarness>(harness: &H) -> BTreeSet<String> {
    let mut jobs = BTreeSet::new();
    for _ in 0..if H::WEAK { 20 } else { 1 } {
        let demands = answered(harness.port().demands(100).await);
        jobs.extend(demands.into_iter().map(|demand| demand.job.to_string()));
    }
    jobs
}

fn set(jobs: &[&str]) -> BTreeSet<String> {
    jobs.iter().map(ToString::to_string).collect()
}

/// A crash between receiving and settling loses nothing.
pub async fn a_demand_is_handed_out_until_it_is_settled<H: DemandHarness>(harness: H) {
    assert_eq!(handed_out(&harness).await, set(&[]));
    announce(&harness, &["j-1", "j-2", "j-3"]).await;
    assert_eq!(handed_out(&harness).await, set(&["j-1", "j-2", "j-3"]));
    harness.pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(handed_out(&harness).await, set(&["j-1", "j-2", "j-3"]), "again");
    answered(harness.port().settle(&[JobId::new("j-1"), JobId::new("j-3")]).await);
    harness.settle().await;
    let left = handed_out(&harness).await;
    assert!(left.contains("j-2"), "{left:?}");
    assert!(H::WEAK || left == set(&["j-2"]), "{left:?}");
}

/// A poll returns at most the number it asked for; later polls return the others.
pub async fn no_more_are_handed_out_than_asked_for<H: DemandHarness>(harness: H) {
    announce(&harness, &["j-1", "j-2", "j-3", "j-4", "j-5"]).await;
    let mut seen = BTreeSet::new();
    for _ in 0..if H::WEAK { 60 } else { 5 } {
        let demands = answered(harness.port().demands(2).await);
        assert!(demands.len() <= 2, "{} of at most 2", demands.len());
        let jobs: Vec<_> = demands.into_iter().map(|demand| demand.job).collect();
        seen.extend(jobs.iter().map(ToString::to_string));
        answered(harness.port().settle(&jobs).await);
    }
    assert_eq!(seen, set(&["j-1", "j-2", "j-3", "j-4", "j-5"]));
}

/// Settling a demand twice, or an unknown demand, changes nothing.
pub async fn settling_twice_is_harmless<H: DemandHarness>(harness: H) {
    announce(&harness, &["j-1", "j-2"]).await;
    for _ in 0..2 {
        answered(harness.port().settle(&[JobId::new("j-1"), JobId::new("j-unknown")]).await);
    }
    answered(harness.port().settle(&[]).await);
    harness.settle().await;
    assert!(handed_out(&harness).await.contains("j-2"));
}

/// A demand has its job, repository, labels in their order, and the time when it was queued.
pub async fn a_demand_comes_whole<H: DemandHarness>(harness: H) {
    let demand = Demand {
        job: JobId::new("j-1"),
        repository: Repository::new("octo/repo"),
        labels: vec!["bullpen=1/runner=large".into(), "z".into(), "a ☃".into()],
        queued_at: harness.now(),
    };
    harness.announce(demand.clone()).await;
    harness.settle().await;
    for _ in 0..20 {
        if let Some(found) = answered(harness.port().demands(1).await).pop() {
            assert_eq!(found, demand);
            return;
        }
    }
    panic!("an announced demand never came");
}

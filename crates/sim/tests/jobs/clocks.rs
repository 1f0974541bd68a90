//! A replica whose clock is hours off beside one whose clock is right: the wrong one serves jobs, and
//! ends nothing for its age.
//!
//! Not here: clocks that differ by less than the tolerated skew (`replicas`).

use std::time::Duration;

use bullpen_core::instance::EndReason;
use bullpen_core::ports::Ports;
use bullpen_sim::clock::on_virtual_time;

use super::service_world::ServiceWorld;

const LONG: Duration = Duration::from_secs(45 * 60);
const HOURS_MILLIS: i64 = 2 * 3_600_000;
const JOBS: [&str; 6] = ["71", "72", "73", "74", "75", "76"];

#[test]
pub(crate) fn a_wrong_clock_ends_no_machine_and_no_job() {
    for ahead_millis in [HOURS_MILLIS, -HOURS_MILLIS] {
        on_virtual_time(async {
            let sim = ServiceWorld::new(8).await;
            sim.world.set_wrong_clock("wrong", ahead_millis);
            for job in JOBS {
                sim.queue(job).await;
            }
            let done = async || {
                for job in JOBS {
                    if !sim.is_settled(job).await {
                        return false;
                    }
                }
                true
            };
            let served = tokio::join!(
                Box::pin(sim.serve_until("wrong", LONG, |_| true, done)),
                Box::pin(sim.serve_until("right", LONG, |_| true, done)),
            );
            assert_eq!(served, (true, true), "{ahead_millis}");
            assert_eq!(sim.github.notices(), [], "{ahead_millis}");
            assert_eq!(sim.world.outside.forge().completed(), 6, "{ahead_millis}");
            assert_eq!(sim.launched(), JOBS.len(), "{ahead_millis}");
            let ended = sim.checker.ended();
            assert!(
                ended.keys().all(|why| *why == EndReason::WornOut),
                "{ahead_millis}: {ended:?}"
            );
            sim.end().await;
        });
    }
}

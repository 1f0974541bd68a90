//! The cost of a warm job, from its webhook to its machine being idle again: calls, never durations.
//!
//! Not here: the cost of a warm request (`tests/cost_of_a_warm_request.rs`).

#![expect(clippy::print_stdout, reason = "the counts are reported in docs/benchmarks.md")]

use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::ports::Ports;
use bullpen_engine::jobs::{Ingested, Service, deliver, launch_worker, pool_worker};
use bullpen_sim::calm_world::{self, IdleMachines};
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::wire::{Calls, Wire};

use super::service_world::{LASTS, ServiceWorld, about_in};

/// The calls of one step: reads and writes of the ledger, and all calls of each other port.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    reads: u64,
    writes: u64,
    mailbox: u64,
    queues: u64,
    github: u64,
}

/// Counts the calls between one step and the next.
struct Counter<'w> {
    wire: &'w Wire,
    before: Cost,
}

impl Counter<'_> {
    fn spent(&mut self, step: &str) -> Cost {
        let (calls, writes) = (self.wire.calls(), self.wire.writes());
        let of = |calls: &Calls, port| calls.get(port).copied().unwrap_or(0);
        let writes = of(&writes, "ledger");
        let now = Cost {
            reads: of(&calls, "ledger") - writes,
            writes,
            mailbox: of(&calls, "mailbox"),
            queues: of(&calls, "queues"),
            github: of(&calls, "forge"),
        };
        let before = std::mem::replace(&mut self.before, now);
        let spent = Cost {
            reads: now.reads - before.reads,
            writes: now.writes - before.writes,
            mailbox: now.mailbox - before.mailbox,
            queues: now.queues - before.queues,
            github: now.github - before.github,
        };
        println!("{step}: {spent:?}");
        spent
    }
}

#[test]
fn a_warm_job_costs_few_calls() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(20).await.with_pool();
        let lasts = Duration::from_secs(3_600);
        let plain = IdleMachines::plain("hot", Usage::OnDemand, 3);
        let hot = IdleMachines { lasts, pooled: true, ..plain };
        calm_world::add_machines(&sim.world, &hot).await.expect("calm");
        let (wire, stack) = sim.world.process("serves");
        let github = sim.github.for_process(wire.clone());
        let service = Service::new(&stack, &github, sim.settings());
        let mut counter = Counter { wire: &wire, before: Cost::default() };
        // The first job of a repository also notes that the repository is active.
        for (job, noted) in [("101", 1), ("102", 0)] {
            let label = format!("runs-on={job}/pool=stage");
            let fact = sim.submit(job, about_in(job, "acme/app", &label));
            assert_eq!(deliver(&service, &fact, None).await, Ok(Ingested::Stored));
            let heard = counter.spent("heard");
            assert_eq!(
                (heard.reads, heard.writes),
                (noted, 1 + noted),
                "its row is written unread"
            );
            assert_eq!(pool_worker(&service, Duration::ZERO).await, Ok(1));
            let listens = counter.spent("listens");
            // The repositories that wait, their rows, and the pool; begun, claimed, named, running.
            assert_eq!((listens.reads, listens.writes, listens.github), (3, 4, 1));
            pass(LASTS * 2).await;
            let facts = github.observe(&stack.name, sim.world.outside.clock().true_now());
            counter.spent("GitHub's own calls");
            assert_eq!(facts.len(), 2, "started and completed");
            for fact in &facts {
                deliver(&service, fact, None).await.expect("calm");
                let told = counter.spent("reported");
                assert_eq!((told.reads, told.writes, told.github), (1, 1, 0));
            }
            assert_eq!(launch_worker(&service, Duration::ZERO).await, Ok(1));
            let released = counter.spent("released");
            // Its row, its machine, and its row for the names of its runners; taken back, given
            // back or ended, and noted in the row.
            assert_eq!((released.reads, released.writes, released.github), (3, 3, 0));
            assert!(sim.is_settled(job).await);
        }
    });
}

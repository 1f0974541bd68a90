//! The steps of a refresh, and its dry run, which changes nothing.
//!
//! Not here: a refresh under faults (the seeds).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::ids::{QueueName, Repository, Revision, RunAttempt};
use bullpen_core::parameters::{self, Kept as _, KeptTokens, Parameters, decode, encode};
use bullpen_core::ports::{Document, Fault, Forge, Ledger, Ports, Queues, Written};
use bullpen_engine::Stack;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::provision::{Call, provision};
use bullpen_engine::refresh::dry_run::DryRun;
use bullpen_engine::refresh::{DesiredStack, StepReport, refresh};
use bullpen_engine::stored_parameters;
use bullpen_sim::calm_world;
use bullpen_sim::clock::{on_virtual_time, pass};
use bullpen_sim::world::SimPorts;

fn desired(classes: Vec<RunnerClass>) -> DesiredStack {
    DesiredStack {
        classes,
        are_classes_known: true,
        parameters: Parameters::default(),
        tokens_every: Some(Duration::from_secs(1_800)),
        reads_runs: true,
        manages_runners: true,
    }
}

fn two_classes() -> Vec<RunnerClass> {
    RunnerClass::defaults().into_iter().take(2).collect()
}

fn failed(reports: &[StepReport]) -> Vec<&StepReport> {
    reports.iter().filter(|report| report.outcome.is_err()).collect()
}

fn step<'r>(reports: &'r [StepReport], name: &str) -> &'r Result<Vec<String>, String> {
    &reports.iter().find(|report| report.step == name).expect("there is such a step").outcome
}

/// A dry run writes nothing, and lists the writes of a refresh.
#[test]
fn a_dry_run_changes_nothing() {
    on_virtual_time(async {
        let world = calm_world::new(1, 10).await;
        let machines = calm_world::add_idle(&world, Usage::OnDemand, 2).await;
        // Past the idle deadline and every grace: a refresh would end them.
        pass(Duration::from_secs(3_600)).await;
        let (_, real) = world.process("refresh");
        let before = world.outside.ledger().snapshot();
        let dry = Stack::new(
            DryRun::new(&real.ports),
            "sim",
            real.limits.clone(),
            real.ceilings.clone(),
            real.spec_hash.clone(),
        );
        let reports = refresh(&dry, &desired(two_classes()), &AdvertMemory::default()).await;
        assert!(failed(&reports).is_empty(), "{reports:?}");
        assert_eq!(world.outside.ledger().snapshot(), before);
        assert_eq!(world.outside.ledger().documents("stack").await, Ok(vec![].into()));
        let notes = dry.ports.notes();
        for machine in &machines {
            let ends = format!("{}: idle -> terminating", machine.id);
            assert!(notes.contains(&ends), "{notes:?}");
        }
        assert!(notes.iter().any(|note| note == "stack/parameters: stored"), "{notes:?}");
        // The refresh itself does write.
        let reports = refresh(&real, &desired(two_classes()), &AdvertMemory::default()).await;
        assert!(failed(&reports).is_empty(), "{reports:?}");
        assert_ne!(world.outside.ledger().snapshot(), before);
    });
}

/// Two refreshes run at once, and then a third, which finds nothing to do.
#[test]
fn a_second_refresh_finds_nothing_to_do() {
    on_virtual_time(async {
        let world = calm_world::new(2, 10).await;
        let (_, one) = world.process("one");
        let (_, other) = world.process("other");
        let wanted = desired(two_classes());
        let (left, right) = (AdvertMemory::default(), AdvertMemory::default());
        let (first, second) =
            tokio::join!(refresh(&one, &wanted, &left), refresh(&other, &wanted, &right));
        assert!(failed(&first).is_empty() && failed(&second).is_empty());
        let third = refresh(&one, &wanted, &left).await;
        for report in &third {
            assert_eq!(report.outcome, Ok(vec![]), "{}", report.step);
        }
    });
}

/// D41: a step that fails does not stop the others.
#[test]
fn d41_with_github_down_machines_are_still_reaped() {
    on_virtual_time(async {
        let world = calm_world::new(3, 10).await;
        calm_world::add_idle(&world, Usage::OnDemand, 2).await;
        pass(Duration::from_secs(3_600)).await;
        world.outside.forge().set_outage(true);
        let (_, stack) = world.process("refresh");
        let reports = refresh(&stack, &desired(two_classes()), &AdvertMemory::default()).await;
        assert!(step(&reports, "tokens").is_err());
        let reaped = step(&reports, "reaping").as_ref().expect("it needs no GitHub");
        assert_eq!(reaped.first().map(String::as_str), Some("2 past their time, ending"));
    });
}

/// A refresh releases the machines of a run that ended without its release step.
#[test]
fn an_ended_runs_machines_are_released() {
    on_virtual_time(async {
        let world = calm_world::new(4, 10).await;
        let now = world.outside.clock().true_now();
        let request = calm_world::request("77.1.build", 2, now);
        let (_, stack) = world.process("p");
        let repository = Repository::new("octo/main");
        let call = Call { repository: Some(&repository), ..Call::silent(&request) };
        provision(&stack, call, std::future::pending()).await.expect("the world is calm");
        let wanted = desired(two_classes());
        let memory = AdvertMemory::default();
        let reports = refresh(&stack, &wanted, &memory).await;
        assert_eq!(*step(&reports, "ended runs"), Ok(vec![]), "the run has not ended");
        world.outside.forge().end_run(RunAttempt::new("77.1"));
        let reports = refresh(&stack, &wanted, &memory).await;
        let lines = step(&reports, "ended runs").as_ref().expect("GitHub is up");
        assert_eq!(lines.len(), 1, "{lines:?}");
        for _ in 0..20 {
            pass(Duration::from_secs(10)).await;
            refresh(&stack, &wanted, &memory).await;
        }
        let idle = world.outside.ledger().idle_in(&request.class.name).await.expect("calm");
        assert_eq!(idle.items.len(), 2);
    });
}

/// D10: a class that was removed keeps its queue until its last machine is gone.
#[test]
fn d10_the_queue_of_a_removed_class_is_drained_and_removed() {
    on_virtual_time(async {
        let world = calm_world::new(5, 10).await;
        calm_world::add_idle(&world, Usage::OnDemand, 1).await;
        let (_, stack) = world.process("refresh");
        let (all, memory) = (two_classes(), AdvertMemory::default());
        refresh(&stack, &desired(all.clone()), &memory).await;
        let kept: Vec<RunnerClass> = all[1..].to_vec();
        let reports = refresh(&stack, &desired(kept.clone()), &memory).await;
        let lines = step(&reports, "queues").as_ref().expect("calm");
        assert_eq!(lines, &[format!("class {} is drained: 1 machines are left", all[0].name)]);
        pass(Duration::from_secs(3_600)).await;
        refresh(&stack, &desired(kept.clone()), &memory).await;
        refresh(&stack, &desired(kept), &memory).await;
        let queue = QueueName::new(format!("sim-{}", all[0].name));
        assert_eq!(world.outside.queues().depth(&queue).await, Err(Fault::NotFound));
    });
}

/// D42: a refresh replaces kept tokens long before they expire, but not every time.
#[test]
fn d42_tokens_are_kept_and_renewed_in_time() {
    on_virtual_time(async {
        let world = calm_world::new(6, 10).await;
        let (_, stack) = world.process("refresh");
        let (wanted, memory) = (desired(two_classes()), AdvertMemory::default());
        let mut minted = BTreeSet::new();
        for _ in 0..4 {
            refresh(&stack, &wanted, &memory).await;
            let until = stack.now().after(Duration::from_secs(60));
            let kept =
                stored_parameters::load::<SimPorts, KeptTokens>(&stack, until).await.expect("calm");
            minted.insert(kept.expect("they are kept").minted_at);
            pass(Duration::from_secs(900)).await;
        }
        assert_eq!(minted.len(), 2, "every half hour: {minted:?}");
    });
}

/// Tokens have a collection of their own, which a policy can leave out. No token stays in the
/// collection of the stack's parameters, which every command reads, even if a refresh died while it
/// moved them.
#[test]
fn tokens_are_not_where_every_command_reads() {
    on_virtual_time(async {
        let world = calm_world::new(6, 10).await;
        let (_, stack) = world.process("refresh");
        let (wanted, memory) = (desired(two_classes()), AdvertMemory::default());
        let ledger = world.outside.ledger();
        let left = async || {
            let parameters = ledger.documents(parameters::COLLECTION).await.expect("calm");
            let has_token = |document: &&Document| {
                decode::<KeptTokens>(&document.body).is_ok_and(|kept| kept != KeptTokens::spent())
            };
            parameters.items.iter().filter(has_token).count()
        };
        refresh(&stack, &wanted, &memory).await;
        assert_eq!(left().await, 0);
        // An older version keeps them there.
        let until = stack.now().after(Duration::from_secs(60));
        let kept =
            stored_parameters::load::<SimPorts, KeptTokens>(&stack, until).await.expect("calm");
        let older = Document {
            collection: parameters::COLLECTION.to_owned(),
            name: KeptTokens::NAME.to_owned(),
            revision: Revision(0),
            body: encode(kept.expect("they are kept")),
            forget_at: None,
        };
        let written = ledger.write_document(None, &older).await.expect("calm");
        assert!(matches!(written, Written::Won(_)));
        assert_eq!(left().await, 1);
        refresh(&stack, &wanted, &memory).await;
        assert_eq!(left().await, 0, "a refresh must move old tokens although it has young ones");
    });
}

/// D51: a refresh removes a runner whose machine is gone, after two sweeps a grace apart.
#[test]
fn a_runner_without_a_machine_is_removed() {
    on_virtual_time(async {
        let world = calm_world::new(7, 10).await;
        let machine = calm_world::add_idle(&world, Usage::OnDemand, 1).await.remove(0).id;
        let forge = world.outside.forge();
        let name = bullpen_core::ids::RunnerName::new("sim-i-gone-3");
        forge.register(&name, "warm-x", &machine).expect("it is up");
        forge.disconnect(&name);
        let (_, stack) = world.process("refresh");
        let (wanted, memory) = (desired(two_classes()), AdvertMemory::default());
        let is_there = async || {
            let listed = world.outside.forge().runners().await.expect("calm");
            listed.iter().any(|runner| runner.name == name)
        };
        refresh(&stack, &wanted, &memory).await;
        pass(Duration::from_secs(300)).await;
        refresh(&stack, &wanted, &memory).await;
        assert!(is_there().await, "too early");
        pass(Duration::from_secs(400)).await;
        refresh(&stack, &wanted, &memory).await;
        assert!(!is_there().await);
    });
}

/// An advert that was lost is sent again after a wait, which doubles, however many classes there are.
#[test]
fn the_adverts_of_one_class_leave_anothers_waits_alone() {
    on_virtual_time(async {
        let world = calm_world::new(8, 10).await;
        calm_world::add_idle(&world, Usage::OnDemand, 1).await;
        let (_, stack) = world.process("refresh");
        let (wanted, memory) = (desired(two_classes()), AdvertMemory::default());
        let mut sent = Vec::new();
        for minute in 0..5 {
            for class in &wanted.classes {
                // Every message is lost; the refresh makes the queue again.
                let _ = world.outside.queues().remove(&stack.queue_of(&class.name)).await;
            }
            let reports = refresh(&stack, &wanted, &memory).await;
            if *step(&reports, "advertising") != Ok(vec![]) {
                sent.push(minute);
            }
            pass(Duration::from_secs(60)).await;
        }
        assert_eq!(sent, [0, 2], "at once, after two minutes, and after four more");
    });
}

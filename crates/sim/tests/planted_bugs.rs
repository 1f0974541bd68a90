//! Every planted bug is found, by the checker that should find it, within a bounded number of seeds.
//!
//! Built with `--cfg sabotage` the bugs are there to be found; built without, the same seeds must be
//! clean, which the gate's seeds show.

#[cfg(sabotage)]
#[expect(clippy::print_stdout, reason = "how soon each bug is found is worth seeing")]
mod with_bugs {
    use bullpen_core::invariants::Invariant;
    use bullpen_core::sabotage;
    use bullpen_sim::kernel;

    /// A checker that needs more seeds than this finds too little.
    const SEEDS_MAX: u64 = 300;

    fn is_found(bug: &'static str, by: &[Invariant]) {
        let found =
            (0..SEEDS_MAX).find_map(|seed| sabotage::with(bug, || kernel::run(seed, false)).err());
        let Some(failure) = found else { panic!("{bug}: not found in {SEEDS_MAX} seeds") };
        println!("{bug}: found by seed {}, {}", failure.seed, failure.violation);
        let invariant = failure.violation.invariant;
        assert!(by.contains(&invariant), "{bug}: found, but as {failure}");
    }

    #[test]
    fn a_reaper_that_forgets_created_machines_is_found() {
        is_found("reaper-forgets-created", &[Invariant::Conservation]);
    }

    #[test]
    fn an_exhaustion_that_nobody_confirmed_is_found() {
        is_found("skip-directory-confirmation", &[Invariant::NoMissedWarm]);
    }

    #[test]
    fn an_assignment_without_its_condition_is_found() {
        is_found("unconditional-assignment", &[Invariant::OneOwner, Invariant::Protected]);
    }
}

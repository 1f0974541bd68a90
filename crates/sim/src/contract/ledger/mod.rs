//! The contract of the `Ledger` port.
//!
//! Not here: which transitions are allowed. The suite makes the engine's writes, through
//! `Record::on`, and checks the ledger's part.

mod claims;
mod directories;
mod documents;
mod fixtures;
mod leases;
mod reservations;
mod rows;
mod sweeps;
mod unreadable;
mod writes;

pub use claims::*;
pub use directories::*;
pub use documents::*;
pub use leases::*;
pub use reservations::*;
pub use rows::*;
pub use sweeps::*;
pub use unreadable::*;
pub use writes::*;

/// One test per case of the ledger's contract.
#[macro_export]
macro_rules! ledger_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            ledger,
            [
                exactly_one_of_many_claimers_wins,
                a_claim_whose_answer_was_lost_is_settled_by_its_nonce,
                a_claim_stays_clear_of_the_deadline_by_its_margin,
                a_claim_of_a_stale_generation_loses,
                a_claim_of_an_instance_that_is_not_idle_loses,
                a_claim_writes_all_that_a_claim_says,
                a_fenced_worker_can_write_nothing,
                a_stalled_claimer_cannot_write_over_a_newer_owner,
                every_state_is_read_back_as_it_was_written,
                of_many_writers_who_read_the_same_one_wins,
                a_batch_is_won_and_lost_one_by_one,
                a_write_whose_answer_was_lost_is_settled_by_reading,
                every_write_raises_the_revision,
                a_write_to_an_unknown_record_loses,
                directories_never_miss_while_everything_moves,
                a_releasing_instance_is_listed_under_its_owner,
                the_class_directory_lists_the_oldest_first,
                an_advert_equals_its_record,
                a_pool_finds_everything_it_launched,
                directories_list_more_than_a_page,
                reservations_never_exceed_a_ceiling,
                a_reservation_is_made_once,
                a_reservation_that_does_not_fit_leaves_nothing,
                a_reservation_whose_answer_was_lost_is_known,
                a_machine_is_recorded_once,
                no_more_machines_are_recorded_than_were_reserved,
                nothing_is_recorded_after_giving_back,
                giving_back_frees_machines_that_never_came,
                recording_and_giving_back_do_not_both_happen,
                a_burial_frees_its_place,
                a_burial_that_lost_frees_nothing,
                scopes_report_the_machines_under_them,
                ceilings_compare_the_count_that_a_scope_reports,
                sweeps_turn_every_page_once,
                due_is_in_order_and_ends_in_time,
                a_releasing_instance_is_due_at_once,
                buried_records_are_not_swept,
                only_open_intents_are_swept,
                a_lease_has_one_holder,
                a_fencing_token_rises_with_every_holder,
                a_stale_renewal_loses,
                a_lease_whose_answer_was_lost_is_settled_by_reading,
                a_row_is_written_only_over_the_revision_read,
                of_many_first_rows_one_is_stored,
                a_row_is_read_back_as_it_was_written,
                rows_wait_by_lane_and_repository,
                waiting_rows_turn_every_page_in_order,
                rows_are_listed_by_their_next_look,
                a_document_is_written_only_over_the_revision_read,
                of_many_first_documents_one_is_stored,
                a_collection_lists_its_own_documents,
                an_unreadable_record_hides_no_other,
                an_unreadable_record_hides_no_other_of_its_owner,
                an_unreadable_intent_hides_no_other,
                an_unreadable_row_hides_no_other,
                an_unreadable_document_hides_no_other,
            ]
        );
    };
}

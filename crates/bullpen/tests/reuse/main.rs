//! Reuse-first provisioning, end to end: the built command, its supervisors, agents and runners as
//! processes, and a stand-in GitHub. Every wait is for a condition.
//!
//! Each defect of the design before this one has a number, and a test that shows it gone:
//!
//! | defect | test |
//! |---|---|
//! | D1, D16, D23, D25 | `killed::a_killed_provision_leaves_no_orphan_and_loses_no_machine` |
//! | D2, D19, D43 | `watchdog::a_short_outage_of_the_stores_ends_nothing` |
//! | D3, D7, D8, D11, D12, D15 | `pool::every_idle_machine_is_found_in_spite_of_damaged_messages` |
//! | D4 | `warm::a_request_for_spot_costs_an_on_demand_request_none_of_its_warm_machines` |
//! | D5 | `many_requests::twelve_requests_share_twenty_four_warm_machines_and_create_the_rest` |
//! | D6 | `warm::three_are_created_then_reused_then_made_up_to_five` |
//! | D9 | `fitness::a_class_that_grew_does_not_hand_out_its_smaller_machines` |
//! | D10 | `fitness::a_removed_class_is_drained_and_its_queue_removed` |
//! | D13 | sim: `fifty_runners_from_a_thousand_idle_machines_of_which_half_mismatch` |
//! | D14 | `cancelled::a_provision_that_is_cancelled_while_it_claims_gives_everything_back` |
//! | D17 | core: `a_runner_that_is_not_found_says_nothing_while_it_may_still_register` |
//! | D18 | `outage::*` |
//! | D20 | core: `a_renewal_never_shortens_a_lease`; sim: every world renews |
//! | D21 | `killed::machines_that_were_never_recorded_are_adopted_or_ended`, `watchdog::a_machine_without_a_record_ends_by_its_watchdog` |
//! | D22 | `watchdog::a_script_that_hangs_is_ended_without_a_refresh`; sim: `a_reaper_that_forgets_created_machines_is_found` |
//! | D24, D38 | `killed::a_killed_release_loses_no_machine` |
//! | D26 | `trust::a_machine_that_died_while_idle_is_replaced` |
//! | D27 | `killed::a_killed_provision_is_resumed_and_never_doubles` |
//! | D28 | `cancelled::*`, `pool::what_a_run_that_is_over_still_holds_is_released_by_refresh` |
//! | D29 | `watchdog::a_machine_whose_script_hangs_ends_and_its_request_says_why` |
//! | D30 | `many_requests::under_a_ceiling_of_twenty_five_of_ten_requests_for_four_succeed`, `warm::the_step_that_asked_gets_the_values_as_outputs` |
//! | D31, D32 | `pool::a_release_takes_its_own_requests_machines_and_no_others` |
//! | D33 | `warm::a_release_waits_for_the_job_that_runs` |
//! | D34 | `order::wrong_inputs_are_refused_in_one_line` |
//! | D35 | `pool::a_job_extends_the_time_of_its_machine` |
//! | D36, D37 | embedded: `every_page_is_reached_when_all_share_one_deadline` |
//! | D39 | `killed::a_killed_supervisor_takes_its_whole_machine_along` |
//! | D40 | embedded: `a_mailbox_is_forgotten_a_week_after_its_last_write` |
//! | D41 | `order::a_refresh_that_github_refuses_reaps_all_the_same` |
//! | D42 | `tokens::with_kept_tokens_provision_and_release_need_no_credential` |
//! | D44 | `killed::a_killed_agent_comes_back_and_goes_on` |
//! | D45 | embedded: `a_waiter_is_woken_by_another_handles_write` |
//! | D46 | `fitness::the_third_use_is_a_new_machine` |
//! | D47 | `fitness::a_changed_script_leaves_old_machines_unused` |
//! | D48 | none: machines of this host have no template |
//! | D54 | `trust::*` |
//! | D59 | `watchdog::a_machine_whose_script_fails_ends_at_once_and_its_request_says_why` |
//! Not here: the same engine under faults that tests cannot cause in processes (`bullpen-sim`).

#[cfg(feature = "aws")]
mod aws;
mod call;
mod cancelled;
#[cfg(feature = "aws")]
#[path = "../tools/ministack.rs"]
mod emulator;
mod fitness;
#[path = "../tools/fleet.rs"]
mod fleet;
mod killed;
mod many_requests;
mod order;
mod outage;
mod pool;
mod settled;
#[path = "../tools/shared.rs"]
mod shared;
mod strangers;
mod tokens;
mod trust;
#[path = "../tools/waiting.rs"]
mod waiting;
mod warm;
mod watchdog;
mod world;

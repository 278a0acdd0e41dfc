//! The conformance suite of [`RunStore`]. [`run_store_suite!`](crate::run_store_suite) makes a test of each requirement.

mod backlog;
mod commit;
mod create;
mod due;
mod lease;
mod race;
mod read;
mod remove;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::{Run, SequencedEvent};
use podium_ports::store::{Appended, Commit, RunStore};

/// An empty store under test.
pub struct StoreFixture {
    /// A handle on it.
    pub first: Arc<dyn RunStore>,
    /// A second handle, as another process would have it.
    pub second: Arc<dyn RunStore>,
    /// How long after its earliest time a ready task that its writer publishes is left to the queue.
    pub dispatch_grace: Duration,
    /// Objects that must live as long as the test, such as a temporary directory.
    pub keep: Box<dyn Any + Send>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`StoreFixture`]; the attribute is put on every test.
/// This is the only list of the requirements.
///
/// ```ignore
/// podium_testkit::run_store_suite! { #[tokio::test] fixture() }
/// ```
#[macro_export]
macro_rules! run_store_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::run_store_suite! { @each tests [#[$attribute] $fixture] }
    };
    (@each $what:ident $arguments:tt) => {
        $crate::run_store_suite! { @$what $arguments
            created_runs_are_loaded_unchanged
            unknown_runs_load_as_none
            newer_events_are_added_to_a_known_run
            a_known_run_with_another_history_is_loaded_as_stored
            a_used_request_id_gives_the_existing_run_and_leaves_nothing
            tenants_do_not_share_request_ids
            repeating_a_create_changes_nothing
            creates_of_one_batch_share_a_request_id
            one_handle_loads_what_the_other_commits
            a_runs_first_events_create_it_unless_it_exists
            a_stale_writer_is_refused_and_leaves_no_trace
            repeating_a_commit_is_a_conflict_and_changes_nothing
            a_commit_to_an_unknown_run_is_a_conflict
            one_conflict_in_a_batch_does_not_touch_the_others
            large_and_unusual_texts_are_stored_unchanged
            events_are_gap_free_and_come_in_pages
            the_list_is_newest_first_and_comes_in_pages
            the_list_shows_the_runs_that_its_filter_names
            the_list_has_state_sums_and_end
            the_list_says_what_an_answer_lacks
            a_claim_holds_as_long_as_the_lease_of_its_process
            claims_of_a_process_without_a_lease_are_due_at_once
            a_claim_without_a_process_has_its_own_lease
            a_claim_is_held_until_its_task_is_released
            a_disowned_claim_is_due_although_its_process_lives
            a_claim_keeps_its_process_through_other_commits
            an_early_step_keeps_its_claim_if_the_plan_contains_it
            a_ready_task_is_due_after_its_grace
            a_retry_is_due_after_its_time
            a_due_task_is_not_due_again_before_its_time
            a_claim_is_due_when_its_lease_expired
            a_run_is_due_when_its_deadline_passed
            due_keeps_its_limit
            runs_that_are_left_alone_are_not_due_and_take_no_place_of_others
            ended_runs_are_never_due
            a_suspended_run_has_no_task_and_is_due_when_its_wait_ends
            a_continued_run_is_due_at_its_later_deadline
            a_task_of_the_backlog_is_taken_once
            a_taken_task_is_due_when_it_was_not_claimed_in_time
            returned_tasks_can_be_taken_again
            a_retry_in_the_backlog_is_taken_after_its_time
            only_tasks_of_the_backlog_are_taken
            lanes_have_backlogs_of_their_own
            the_oldest_task_of_a_tenant_comes_first
            a_quiet_tenant_goes_before_a_thousand_tasks_of_another
            tenants_get_equal_shares_of_outstanding_tasks
            dispatchers_never_take_the_same_task
            concurrent_creates_with_one_request_id_give_one_run
            one_of_two_racing_claims_wins_each_time
            two_sweepers_share_the_ready_tasks
            an_active_run_is_never_removed
            a_removed_run_leaves_nothing_and_no_other_is_touched
            a_run_is_removed_only_once_it_ended_long_enough_ago
            removing_keeps_its_limit_and_takes_the_oldest
            a_removed_runs_request_id_is_free
            two_removers_share_the_work
            a_write_during_a_removal_leaves_nothing
            the_store_answers
        }
    };
    (@tests [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::run_store::requirements::$name($fixture.await).await;
        })+
    };
    (@requirements [] $($name:ident)+) => {
        $(#[expect(missing_docs, reason = "its name is the sentence")]
        pub async fn $name(store: super::StoreFixture) {
            super::written::$name(&store).await;
        })+
    };
}

/// The requirements, one function each.
///
/// The functions below are private, so a requirement that is missing in the list above is an unused function.
pub mod requirements {
    run_store_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{backlog::*, commit::*, create::*, due::*, lease::*, race::*, read::*, remove::*};
}

impl StoreFixture {
    async fn create(&self, commit: Commit) -> Appended {
        let mut created = self.first.append(&[commit]).await.expect("the store appends");
        assert_eq!(created.len(), 1);
        created.remove(0).expect("first events are not refused")
    }

    async fn must_create(&self, commit: Commit) {
        assert_eq!(self.create(commit).await, Appended::New);
    }

    async fn must_commit(&self, commit: Commit) {
        assert_eq!(self.first.append(&[commit]).await.expect("the store appends"), [Ok(Appended::New)]);
    }

    async fn load(&self, id: RunId) -> Option<Run> {
        let mut loaded = self.first.load(&[id]).await.expect("the store loads");
        assert_eq!(loaded.len(), 1);
        loaded.remove(0)
    }

    async fn events(&self, id: RunId) -> Vec<SequencedEvent> {
        self.first.events(id, 0, u32::MAX).await.expect("the store reads events")
    }
}

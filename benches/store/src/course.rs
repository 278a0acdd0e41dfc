//! The store operations of a run of three steps, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::run::{Command, PlanResult, TaskRef};
use podium_domain::usage::Spent;
use podium_ports::store::{Appended, Commit, RunLog};
use podium_testkit::{Driven, SeededIds, a_planned, a_result, plan_of};

const PLAN: TaskRef = TaskRef::Plan { round: 0 };
const STEPS: u16 = 3;

/// The commits of a run, from its acceptance to its answer.
pub(crate) struct Course {
    create: Commit,
    commits: Vec<Commit>,
}

impl Course {
    /// Each claim and each completion is a separate commit, as for runs that come one at a time.
    pub(crate) fn new(ids: &SeededIds) -> Self {
        let mut run = Driven::accepted(ids);
        let create = run.commit();
        let mut commits = Vec::new();
        let claim = run.claim(PLAN, ids);
        commits.push(run.commit());
        let plan = plan_of(&[
            ("quick", "Draft it.", &[]),
            ("careful", "Check the draft.", &[0]),
            ("checker", "Decide.", &[0, 1]),
        ]);
        let (result, spent, reserve) = (PlanResult::Plan(a_planned(plan)), Spent::NONE, Cost::ZERO);
        run.drive(&Command::CompletePlan { round: 0, claim, result, spent, reserve });
        commits.push(run.commit());
        for step in (0..STEPS).map(StepIndex::new) {
            let claim = run.claim(TaskRef::Step { round: 0, step }, ids);
            commits.push(run.commit());
            let result = a_result("The sky is blue because air scatters short waves more than long ones.");
            run.drive(&Command::CompleteStep { round: 0, step, claim, result });
            commits.push(run.commit());
        }
        Self { create, commits }
    }

    /// The run as it ends, in one commit.
    pub(crate) fn whole(self) -> Result<Commit> {
        let Self { create, mut commits } = self;
        let mut last = commits.pop().context("a run has commits")?;
        let mut events = create.events;
        events.extend(commits.into_iter().flat_map(|commit| commit.events));
        events.append(&mut last.events);
        last.events = events;
        Ok(last)
    }

    /// Carries it out: each commit follows a load of the run, as a decision needs it.
    pub(crate) async fn take(&self, store: &impl RunLog) -> Result<Duration> {
        let id = self.create.after.id();
        let begun = Instant::now();
        let created = store.append(std::slice::from_ref(&self.create)).await?;
        ensure!(created == [Ok(Appended::New)], "the run was there");
        for commit in &self.commits {
            let loaded = store.load(&[id]).await?;
            ensure!(loaded.iter().flatten().count() == 1, "the run is not there");
            let committed = store.append(std::slice::from_ref(commit)).await?;
            ensure!(committed == [Ok(Appended::New)], "somebody else writes the run");
        }
        Ok(begun.elapsed())
    }
}

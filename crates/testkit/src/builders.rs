//! A pool, a spec, a plan, and runs in any state that a test needs, each in one line.

use std::sync::LazyLock;

use podium_domain::budget::Charge;
use podium_domain::content::{Part, ToolCall, ToolResult};
use podium_domain::conversation::{Conversation, Message, Role};
use podium_domain::ids::{ClaimId, ProcessId, RunId, StepIndex, TenantId};
use podium_domain::money::Cost;
use podium_domain::plan::{LastStep, Plan, PlanDraft, PlanHead, RawAccess, RawId};
use podium_domain::policy::{Effort, Policy, STEPS_MAX, Tier};
use podium_domain::pool::{Pool, Worker};
use podium_domain::request::RunRequest;
use podium_domain::run::{
    AttemptError, Claim, Command, Decision, FinishReason, PlanResult, Planned, Run, RunEvent, RunSpec,
    SequencedEvent, StepResult, TaskRef,
};
use podium_domain::time::Timestamp;
use podium_domain::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};
use podium_domain::usage::{Spent, Usage};
use podium_ports::clock::Ids;
use podium_ports::conductor::Asker;
use podium_ports::queue::Lane;
use podium_ports::store::{Commit, Place, PublishBy};

use uuid::Uuid;

use crate::clock::TestClock;
use crate::ids::SeededIds;

const POOL_FILE: &str = r#"
schema = 1
name = "test"
version = "1"

[[vendors]]
id = "north"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"

[[vendors]]
id = "south"
api = "openai-chat"
base_url = "http://127.0.0.1:2/v1"

[[workers]]
id = "quick"
vendor = "north"
model = "quick-1"
description = "answers fast"
context_tokens = 8192
usd_per_million_tokens = { input = 1.0, output = 2.0 }

[[workers]]
id = "careful"
vendor = "south"
model = "careful-1"
description = "answers slowly and well"
context_tokens = 32768
usd_per_million_tokens = { input = 10.0, output = 20.0 }

[[workers]]
id = "checker"
vendor = "south"
model = "checker-1"
description = "finds mistakes"
context_tokens = 32768
usd_per_million_tokens = { input = 5.0, output = 10.0 }
"#;

pub(crate) static POOL: LazyLock<Pool> =
    LazyLock::new(|| Pool::parse(POOL_FILE).expect("the test pool is a pool"));

/// The lease of a driven run's claims.
const LEASE: std::time::Duration = std::time::Duration::from_secs(30);

/// A pool of `quick` at vendor `north`, and `careful` and `checker` at `south`.
pub fn a_pool() -> Pool {
    POOL.clone()
}

/// As [`a_pool`], and each worker can call tools in addition to the default features.
pub fn a_pool_with_tools() -> Pool {
    let features = r#"features = ["temperature", "top_p", "stop", "seed", "tools"]"#;
    let file = POOL_FILE.replace("context_tokens", &format!("{features}\ncontext_tokens"));
    Pool::parse(&file).expect("the test pool is a pool")
}

/// The worker `w` of a separate pool, at a vendor `v` with that wire format; `lines` of TOML are added to it.
pub fn a_worker(api: &str, lines: &str) -> Worker {
    let pool = Pool::parse(&format!(
        r#"
        schema = 1
        name = "single"
        version = "1"
        vendors = [{{ id = "v", api = "{api}", base_url = "http://127.0.0.1:1/v1" }}]
        [[workers]]
        id = "w"
        vendor = "v"
        model = "the-model"
        description = "a worker"
        context_tokens = 65536
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        {lines}
        "#
    ));
    pool.expect("a test's worker is a worker").workers()[0].clone()
}

/// The tenant of [`a_spec`].
pub fn a_tenant() -> TenantId {
    TenantId::new("acme").expect("`acme` is a name")
}

/// The requester of the first round of a run of [`a_tenant`].
pub fn an_asker() -> Asker {
    Asker { tenant: a_tenant(), run: SeededIds::new(0).run_id(TestClock::START), round: 0 }
}

/// A question of a tenant without request id, accepted at [`TestClock::START`], of tier ultra, with ten minutes until its
/// deadline. The fields are public: a test changes those that it is about.
pub fn a_spec() -> RunSpec {
    let policy = Policy::new(Tier::Ultra, Effort::Medium);
    let accepted_at = TestClock::START;
    RunSpec {
        tenant: a_tenant(),
        key: None,
        budgets: Vec::new(),
        hold: Cost::ZERO,
        request_id: None,
        request_digest: None,
        model: "podium-ultra".to_owned(),
        deadline_at: accepted_at.after(policy.deadline()),
        request: RunRequest::new(
            Conversation::question_only("Why is the sky blue?").expect("it is a question"),
            policy,
        ),
        pool: a_pool().version(),
        conductor: crate::ScriptedConductor::ID.to_owned(),
        accepted_at,
    }
}

/// [`a_spec`] with a tool `look`, which every step may call.
pub fn a_spec_with_tools() -> RunSpec {
    let mut spec = a_spec();
    let (name, description) = ("look".to_owned(), String::new());
    let tools = vec![Tool { name, description, schema: Tool::no_parameters(), strict: None }];
    spec.request.tools = Some(ToolUse { tools, choice: ToolChoice::Auto, at_once: CallsAtOnce::Several });
    spec
}

/// A plan over [`a_pool`]: each step is a worker, a subtask and the positions of the earlier steps that it sees.
pub fn plan_of(steps: &[(&str, &str, &[i64])]) -> Plan {
    draft_of(steps).check(&POOL, &longest()).expect("a test's plan is a plan")
}

/// The same steps as the beginning of a plan that is still being written.
pub fn head_of(steps: &[(&str, &str, &[i64])]) -> PlanHead {
    let head = draft_of(steps).head(&POOL, &longest(), LastStep::Included);
    head.expect("a test's head is a head")
}

fn longest() -> Policy {
    Policy { steps_max: STEPS_MAX, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

fn draft_of(steps: &[(&str, &str, &[i64])]) -> PlanDraft {
    PlanDraft {
        model_id: steps.iter().map(|(worker, ..)| RawId::Name((*worker).to_owned())).collect(),
        subtasks: steps.iter().map(|(_, subtask, _)| (*subtask).to_owned()).collect(),
        access_list: steps.iter().map(|(.., sees)| RawAccess::Indices(sees.to_vec())).collect(),
    }
}

/// Two concurrent steps, by `quick` and `careful`, and a last one by `checker` that sees both.
pub fn a_plan() -> Plan {
    plan_of(&[("quick", "Draft it.", &[]), ("careful", "Solve it.", &[]), ("checker", "Decide.", &[0, 1])])
}

/// A plan as a conductor returns it.
pub fn a_planned(plan: Plan) -> Planned {
    Planned { plan, reasoning: "Two drafts, then a decision.".to_owned(), fallback: None }
}

/// A step's result with a cost.
pub fn a_result(output: impl Into<String>) -> StepResult {
    let usage = Usage { prompt_tokens: 100, completion_tokens: 10, ..Usage::NONE };
    StepResult {
        output: output.into(),
        calls: Vec::new(),
        reasoning: Vec::new(),
        reasoning_text: String::new(),
        finish: FinishReason::Stop,
        stop_sequence: None,
        spent: Spent { usage, cost: Cost::from_nano_usd(120_000) },
        first_token_ms: Some(5),
        saved: None,
    }
}

/// The run `id` of [`a_spec`], which ended with this answer after one step.
pub fn an_ended_run(id: RunId, answer: &str) -> Run {
    let ids = SeededIds::new(1);
    let mut driven = Driven::accept(id, a_spec());
    driven.plan(plan_of(&[("quick", "Answer it.", &[])]), &ids);
    driven.step(0, answer, &ids);
    driven.run
}

/// A run that a test drives through its states, with its events for a store.
#[derive(Clone, Debug)]
pub struct Driven {
    /// The run in its current state.
    pub run: Run,
    /// Events that [`Self::commit`] has not returned yet.
    pub fresh: Vec<SequencedEvent>,
    /// The time of the next command.
    pub now: Timestamp,
    /// Which process publishes the tasks that its commits make ready.
    pub publish_by: PublishBy,
    /// The most that its claims and plans may cost: zero, unless a test changes it.
    pub reserve: Cost,
    /// The process that claims; `None` for one of an earlier version, whose claims have their own leases. That is the default.
    pub process: Option<ProcessId>,
    /// The latest claim.
    pub last_claim: ClaimId,
    /// The charge of its budgets at the last commit.
    pub booked: Charge,
}

impl Driven {
    /// A run that was just accepted, at the time in its spec.
    pub fn accept(id: RunId, spec: RunSpec) -> Self {
        let now = spec.accepted_at;
        let first = SequencedEvent { sequence: 1, at: now, event: Run::accept(spec) };
        let run = Run::replay(id, std::slice::from_ref(&first)).expect("`accepted` begins a run");
        Self { fresh: vec![first], booked: Charge::default(), ..Self::resume(run, now) }
    }

    /// A run of [`a_spec`] with the next id.
    pub fn accepted(ids: &SeededIds) -> Self {
        let spec = a_spec();
        Self::accept(ids.run_id(spec.accepted_at), spec)
    }

    /// A run as loaded from a store, without new events.
    pub fn resume(run: Run, now: Timestamp) -> Self {
        let (publish_by, booked, last_claim) = (PublishBy::Writer, run.booked(), ClaimId::new(Uuid::nil()));
        let (fresh, reserve, process) = (Vec::new(), Cost::ZERO, None);
        Self { run, fresh, now, publish_by, reserve, process, last_claim, booked }
    }

    /// Its id.
    pub fn id(&self) -> RunId {
        self.run.id()
    }

    /// Carries out a command, which the run must not refuse.
    pub fn drive(&mut self, command: &Command) -> Decision {
        let decision = self.run.decide(command, self.now).unwrap_or_else(|refusal| {
            unreachable!("the test drives {command:?} and the run refuses: {refusal}")
        });
        for mut event in decision.events.clone() {
            if let RunEvent::Claimed { process, .. } = &mut event {
                *process = self.process;
            }
            let event = SequencedEvent { sequence: self.run.version() + 1, at: self.now, event };
            self.run.apply(&event).expect("what was decided can be applied");
            self.fresh.push(event);
        }
        decision
    }

    /// Records that the worker of a step called a tool, under the latest claim.
    pub fn call(&mut self, index: u16, tool: &str) {
        let (calls, finish) = (vec![ToolCall::new("own", tool, "{}")], FinishReason::ToolCalls);
        let result = StepResult { calls, finish, ..a_result("") };
        let (round, claim) = (self.run.current_round(), self.last_claim);
        self.drive(&Command::CompleteStep { round, step: StepIndex::new(index), claim, result });
    }

    /// Sends the same output as the result of each pending call.
    pub fn give_results(&mut self, output: &str) {
        let result = |call: ToolCall| Part::ToolResult(ToolResult::new(call.id, call.name, output));
        let results = self.run.tool_calls().into_iter().map(result);
        self.drive(&Command::GiveResults { results: vec![Message::new(Role::User, "").with(results)] });
    }

    /// Claims a task. The claim's own lease lasts for thirty seconds.
    pub fn claim(&mut self, task: TaskRef, ids: &SeededIds) -> ClaimId {
        let id = ids.claim_id();
        let lease_until = self.now.after(LEASE);
        let process = self.process.unwrap_or(ProcessId::new(Uuid::nil()));
        let claim = Claim { id, executor: "test".to_owned(), process, lease_until, reserve: self.reserve };
        self.drive(&Command::Claim { task, claim });
        self.last_claim = id;
        id
    }

    /// Claims and plans the current round.
    pub fn plan(&mut self, plan: Plan, ids: &SeededIds) -> ClaimId {
        let round = self.run.current_round();
        let claim = self.claim(TaskRef::Plan { round }, ids);
        self.planned(plan, claim);
        claim
    }

    /// Completes the planning of the current round under a claim.
    pub fn planned(&mut self, plan: Plan, claim: ClaimId) {
        let (round, result) = (self.run.current_round(), PlanResult::Plan(a_planned(plan)));
        self.drive(&Command::CompletePlan {
            round,
            claim,
            result,
            spent: Spent::NONE,
            reserve: self.reserve,
        });
    }

    /// Claims and completes a step of the current round.
    pub fn step(&mut self, step: u16, output: &str, ids: &SeededIds) -> ClaimId {
        let (round, step) = (self.run.current_round(), StepIndex::new(step));
        let claim = self.claim(TaskRef::Step { round, step }, ids);
        self.step_under(step.get(), output, claim);
        claim
    }

    /// Completes a step of the current round under a claim.
    pub fn step_under(&mut self, step: u16, output: &str, claim: ClaimId) {
        let (round, step) = (self.run.current_round(), StepIndex::new(step));
        self.drive(&Command::CompleteStep { round, step, claim, result: a_result(output) });
    }

    /// Fails an attempt, with a retry at `retry_at` if it is given.
    pub fn fail(&mut self, task: TaskRef, claim: ClaimId, retry_at: Option<Timestamp>) -> Decision {
        let (message, fall_back_to, spent) = ("scripted".to_owned(), None, Spent::NONE);
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to, spent };
        self.drive(&Command::FailAttempt { task, claim, error })
    }

    /// The events since the last call, as a commit.
    pub fn commit(&mut self) -> Commit {
        let (after, events, publish_by) =
            (self.run.clone(), std::mem::take(&mut self.fresh), self.publish_by);
        let before = std::mem::replace(&mut self.booked, after.booked());
        Commit::new(after, events, |run, task| Place { lane: Lane::of(run, task, &POOL), publish_by })
            .charged(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driven_run_reaches_its_answer() {
        let ids = SeededIds::new(1);
        let mut driven = Driven::accepted(&ids);
        driven.plan(a_plan(), &ids);
        driven.step(0, "left", &ids);
        driven.step(1, "right", &ids);
        driven.step(2, "the answer", &ids);
        assert_eq!(driven.run.answer(), Some("the answer"));
        let commit = driven.commit();
        assert_eq!(Run::replay(driven.id(), &commit.events), Ok((*commit.after).clone()));
        assert_eq!(driven.fresh, []);
    }

    #[test]
    fn budgets_are_booked_at_acceptance_plan_and_end_only() {
        let (ids, payer) = (SeededIds::new(1), podium_domain::budget::Payer::Tenant(a_tenant()));
        let budgets = vec![podium_domain::budget::BudgetRef { payer, from: TestClock::START, period: None }];
        let spec = RunSpec { budgets, hold: Cost::from_nano_usd(7), ..a_spec() };
        let mut driven = Driven::accept(ids.run_id(spec.accepted_at), spec);
        let mut told = Vec::new();
        let mut tell = |driven: &mut Driven| {
            let commit = driven.commit();
            told.push(commit.booking().map(|b| (b.spent, b.reserved, b.needs_capacity)));
        };
        tell(&mut driven);
        let claim = driven.claim(TaskRef::Plan { round: 0 }, &ids);
        tell(&mut driven);
        driven.reserve = Cost::from_nano_usd(1_000_000);
        driven.planned(a_plan(), claim);
        tell(&mut driven);
        driven.reserve = Cost::from_nano_usd(200_000);
        for step in 0..3 {
            driven.step(step, "done", &ids);
            tell(&mut driven);
        }
        let expected = [
            Some((0, 7, true)),
            None,
            Some((0, 999_993, true)),
            None,
            None,
            Some((360_000, -1_000_000, false)),
        ];
        assert_eq!(told, expected);
    }
}

//! Clients submit, watch, read answers, cancel, lose connections and reconnect. Everything that they see is checked.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use podium_domain::budget::{Budget, Payer, Period};
use podium_domain::content::{Part, ToolCall, ToolResult};
use podium_domain::conversation::{Conversation, Message, Role};
use podium_domain::ids::{ClaimId, RequestId, RunId, StepIndex, TenantId};
use podium_domain::money::Cost;
use podium_domain::policy::{BrokenAnswer, Effort, FailedStep, Policy, PoolRule, StepTools, Tier};
use podium_domain::request::RunRequest;
use podium_domain::run::{Run, RunEvent, RunState, TaskRef};
use podium_domain::sampling::Sampling;
use podium_domain::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};
use podium_engine::{AnswerError, AnswerPart, CommandError, Engine, Submit, SubmitError, Update, WatchError};

use crate::checker::Invariant;
use crate::dice::Dice;
use crate::simulation::Order;
use crate::trace::note;
use crate::vendor::TOOL;
use crate::world::{Core, Ended, Link, World};

/// The tenants of each world.
const TENANTS: [&str; 4] = ["acme", "birch", "cedar", "dogwood"];
/// Largest cap of a budget: about the cost of a tenant's runs in a world.
const BUDGET_NANO_USD_MAX: u64 = 20_000_000_000;

/// An action of a client, by the number of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientAction {
    Submit(usize),
    Watch(usize),
    Answer(usize),
    Cancel(usize),
    /// Sends the results of tool calls until the run has ended. Two of each client's processes may do that.
    Results {
        number: usize,
        process: usize,
    },
}

/// All clients.
#[derive(Default)]
pub(crate) struct Clients {
    asks: Vec<Ask>,
    /// Actions that are not done.
    pending: BTreeSet<ClientAction>,
}

/// A question, and the updates that its client has seen.
struct Ask {
    submit: Submit,
    /// Whether the client submits and waits for the end in one request.
    waits: bool,
    actions: Vec<ClientAction>,
    run: Option<RunId>,
    /// The sequence number of the last event that the client saw.
    last: u64,
    shown: BTreeMap<(u16, StepIndex), Shown>,
    is_last_shown: bool,
    answer: String,
}

struct Shown {
    claim: ClaimId,
    text: String,
    is_over: bool,
}

impl Clients {
    /// The clients of a world and their submits. Some submit twice, to two nodes at once.
    pub(crate) fn draw(dice: &mut Dice, asks: usize, until_ms: u64) -> (Self, Vec<(u64, Order)>) {
        let mut clients = Self::default();
        let (mut orders, mut times) = (Vec::new(), Vec::new());
        let budgets = some_budgets(dice);
        let repeats = if dice.chance(500) { 500 } else { 50 };
        for number in 0..asks {
            let mut at = dice.below(until_ms);
            let mut ask = Ask::draw(dice, number);
            ask.submit.budgets.extend(budgets.get(ask.submit.tenant.as_str()).cloned());
            // Some repeat an earlier question of the same tenant in another request, often soon after it.
            if number > 0 && dice.chance(repeats) {
                let other = dice.index(number);
                ask.repeat(&clients.asks[other], number);
                at = if dice.chance(700) { times[other] + dice.mostly_small(0, 4_000) } else { at };
            }
            times.push(at);
            orders.push((at, Order::Client(ClientAction::Submit(number))));
            if ask.submit.request_id.is_some() && dice.chance(500) {
                orders.push((at, Order::Client(ClientAction::Submit(number))));
            }
            clients.asks.push(ask);
            clients.pending.insert(ClientAction::Submit(number));
        }
        (clients, orders)
    }

    /// The actions that are not done.
    pub(crate) fn pending(&self) -> &BTreeSet<ClientAction> {
        &self.pending
    }

    /// The caps of the budgets of all questions.
    pub(crate) fn caps(&self) -> BTreeMap<Payer, Cost> {
        let budgets = self.asks.iter().flat_map(|ask| &ask.submit.budgets);
        budgets.filter_map(|budget| Some((budget.payer.clone(), budget.cap?))).collect()
    }
}

/// The budgets of a world. Some tenants have none; others have one that soon runs out.
fn some_budgets(dice: &mut Dice) -> BTreeMap<&'static str, Budget> {
    let mut budgets = BTreeMap::new();
    for name in TENANTS {
        if dice.chance(400) {
            let tenant = TenantId::new(name).unwrap_or_else(|_| unreachable!("`{name}` is a name"));
            let cap = dice.chance(800).then(|| Cost::from_nano_usd(dice.between(1, BUDGET_NANO_USD_MAX)));
            let period = if dice.chance(500) { Period::Day } else { Period::Total };
            let payer = Payer::Tenant(tenant.clone());
            budgets.insert(name, Budget { payer, tenant, period, cap });
        }
    }
    budgets
}

/// The tools of some questions, with a policy about them.
fn some_tools(dice: &mut Dice, policy: &mut Policy) -> Option<ToolUse> {
    if !dice.chance(250) {
        return None;
    }
    let (name, description) = (TOOL.to_owned(), String::new());
    let tools = vec![Tool { name, description, schema: Tool::no_parameters(), strict: None }];
    let at_once = if dice.chance(300) { CallsAtOnce::One } else { CallsAtOnce::Several };
    policy.tools = if dice.chance(900) { StepTools::All } else { StepTools::Last };
    policy.turns_max = u16::try_from(dice.between(1, 3)).unwrap_or(1);
    policy.suspended_ms_max = dice.between(2_000, 30_000);
    Some(ToolUse { tools, choice: ToolChoice::Auto, at_once })
}

impl Ask {
    /// Repeats the question of `other`.
    fn repeat(&mut self, other: &Self, number: usize) {
        let request_id = self.submit.request_id.take();
        let request_id = request_id.and_then(|_| RequestId::new(format!("again{number}")).ok());
        self.submit = Submit { request_id, ..other.submit.clone() };
    }

    fn draw(dice: &mut Dice, number: usize) -> Self {
        let tenant = TENANTS[dice.index(3)];
        // Each tenant numbers its own requests: the same id of another tenant is another request.
        let waits = dice.chance(400);
        let named = dice.chance(if waits { 300 } else { 700 });
        let request_id = named.then(|| RequestId::new(format!("r{}", number / 2 * 2))).and_then(Result::ok);
        let mut policy = match dice.below(8) {
            0 | 1 => Policy::new(Tier::Mini, Effort::Medium),
            2..=4 => Policy {
                rounds_max: u16::try_from(dice.between(2, 3)).unwrap_or(2),
                ..Policy::new(Tier::Ultra, Effort::XHigh)
            },
            _ => Policy::new(Tier::Ultra, Effort::Medium),
        };
        policy.attempts_max = u32::try_from(dice.between(2, 8)).unwrap_or(2);
        if dice.chance(300) {
            policy.fallback = PoolRule::None;
        }
        if dice.chance(400) {
            policy.broken_answer = BrokenAnswer::Again;
        }
        policy.failed_step = FailedStep::ALL[dice.index(3)];
        if dice.chance(120) {
            policy.deadline_ms = dice.between(1_000, 20_000);
        }
        if dice.chance(80) {
            policy.cost_max = Some(Cost::from_nano_usd(dice.between(1, 2_000_000_000)));
        }
        if dice.chance(30) {
            policy.output_bytes_max = 20;
        }
        let tools = some_tools(dice, &mut policy);
        let mut actions = Vec::new();
        let processes = if tools.is_none() { 0 } else { 1 + usize::from(dice.chance(300)) };
        actions.extend((0..processes).map(|process| ClientAction::Results { number, process }));
        if dice.chance(500) {
            actions.push(ClientAction::Watch(number));
        }
        if dice.chance(400) {
            actions.push(ClientAction::Answer(number));
        }
        if dice.chance(150) {
            actions.push(ClientAction::Cancel(number));
        }
        let tenant = if number.is_multiple_of(2) { tenant } else { TENANTS[3] };
        let conversation = Conversation::question_only(format!("Question {number}?"))
            .unwrap_or_else(|_| unreachable!("it is a question"));
        let submit = Submit {
            tenant: TenantId::new(tenant).unwrap_or_else(|_| unreachable!("`{tenant}` is a name")),
            key: None,
            budgets: Vec::new(),
            request_id,
            request_digest: None,
            model: "podium-ultra".to_owned(),
            conductor: None,
            request: RunRequest {
                answer_tokens_max: dice.chance(100).then_some(50),
                // Most requests are deterministic, so that the step cache may answer them.
                sampling: Sampling { temperature: dice.chance(700).then_some(0.0), ..Sampling::NONE },
                tools,
                ..RunRequest::new(conversation, policy)
            },
        };
        let (shown, answer) = (BTreeMap::new(), String::new());
        Self { submit, waits, actions, run: None, last: 0, shown, is_last_shown: false, answer }
    }
}

/// An action under way on a node. If it is dropped before it is done, the client repeats it elsewhere.
pub(crate) struct UnderWay {
    world: World,
    action: ClientAction,
    is_done: bool,
}

impl UnderWay {
    pub(crate) fn new(world: World, action: ClientAction) -> Self {
        Self { world, action, is_done: false }
    }

    fn done(mut self) {
        self.is_done = true;
        self.world.lock().clients.pending.remove(&self.action);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_done {
            self.world.lock().broken_off.push(Ended::ClientAction(self.action));
        }
    }
}

impl Core {
    /// A client lost its connection and reconnects.
    pub(crate) fn reconnect(&mut self, action: ClientAction) {
        let again = match action {
            // Without a request id, a repetition could create a second run, so this client gives up.
            ClientAction::Submit(number) => self.clients.asks[number].submit.request_id.is_some(),
            _ => true,
        };
        if again {
            self.count("client reconnected");
            self.clients.pending.insert(action);
            let pause = self.dice.between(100, 1_500);
            self.order_after(pause, Order::Client(action));
        } else {
            self.clients.pending.remove(&action);
        }
    }
}

/// Performs an action at a node.
pub(crate) async fn run_action(engine: Engine, link: Link, under_way: UnderWay) {
    let is_done = match under_way.action {
        ClientAction::Submit(number) => submit(&engine, &link, number).await,
        ClientAction::Watch(number) => watch(&engine, &link, number).await,
        ClientAction::Answer(number) => answer(&engine, &link, number).await,
        ClientAction::Cancel(number) => cancel(&engine, &link, number).await,
        ClientAction::Results { number, .. } => send_results(&engine, &link, number).await,
    };
    if is_done {
        under_way.done();
    }
}

async fn submit(engine: &Engine, link: &Link, number: usize) -> bool {
    let (submit, waits) = {
        let core = link.world.lock();
        let ask = &core.clients.asks[number];
        (ask.submit.clone(), ask.waits)
    };
    let submitted = if waits {
        engine.ask(submit).await.map(|(submitted, ending)| (submitted, Some(ending)))
    } else {
        engine.submit(submit).await.map(|submitted| (submitted, None))
    };
    let (run, mut ending) = {
        let mut core = link.world.lock();
        let what = submitted.as_ref().map(|(submitted, _)| submitted.run_id());
        note!(core, "node {}: client {number} submitted: {what:?}", link.node);
        match submitted {
            Ok((submitted, None)) => {
                core.submitted(number, submitted.run_id());
                return true;
            }
            Ok((submitted, Some(ending))) => (submitted.run_id(), ending),
            Err(SubmitError::Store(_)) => return false,
            Err(SubmitError::OverBudget(_)) => {
                core.count("rejected over budget");
                return true;
            }
            Err(refused) => {
                core.checker.violated(Invariant::Ends, format!("a valid request was rejected: {refused}"));
                return true;
            }
        }
    };
    link.world.lock().submitted(number, run);
    let ended = ending.run().await;
    let mut core = link.world.lock();
    match ended {
        Ok(ended) => {
            core.submitted(number, run);
            let run = ended;
            if run.is_suspended() {
                core.count("waited for tool calls");
            } else {
                core.count("waited for the end");
                core.checker.shown_end(&run);
            }
            true
        }
        Err(WatchError::UnknownRun) => {
            core.checker.violated(Invariant::Ends, format!("the run of client {number} is unknown"));
            true
        }
        Err(WatchError::Store(_)) => false,
    }
}

impl Core {
    fn submitted(&mut self, number: usize, run: RunId) {
        self.checker.accepted(run);
        let ask = &mut self.clients.asks[number];
        match ask.run.replace(run) {
            Some(other) if other != run => {
                let what = format!("question {number} became the runs {other} and {run}");
                self.checker.violated(Invariant::RequestId, what);
            }
            Some(_) => {}
            None => {
                for action in std::mem::take(&mut ask.actions) {
                    self.clients.pending.insert(action);
                    let pause = self.dice.mostly_small(0, 10_000);
                    self.order_after(pause, Order::Client(action));
                }
            }
        }
    }

    fn run_of(&self, number: usize) -> Option<RunId> {
        self.clients.asks[number].run
    }

    fn saw(&mut self, number: usize, update: &Update) {
        let ask = &mut self.clients.asks[number];
        let Some(run) = ask.run else { return };
        let mut fail = |what: String| self.checker.violated(Invariant::Stream, format!("run {run}: {what}"));
        match update {
            Update::Event(event) => {
                if event.sequence != ask.last + 1 || ask.is_last_shown {
                    fail(format!("event {} was shown after {}", event.sequence, ask.last));
                }
                ask.last = event.sequence;
                ask.is_last_shown = event.event.is_final();
                if let RunEvent::StepCalled { round, step, .. } = &event.event {
                    // The next turn begins a text of its own.
                    ask.shown.remove(&(*round, *step));
                }
                self.checker.shown_event(run, event);
            }
            Update::Planning { .. }
            | Update::Reasoning { .. }
            | Update::ToolCall { .. }
            | Update::Progress(_) => {}
            Update::Restarted { round, step } => {
                self.counts.entry("watcher saw a restart").and_modify(|count| *count += 1).or_insert(1);
                match ask.shown.get_mut(&(*round, *step)) {
                    Some(shown) if !shown.is_over => shown.is_over = true,
                    _ => fail(format!("step {step} of round {round} restarts but had not begun")),
                }
            }
            Update::Frame { frame, .. } => {
                let place = (frame.round, frame.step);
                if ask.shown.get(&place).is_some_and(|shown| shown.is_over) {
                    ask.shown.remove(&place);
                }
                let fresh = Shown { claim: frame.claim, text: String::new(), is_over: false };
                let shown = ask.shown.entry(place).or_insert(fresh);
                if (shown.claim, shown.text.len() as u64) != (frame.claim, frame.offset) {
                    fail(format!(
                        "a frame at {} follows {} bytes, or belongs to another attempt",
                        frame.offset,
                        shown.text.len()
                    ));
                }
                shown.text.push_str(&frame.text);
                let task = TaskRef::Step { round: frame.round, step: frame.step };
                self.checker.shown_text(run, task, frame.claim, &shown.text);
            }
        }
    }

    fn saw_end(&mut self, number: usize, run: &Run) {
        let shown = &self.clients.asks[number].answer;
        match run.state() {
            RunState::Active => {
                self.checker.violated(
                    Invariant::Stream,
                    format!("the answer of run {} ended before the run", run.id()),
                );
            }
            RunState::Succeeded { .. } | RunState::Suspended if run.reply_text() != Some(shown) => {
                let what =
                    format!("run {}: `{shown}` was shown, the answer is {:?}", run.id(), run.reply_text());
                self.checker.violated(Invariant::Stream, what);
            }
            _ => {}
        }
    }
}

async fn watch(engine: &Engine, link: &Link, number: usize) -> bool {
    let begun = {
        let mut core = link.world.lock();
        let ask = &mut core.clients.asks[number];
        ask.shown.clear();
        ask.run.map(|run| (run, ask.last))
    };
    let Some((run, last)) = begun else { return true };
    let Ok(mut updates) = engine.watch(run, last).await else { return false };
    while let Some(update) = updates.next().await {
        let pause = {
            let mut core = link.world.lock();
            let Ok(update) = update else { return false };
            core.saw(number, &update);
            // Some clients disconnect and reconnect, some read slowly.
            if core.dice.chance(15) {
                return false;
            }
            if core.dice.chance(15) { core.dice.between(100, 3_000) } else { 0 }
        };
        if pause > 0 {
            link.pause(pause).await;
        }
    }
    let mut core = link.world.lock();
    if !core.clients.asks[number].is_last_shown {
        core.checker
            .violated(Invariant::Stream, format!("the watch of run {run} ended before its final event"));
    }
    true
}

async fn answer(engine: &Engine, link: &Link, number: usize) -> bool {
    let run = {
        let mut core = link.world.lock();
        core.clients.asks[number].answer.clear();
        core.run_of(number)
    };
    let Some(run) = run else { return true };
    let Ok(mut parts) = engine.answer(run).await else { return false };
    while let Some(part) = parts.next().await {
        let mut core = link.world.lock();
        match part {
            Ok(AnswerPart::Text(text)) => {
                let shown = &mut core.clients.asks[number].answer;
                shown.push_str(&text);
                let shown = shown.clone();
                core.checker.shown_answer(run, &shown);
            }
            Ok(
                AnswerPart::Reasoning(_)
                | AnswerPart::ReasoningRestarted
                | AnswerPart::CallBegun { .. }
                | AnswerPart::CallArguments { .. }
                | AnswerPart::Progress(_),
            ) => {}
            Ok(AnswerPart::Ended(run)) => {
                core.saw_end(number, &run);
                return true;
            }
            Err(AnswerError::Diverged { .. }) => {
                core.count("answer diverged");
                return true;
            }
            Err(AnswerError::Store(_)) => return false,
            Err(error @ AnswerError::Unreadable { .. }) => {
                core.checker.violated(Invariant::Stream, error.to_string());
                return true;
            }
        }
    }
    link.world.lock().checker.violated(Invariant::Stream, format!("the answer of run {run} has no end"));
    true
}

async fn cancel(engine: &Engine, link: &Link, number: usize) -> bool {
    let run = link.world.lock().run_of(number);
    let Some(run) = run else { return true };
    match engine.cancel(run).await {
        Ok(run) => {
            let mut core = link.world.lock();
            if *run.state() != RunState::Cancelled {
                core.checker.violated(Invariant::Ends, format!("run {} was cancelled and goes on", run.id()));
            }
            true
        }
        Err(CommandError::Refused(_)) => true,
        Err(CommandError::UnknownRun) => {
            link.world.lock().checker.violated(Invariant::Ends, format!("accepted run {run} is unknown"));
            true
        }
        Err(_) => false,
    }
}

/// The output of the tool for a call, by the worker's own id of the call.
pub(crate) fn tool_output(own_id: &str) -> String {
    format!("result of {own_id}")
}

/// The message with the results of a suspended run's calls.
fn results_of(run: &Run) -> Vec<Message> {
    let result = |call: ToolCall| {
        let own = call.own_id.map(|own| own.mark).unwrap_or_default();
        Part::ToolResult(ToolResult::new(call.id, call.name, tool_output(&own)))
    };
    vec![Message::new(Role::User, "").with(run.tool_calls().into_iter().map(result))]
}

async fn send_results(engine: &Engine, link: &Link, number: usize) -> bool {
    let id = link.world.lock().run_of(number);
    let Some(id) = id else { return true };
    loop {
        let run = match engine.run(id).await {
            Ok(Some(run)) if !run.is_ended() => run,
            // It ended, or was removed after its end.
            Ok(_) => return true,
            Err(_) => return false,
        };
        if !run.is_suspended() {
            link.pause(400).await;
            continue;
        }
        let (pause, is_gone, is_repeated) = {
            let mut core = link.world.lock();
            let pause = core.dice.mostly_small(1, 20_000);
            (pause, core.dice.chance(80), core.dice.chance(200))
        };
        if is_gone {
            link.world.lock().count("client never sent results");
            return true;
        }
        link.pause(pause).await;
        for _ in 0..=usize::from(is_repeated) {
            match engine.give_results(id, results_of(&run)).await {
                Ok(after) => {
                    let mut core = link.world.lock();
                    core.count("results given");
                    let is_taken = after.is_ended() || after.reply() > run.reply();
                    if !is_taken {
                        core.checker.violated(Invariant::Ends, format!("run {id} lost its results"));
                    }
                }
                Err(CommandError::Refused(_)) => link.world.lock().count("results refused"),
                Err(_) => return false,
            }
        }
    }
}

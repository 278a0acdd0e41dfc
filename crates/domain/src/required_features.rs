//! The features that a run needs of its workers: clients name no worker, so unsuitable ones are left out before any call.
//!
//! Every worker sees the whole question, so each must support the question's images and PDFs. Which worker writes the answer is known only
//! with the plan and may change later, so each must also support the response format, the stop sequences and the tools.

use std::collections::BTreeSet;
use std::fmt;

use crate::content::Attachment;
use crate::conversation::Message;
use crate::ids::WorkerId;
use crate::policy::{Policy, WorkersAllowed};
use crate::pool::{Feature, Pool};
use crate::request::RunRequest;
use crate::run::Run;

/// The feature that an error names if a worker does not support blank stop sequences.
pub const BLANK_STOP: &str = "stop that is nothing but blanks";
/// Most workers that an error names.
const SHOWN_MAX: usize = 8;

/// No worker supports everything that a run needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoneTakes {
    /// A feature whose absence excluded workers.
    pub feature: Feature,
    /// Each worker that the policy allows, with an unsupported feature.
    lacks: Vec<(WorkerId, &'static str)>,
}

/// `worker X does not take FEATURE` for each.
impl fmt::Display for NoneTakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no worker can be asked for this: ")?;
        for (position, (worker, feature)) in self.lacks.iter().take(SHOWN_MAX).enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            write!(f, "{comma}worker `{worker}` does not take {feature}")?;
        }
        match self.lacks.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, ", nor do {more} others"),
        }
    }
}

/// Restricts `policy` to the workers that support the question's images and PDFs, the response format, the stop sequences and the
/// tools of the request. Unchanged if all permitted workers do.
pub fn narrowed(policy: Policy, pool: &Pool, request: &RunRequest) -> Result<Policy, NoneTakes> {
    let stops = &request.stops;
    let attached: BTreeSet<_> = request.conversation.attachments().map(Attachment::feature).collect();
    let stop = (!stops.is_empty()).then_some(Feature::Stop);
    let tools = request.needs_tools().then_some(Feature::Tools);
    let needs: Vec<_> =
        attached.into_iter().chain(request.answer.feature()).chain(stop).chain(tools).collect();
    let (mut able, mut lacks, mut last) = (Vec::new(), Vec::new(), None);
    for worker in pool.workers().iter().filter(|worker| policy.allows(&worker.id)) {
        let lacking = needs.iter().find(|feature| !worker.takes(**feature));
        let lacking = lacking.map(|feature| (*feature, feature.as_str()));
        let blank =
            || (stops.has_blank() && !worker.api.ends_at_blanks()).then_some((Feature::Stop, BLANK_STOP));
        match lacking.or_else(blank) {
            None => able.push(worker.id.clone()),
            Some((feature, words)) => {
                last = Some(feature);
                lacks.push((worker.id.clone(), words));
            }
        }
    }
    match last {
        None => Ok(policy),
        Some(feature) if able.is_empty() => Err(NoneTakes { feature, lacks }),
        Some(_) => Ok(Policy { workers_allowed: WorkersAllowed::Only(able.into_iter().collect()), ..policy }),
    }
}

/// Checks that each step that waits for `results` can get the images and PDFs among them: from its own worker, or from one that may
/// replace it. The workers were chosen before the results came.
pub fn takes_results(run: &Run, pool: &Pool, results: &[Message]) -> Result<(), NoneTakes> {
    for (step, given) in run.steps_given(results) {
        let needs: BTreeSet<_> =
            given.iter().flat_map(Message::attachments).map(Attachment::feature).collect();
        let Some(own) = run.worker_of(step.into()).and_then(|worker| pool.worker_or_retired(worker)) else {
            continue;
        };
        let mut workers = vec![own];
        if run.can_fall_back(step.into()) {
            let policy = &run.spec().request.policy;
            workers.extend(pool.fallbacks_of(own).into_iter().filter(|other| policy.allows(&other.id)));
        }
        let (mut lacks, mut last) = (Vec::new(), None);
        for worker in workers {
            // Its transcript has calls of tools.
            let mut needs = needs.iter().copied().chain([Feature::Tools]);
            let Some(feature) = needs.find(|feature| !worker.takes(*feature)) else {
                (lacks, last) = (Vec::new(), None);
                break;
            };
            last = Some(feature);
            lacks.push((worker.id.clone(), feature.as_str()));
        }
        if let Some(feature) = last.filter(|_| !needs.is_empty()) {
            return Err(NoneTakes { feature, lacks });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::answer::AnswerForm;
    use crate::content::{Image, Part, Pdf, PdfSource, ToolCall, ToolResult};
    use crate::conversation::{Conversation, Role};
    use crate::policy::{Effort, Tier};
    use crate::stops::Stops;
    use crate::tools::{CallsAtOnce, Tool, ToolChoice, ToolUse};

    fn asking(conversation: &Conversation, policy: &Policy) -> RunRequest {
        RunRequest::new(conversation.clone(), policy.clone())
    }

    fn pool(workers: &[(&str, &str)]) -> Pool {
        let mut toml = String::from(
            "schema = 1\nname = \"n\"\nversion = \"1\"\n\
             vendors = [{ id = \"v\", api = \"openai-chat\", base_url = \"http://127.0.0.1:1\" }]\n",
        );
        for (id, more) in workers {
            let _ = write!(
                toml,
                "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"a worker\"\n{more}\n\
                 context_tokens = 8192\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
            );
        }
        Pool::parse(&toml).unwrap()
    }

    fn allowed(policy: &Policy, pool: &Pool) -> Vec<String> {
        pool.workers().iter().filter(|w| policy.allows(&w.id)).map(|w| w.id.to_string()).collect()
    }

    const SEES: &str = "modalities = [\"text\", \"image\"]\nfeatures = [\"json_schema\"]";
    const SEES_ONLY: &str = "modalities = [\"text\", \"image\"]";
    const WRITES: &str = "features = [\"json_object\", \"json_schema\"]";

    fn conversations() -> [Conversation; 2] {
        let picture = Part::Image(Image::Url("https://example.org/a.png".to_owned()));
        let seen = Message::new(Role::User, "what is this?").with([picture]);
        // Images in any turn count.
        let later = vec![seen, Message::new(Role::Assistant, "a cat"), Message::new(Role::User, "sure?")];
        [Conversation::question_only("why?").unwrap(), Conversation::new(later).unwrap()]
    }

    #[test]
    fn unsuitable_workers_are_left_out() {
        let pool = pool(&[("a", SEES), ("b", SEES_ONLY), ("c", WRITES), ("d", "")]);
        let ([plain, seen], ultra) = (conversations(), Policy::new(Tier::Ultra, Effort::Medium));
        let names = |policy: &Policy, asked, answer: &AnswerForm| {
            let request = RunRequest { answer: answer.clone(), ..asking(asked, policy) };
            narrowed(policy.clone(), &pool, &request).map(|policy| allowed(&policy, &pool).join(""))
        };
        let text = AnswerForm::Text;
        assert_eq!(narrowed(ultra.clone(), &pool, &asking(&plain, &ultra)), Ok(ultra.clone()));
        assert_eq!(names(&ultra, &seen, &text).unwrap(), "ab");
        assert_eq!(names(&ultra, &plain, &AnswerForm::JsonObject).unwrap(), "c");
        let refused = names(&ultra, &seen, &AnswerForm::JsonObject).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no worker can be asked for this: worker `a` does not take json_object, worker `b` does not take \
             json_object, worker `c` does not take image, worker `d` does not take image"
        );
        let only = |id: &str| WorkersAllowed::Only([WorkerId::new(id).unwrap()].into());
        let just_d = Policy { workers_allowed: only("d"), ..ultra.clone() };
        assert_eq!(names(&just_d, &seen, &text).unwrap_err().feature, Feature::Image);
        let just_b = Policy { workers_allowed: only("b"), ..ultra };
        assert_eq!(narrowed(just_b.clone(), &pool, &asking(&seen, &just_b)), Ok(just_b));
    }

    #[test]
    fn only_workers_that_read_pdfs_get_them() {
        let reads = "modalities = [\"text\", \"pdf\"]";
        let pool = pool(&[
            ("chat", reads),
            ("responses", &format!("{reads}\napi = \"openai-responses\"")),
            ("anthropic", &format!("{reads}\napi = \"anthropic\"")),
            ("gemini", "modalities = [\"text\", \"image\", \"pdf\"]\napi = \"gemini\""),
            ("sees", SEES_ONLY),
        ]);
        let ultra = Policy::new(Tier::Ultra, Effort::Medium);
        let asking = |parts: Vec<Part>| {
            let message = Message::new(Role::User, "what is this?").with(parts);
            RunRequest::new(Conversation::new(vec![message]).unwrap(), ultra.clone())
        };
        let pdf = |source| Part::Pdf(Pdf { name: None, source });
        let data = || pdf(PdfSource::Data("JVBERi0=".to_owned()));
        let url = || pdf(PdfSource::Url("https://example.org/a.pdf".to_owned()));
        let image = || Part::Image(Image::Url("https://example.org/a.png".to_owned()));
        for (parts, able) in [
            (vec![data()], &["chat", "responses", "anthropic", "gemini"][..]),
            // The format of Chat Completions has no field for the URL of a file.
            (vec![data(), url()], &["responses", "anthropic", "gemini"]),
            (vec![url(), image()], &["gemini"]),
        ] {
            assert_eq!(allowed(&narrowed(ultra.clone(), &pool, &asking(parts)).unwrap(), &pool), able);
        }
        let only = |id: &str| WorkersAllowed::Only([WorkerId::new(id).unwrap()].into());
        for (worker, part, feature, words) in
            [("sees", data(), Feature::Pdf, "pdf"), ("chat", url(), Feature::PdfUrl, "pdf by URL")]
        {
            let policy = Policy { workers_allowed: only(worker), ..ultra.clone() };
            let refused = narrowed(policy, &pool, &asking(vec![part])).unwrap_err();
            let said = format!("no worker can be asked for this: worker `{worker}` does not take {words}");
            assert_eq!((refused.feature, refused.to_string()), (feature, said));
        }
    }

    #[test]
    fn workers_that_cannot_call_tools_are_left_out() {
        let pool = pool(&[("a", "features = [\"tools\"]"), ("b", "")]);
        let ([plain, _], ultra) = (conversations(), Policy::new(Tier::Ultra, Effort::Medium));
        let (name, schema) = ("look".to_owned(), Tool::no_parameters());
        let tools = vec![Tool { name, description: String::new(), schema, strict: None }];
        let offering = |choice| {
            let tools = Some(ToolUse { tools: tools.clone(), choice, at_once: CallsAtOnce::Several });
            RunRequest { tools, ..asking(&plain, &ultra) }
        };
        let able = |request: &RunRequest| allowed(&narrowed(ultra.clone(), &pool, request).unwrap(), &pool);
        assert_eq!(able(&offering(ToolChoice::Auto)), ["a"]);
        assert_eq!(able(&offering(ToolChoice::None)), ["a", "b"]);
        let call = Part::ToolCall(ToolCall::new("c", "look", "{}"));
        let result = Part::ToolResult(ToolResult::new("c", "look", "blue"));
        let turns = vec![
            Message::new(Role::User, "look"),
            Message::new(Role::Assistant, "").with([call]),
            Message::new(Role::User, "").with([result]),
        ];
        let conversation = Conversation::new(turns).unwrap();
        assert_eq!(able(&RunRequest { conversation, ..offering(ToolChoice::None) }), ["a"]);
        let only_b = WorkersAllowed::Only([WorkerId::new("b").unwrap()].into());
        let refused =
            narrowed(Policy { workers_allowed: only_b, ..ultra.clone() }, &pool, &offering(ToolChoice::Auto));
        let message = "no worker can be asked for this: worker `b` does not take tools";
        assert_eq!(refused.unwrap_err().to_string(), message);
    }

    #[test]
    fn workers_without_the_needed_stop_sequences_are_left_out() {
        let of_api = |api: &str| format!("api = \"{api}\"");
        let [responses, anthropic, gemini] = ["openai-responses", "anthropic", "gemini"].map(of_api);
        let pool = pool(&[
            ("chat", ""),
            ("thinker", "features = [\"effort\"]"),
            ("responses", &responses),
            ("anthropic", &anthropic),
            ("gemini", &gemini),
        ]);
        let ([plain, _], ultra) = (conversations(), Policy::new(Tier::Ultra, Effort::Medium));
        let stops = |text: &str| Stops::new(vec![text.to_owned()]).unwrap();
        let narrowed = |policy: &Policy, text| {
            let request = RunRequest { stops: stops(text), ..asking(&plain, policy) };
            narrowed(policy.clone(), &pool, &request)
        };
        assert_eq!(allowed(&narrowed(&ultra, "END").unwrap(), &pool), ["chat", "anthropic", "gemini"]);
        assert_eq!(allowed(&narrowed(&ultra, "\n").unwrap(), &pool), ["chat", "gemini"]);
        let only =
            |ids: &[&str]| WorkersAllowed::Only(ids.iter().map(|id| WorkerId::new(*id).unwrap()).collect());
        let few = Policy { workers_allowed: only(&["anthropic", "responses"]), ..ultra };
        let refused = narrowed(&few, "\n").unwrap_err();
        assert_eq!(refused.feature, Feature::Stop);
        assert_eq!(
            refused.to_string(),
            "no worker can be asked for this: worker `responses` does not take stop, worker `anthropic` does not \
             take stop that is nothing but blanks"
        );
    }

    #[test]
    fn an_error_names_some_workers_and_counts_the_others() {
        let ids: Vec<_> = (0..20).map(|number| format!("w{number}")).collect();
        let workers: Vec<_> = ids.iter().map(|id| (id.as_str(), "")).collect();
        let [_, seen] = conversations();
        let ultra = Policy::new(Tier::Ultra, Effort::Medium);
        let request = asking(&seen, &ultra);
        let refused = narrowed(ultra, &pool(&workers), &request).unwrap_err().to_string();
        assert!(refused.ends_with("worker `w7` does not take image, nor do 12 others"), "{refused}");
    }
}

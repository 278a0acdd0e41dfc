//! Tests of the manifest and of the pool that it pins.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::prompt::{PlanContext, for_conductor};
use podium_domain::policy::{Effort, Policy, STEPS_MAX, Tier};
use podium_domain::pool::{Pool, WORKERS_MAX, slots_hash};

fn pool(model_of_b: &str) -> Pool {
    let worker = |id: &str, model: &str| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"{model}\"\ndescription = \"d\"\n\
             context_tokens = 4096\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    };
    let workers = [worker("extra", "e"), worker("b", model_of_b), worker("a", "ma")].concat();
    let vendor = "[[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    Pool::parse(&format!("schema = 1\nname = \"mine\"\nversion = \"2\"\n{vendor}{workers}")).unwrap()
}

/// `printf '14:podium-slots-1,1:a,2:ma,1:b,2:mb,' | sha256sum`
const HASH: &str = "b8025d80dbd367c3c4255976735067d3b37c02cb8bd40fd47f3bee8dfb653a35";

fn good() -> String {
    format!(
        "schema = 1\nname = \"nano\"\nversion = \"1\"\n[weights]\nfile = \"nano.gguf\"\nsha256 = \"{weights}\"\n\
         [[adapters]]\nfile = \"maths.gguf\"\nsha256 = \"{adapter}\"\nscale = 0.5\n\
         [head]\nfile = \"mini.safetensors\"\nsha256 = \"{head}\"\n\
         [encoder]\nfile = \"minilm.gguf\"\nsha256 = \"{encoder}\"\n\
         [prompt]\nworkers = \"slots\"\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n\
         [pool]\nslots = [\"a\", \"b\"]\ntrained_on = \"mine-1\"\nhash = \"{HASH}\"\n\
         [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 64\nplan_tokens_max = 400\ncontext_tokens = 1024\n",
        weights = "a".repeat(64),
        adapter = "b".repeat(64),
        head = "c".repeat(64),
        encoder = "d".repeat(64),
    )
}

#[test]
fn a_good_manifest_reads() {
    let manifest = Manifest::parse(&good()).unwrap();
    assert_eq!(manifest.id(), "nano-1");
    let files: Vec<_> = manifest.files().iter().map(|named| (named.key.clone(), named.file)).collect();
    let expected = [
        ("weights", "nano.gguf"),
        ("adapters[0]", "maths.gguf"),
        ("head", "mini.safetensors"),
        ("encoder", "minilm.gguf"),
    ];
    assert_eq!(files, expected.map(|(key, file)| (key.to_owned(), file)));
}

#[test]
fn an_invalid_manifest_is_refused_with_the_key() {
    for (from, to, key) in [
        ("nano.gguf", "../nano.gguf", "weights.file"),
        ("maths.gguf", "conductor.toml", "adapters[0].file"),
        ("maths.gguf", "nano.gguf", "adapters[0].file"),
        ("mini.safetensors", "a/b", "head.file"),
        ("cccc", "", "head.sha256"),
        ("minilm.gguf", "a/b", "encoder.file"),
        ("minilm.gguf", "mini.safetensors", "encoder.file"),
        ("dddd", "", "encoder.sha256"),
        ("aaaa", "AAAA", "weights.sha256"),
        ("bbbb", "", "adapters[0].sha256"),
        ("scale = 0.5", "scale = 0", "adapters[0].scale"),
        ("{{question}}", "hello", "prompt.user"),
        ("[pool]", "further = \"again\"\n[pool]", "prompt.further"),
        ("[\"a\", \"b\"]", "[]", "pool.slots"),
        ("[\"a\", \"b\"]", "[\"a\", \"a\"]", "pool.slots"),
        ("mine-1", "", "pool.trained_on"),
        ("slots\"\ntemplate", "described\"\ntemplate", "pool must be left out"),
        (HASH, "", "pool.hash"),
        ("= 1024", "= 128", "sampling"),
        ("schema = 1", "schema = 2\ncolour = \"red\"", "schema is 2, this version reads 1"),
    ] {
        let text = good();
        assert!(text.contains(from), "{from}");
        let refused = Manifest::parse(&text.replacen(from, to, 1)).expect_err(key).to_string();
        assert!(refused.contains(key), "{refused}");
    }
}

#[test]
fn all_problems_of_a_manifest_are_listed() {
    let text = good().replace("nano.gguf", "a/b").replace("= 1024", "= 1").replace("mine-1", "");
    let ManifestError::Invalid(problems) = Manifest::parse(&text).unwrap_err() else { panic!("{text}") };
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn slots_are_the_pools_workers_in_the_bundles_order() {
    let manifest = Manifest::parse(&good()).unwrap();
    let fitted = manifest.fit(&pool("mb")).unwrap();
    let ids: Vec<_> = fitted.workers().iter().map(|worker| worker.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn the_hash_is_computed_as_documented() {
    let slots = ["a", "b"].map(|id| WorkerId::new(id).unwrap());
    assert_eq!(slots_hash(&pool("mb"), &slots).unwrap(), HASH);
    let turned = ["b", "a"].map(|id| WorkerId::new(id).unwrap());
    assert_ne!(slots_hash(&pool("mb"), &turned).unwrap(), HASH, "the order counts");
}

#[test]
fn a_pool_that_differs_in_a_slot_is_refused_with_both_names() {
    let manifest = Manifest::parse(&good()).unwrap();
    let refused = manifest.fit(&pool("mc")).unwrap_err().to_string();
    for part in ["`nano-1`", "`mine-1`", "`mine-2`", HASH] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let manifest = Manifest::parse(&good().replace("[\"a\", \"b\"]", "[\"a\", \"c\", \"d\"]")).unwrap();
    let refused = manifest.fit(&pool("mb")).unwrap_err();
    assert_eq!(refused.problems.len(), 2, "{refused}");
    assert!(refused.to_string().contains("`d`, slot 2"), "{refused}");
}

#[test]
fn a_bundle_with_described_workers_fits_any_pool() {
    let text = good().replace("\"slots\"", "\"described\"");
    let pinned = text.split_once("[pool]").unwrap().1.split_once("[sampling]").unwrap().0;
    let manifest = Manifest::parse(&text.replace(&format!("[pool]{pinned}"), "")).unwrap();
    assert_eq!(manifest.fit(&pool("mb")).unwrap(), pool("mb"));
}

#[test]
fn slots_have_follow_up_rounds_if_the_manifest_has_the_prompt() {
    let with =
        |text: &str| Manifest::parse(&text.replace("[pool]", "further = \" {{earlier}}\"\n[pool]")).unwrap();
    assert_eq!(Manifest::parse(&good()).unwrap().rounds_max(), 1);
    assert_eq!(with(&good()).rounds_max(), podium_domain::policy::ROUNDS_MAX);
}

/// A bundle with described workers; `prompt` and `examples` are inserted.
fn described(prompt: &str, examples: &str) -> String {
    format!(
        "schema = 1\nname = \"big\"\nversion = \"1\"\n[weights]\nfile = \"w.gguf\"\nsha256 = \"{}\"\n\
         [sampling]\ntemperature = 0.0\nreasoning_tokens_max = 64\nplan_tokens_max = 400\ncontext_tokens = 1024\n\
         [prompt]\nworkers = \"described\"\ntemplate = \"chatml\"\n{prompt}\n{examples}",
        "a".repeat(64)
    )
}

const USER: &str = "user = \"Like these:\\n{{examples}}\\n\\nTeam:\\n{{workers}}Question: {{question}}\"";

const EXAMPLES: &str = r#"
[[examples]]
question = "Who rules {{question}}?"
plan = """
Ask one.
model_id = [40]
subtasks = ["Rule."]
access_list = [[]]
"""
[[examples]]
question = "And now?"
workers = ["Writes.", "Reads."]
plan = 'model_id = [1, 0] subtasks = ["a", "b"] access_list = [[], ["all"]]'
"#;

fn asked(manifest: &Manifest, question: &str) -> String {
    let (pool, policy) = (pool("mb"), Policy::new(Tier::Ultra, Effort::Medium));
    let examples = &manifest.examples;
    let context = PlanContext { question, examples, pool: &pool, policy: &policy, earlier: None };
    for_conductor(&manifest.prompt, &context).remove(0).text
}

#[test]
fn worked_examples_replace_their_placeholder() {
    let manifest = Manifest::parse(&described(USER, EXAMPLES)).unwrap();
    let text = asked(&manifest, "Why?");
    let expected = "Like these:\n\
         Question: Who rules {{question}}?\nAsk one.\nmodel_id = [40]\nsubtasks = [\"Rule.\"]\naccess_list = [[]]\n\n\
         Question: And now?\nModel id 0: Writes.\nModel id 1: Reads.\n\
         model_id = [1, 0] subtasks = [\"a\", \"b\"] access_list = [[], [\"all\"]]\n\nTeam:\nModel id 0: d";
    assert!(text.starts_with(expected) && text.ends_with("Question: Why?"), "{text}");
}

#[test]
fn an_example_with_an_invalid_plan_is_refused_by_number() {
    for (from, to, problem) in [
        ("[1, 0]", "[1]", "examples[1].plan is refused: lists differ in length: 1 in model_id"),
        (
            "[1, 0]",
            "[1, 2]",
            "examples[1].plan is refused: model_id of step 2 is `2`, the pool has positions 0 to 1",
        ),
        ("[40]", "[\"rome\"]", "examples[0].plan is refused: model_id of step 1 is `rome`"),
        ("[40]", "[-1]", "examples[0].plan is refused: model_id of step 1 is `-1`"),
        ("[[], [\"all\"]]", "[[], [1]]", "examples[1].plan is refused: access_list of step 2 has position 1"),
        ("subtasks = [\"Rule.\"]", "", "examples[0].plan is refused"),
        ("\"Rule.\"", "\"  \"", "examples[0].plan is refused: subtask of step 1 is blank"),
        ("And now?", " ", "examples[1].question is blank"),
        ("\"Writes.\"", "\"\"", "examples[1].workers has a blank entry"),
        ("Ask one.", &"why ".repeat(2048), "examples[0] has 82"),
        ("plan = 'model_id", "team = 1\nplan = 'model_id", "unknown field `team`"),
    ] {
        assert!(EXAMPLES.contains(from), "{from}");
        let text = described(USER, &EXAMPLES.replacen(from, to, 1));
        let refused = Manifest::parse(&text).expect_err(problem).to_string();
        assert!(refused.contains(problem), "{problem} in {refused}");
    }
    let one =
        "[[examples]]\nquestion = \"q\"\nplan = 'model_id = [0] subtasks = [\"a\"] access_list = [[]]'\n";
    Manifest::parse(&described(USER, &one.repeat(EXAMPLES_MAX))).unwrap();
    let many = Manifest::parse(&described(USER, &one.repeat(EXAMPLES_MAX + 1))).unwrap_err().to_string();
    assert!(many.contains("examples has 17 entries, at most 16 are allowed"), "{many}");
}

#[test]
fn examples_need_a_placeholder_and_the_placeholder_examples() {
    for (user, examples, problem) in [
        ("{{workers}} {{question}}", EXAMPLES, "it is there 0 times"),
        ("{{examples}} {{examples}} {{question}}", EXAMPLES, "it is there 2 times"),
        ("{{examples}} {{question}}", "", "there are no examples"),
        ("{{question}} {{examples}}", EXAMPLES, "before {{question}}"),
    ] {
        let refused = Manifest::parse(&described(&format!("user = \"{user}\""), examples)).unwrap_err();
        assert!(refused.to_string().contains(problem), "{problem} in {refused}");
    }
    let system = "system = \"{{examples}}\"\nuser = \"{{question}}\"";
    let manifest = Manifest::parse(&described(system, EXAMPLES)).unwrap();
    assert!(asked(&manifest, "Why?").starts_with("Question: Who rules"));
}

#[test]
fn an_examples_numbers_are_slots_in_a_bundle_with_slots() {
    let example = |plan: &str, workers: &str| {
        let user = good().replace("{{question}}", "{{examples}} {{question}}");
        format!(
            "{user}[[examples]]\nquestion = \"q\"\n{workers}plan = '{plan} subtasks = [\"a\"] access_list = [[]]'\n"
        )
    };
    Manifest::parse(&example("model_id = [1]", "")).unwrap();
    let beyond = Manifest::parse(&example("model_id = [2]", "")).unwrap_err().to_string();
    assert!(beyond.contains("the pool has positions 0 to 1"), "{beyond}");
    let named = Manifest::parse(&example("model_id = [1]", "workers = [\"a\", \"b\"]\n")).unwrap_err();
    assert!(named.to_string().contains("examples[0].workers must be left out"), "{named}");
}

#[test]
fn a_second_adapter_and_an_invalid_scale_are_refused() {
    let adapters = |count: usize, scale: &str| {
        let one = |number| {
            format!(
                "[[adapters]]\nfile = \"a{number}.gguf\"\nsha256 = \"{}\"\nscale = {scale}\n",
                "b".repeat(64)
            )
        };
        let adapters: String = (0..count).map(one).collect();
        Manifest::parse(&described("user = \"{{question}}\"", &adapters))
    };
    assert_eq!(adapters(1, "2.5").unwrap().adapters[0].scale.to_string(), "2.5");
    let refused = adapters(2, "1.0").unwrap_err().to_string();
    assert!(refused.contains("adapters has 2 entries, at most 1 are allowed"), "{refused}");
    for scale in ["nan", "inf", "-1.0", "16.5"] {
        let refused = adapters(1, scale).unwrap_err().to_string();
        assert!(refused.contains("adapters[0].scale is"), "{scale}: {refused}");
    }
}

#[test]
fn an_encoder_needs_a_head() {
    let (before, after) = good().split_once("[head]").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let (_, after) = after.split_once("[encoder]").unwrap();
    let refused = Manifest::parse(&format!("{before}[encoder]{after}")).unwrap_err().to_string();
    assert!(refused.contains("encoder must be left out"), "{refused}");
}

/// The reference page of bundles.
const PAGE: &str = include_str!("../../../../docs/bundles.md");

/// The keys of the manifest with their tables, taken from the errors about an unknown key.
fn keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (head, table) in [
        ("", ""),
        ("[weights]", "weights."),
        ("[[adapters]]", "adapters."),
        ("[head]", "head."),
        ("[encoder]", "encoder."),
        ("[prompt]", "prompt."),
        ("[[examples]]", "examples."),
        ("[pool]", "pool."),
        ("[sampling]", "sampling."),
    ] {
        let refused = Manifest::parse(&format!("{head}\nzzz = 1\n")).unwrap_err().to_string();
        let (_, expected) = refused.split_once("unknown field `zzz`, expected").expect(&refused);
        keys.extend(expected.split('`').skip(1).step_by(2).map(|key| format!("{table}{key}")));
    }
    keys
}

/// The rows of the page's table, by key.
fn rows() -> BTreeMap<&'static str, &'static str> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let keys = |row: &'static str| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2);
    rows.flat_map(|row| keys(row).map(move |key| (key, row))).collect()
}

#[test]
fn the_bundle_page_lists_exactly_the_keys() {
    let rows: BTreeSet<_> = rows().into_keys().map(str::to_owned).collect();
    assert_eq!(rows, keys());
    assert!(rows.len() > 30, "{rows:?}");
}

#[test]
fn the_bundle_page_has_the_bounds_and_a_valid_manifest() {
    let rows = rows();
    for (key, bound) in [
        ("adapters", ADAPTERS_MAX),
        ("examples", EXAMPLES_MAX),
        ("examples.question", EXAMPLE_BYTES_MAX),
        ("examples.plan", STEPS_MAX.into()),
        ("pool.slots", WORKERS_MAX),
    ] {
        assert!(
            rows[key].split(' ').any(|word| word.trim_end_matches([',', ';']) == bound.to_string()),
            "{}",
            rows[key]
        );
    }
    let manifest = PAGE.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let manifest = manifest.replace("sha256 = \"\"", &format!("sha256 = \"{}\"", "0".repeat(64)));
    let manifest = Manifest::parse(&manifest).unwrap();
    assert_eq!((manifest.id().as_str(), manifest.examples.len()), ("planner-3", 1));
}

//! Tests of the settings: precedence, checks and messages.

use podium_domain::ids::WorkerId;
use podium_planning::ConductorChoice;
use podium_setup::settings::{ProgramKeys, Sources, Unset, reference};

use super::*;

fn sources(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
    let mut sources = Sources::new(&keys());
    sources
        .read_environment(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    for (key, value) in flags {
        sources.flag(key, Some(value));
    }
    sources
}

fn settings(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Settings {
    check(sources(environment, flags), Depth::Values).unwrap()
}

fn problems(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Vec<String> {
    check(sources(environment, flags), Depth::Server).unwrap_err().0
}

#[test]
fn the_defaults_are_valid_and_listen_on_loopback() {
    let settings = settings(&[], &[("data", "d")]);
    assert!(settings.listen.ip().is_loopback() && settings.grpc_listen.ip().is_loopback());
    let no_successor = ConductorChoices::one(ConductorChoice::Auto);
    assert_eq!((settings.pool, settings.conductors), (PoolChoice::Demo, no_successor));
}

#[test]
fn flags_replace_the_environment_and_that_replaces_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("podium.toml");
    std::fs::write(&file, "listen = '127.0.0.1:1'\ngrpc_listen = '127.0.0.1:2'\ndrain_ms = 3\n").unwrap();
    let mut sources = Sources::new(&keys());
    sources.read_file(&file);
    sources.read_environment([("PODIUM__LISTEN".to_owned(), "127.0.0.1:4".to_owned())]);
    sources.read_environment([("PODIUM__GRPC_LISTEN".to_owned(), "127.0.0.1:5".to_owned())]);
    sources.flag("listen", Some("127.0.0.1:6"));
    let settings = check(sources, Depth::Values).unwrap();
    assert_eq!((settings.listen.port(), settings.grpc_listen.port()), (6, 5));
    assert_eq!(settings.drain, Duration::from_millis(3));
}

#[test]
fn every_problem_is_listed_with_its_source() {
    let environment = [("PODIUM__DRAIN_MS", "soon"), ("PODIUM__COLOUR", "red"), ("OTHER", "x")];
    let problems = problems(&environment, &[("listen", "here"), ("conductor", "bach")]);
    assert_eq!(problems.len(), 4, "{problems:#?}");
    for (part, said) in [
        ("PODIUM__COLOUR", "unknown key `colour`"),
        ("listen (from --listen)", "is `here`"),
        ("conductor (from --conductor)", "`bach`"),
        ("drain_ms (from PODIUM__DRAIN_MS)", "`soon`"),
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(part) && problem.contains(said)),
            "{problems:#?}"
        );
    }
}

#[test]
fn a_remote_address_must_be_allowed() {
    let flags = [("listen", "0.0.0.0:8080"), ("grpc_listen", "[::]:8081")];
    assert_eq!(problems(&[], &flags).len(), 2);
    let allowed = [flags[0], flags[1], ("allow_remote", "true")];
    assert_eq!(settings(&[], &allowed).listen.port(), 8080);
}

#[test]
fn two_listeners_cannot_share_a_port() {
    assert_eq!(problems(&[], &[("grpc_listen", "127.0.0.1:8080")]).len(), 1);
    settings(&[], &[("listen", "127.0.0.1:0"), ("grpc_listen", "127.0.0.1:0")]);
}

#[test]
fn conductors_are_named_by_kind() {
    let chosen = |text| {
        let conductor = settings(&[], &[("conductor", text)]).conductors.current;
        assert_eq!(conductor.to_string(), text);
        conductor
    };
    assert_eq!(chosen("llama:models/nano"), ConductorChoice::Llama("models/nano".into()));
    assert_eq!(chosen("fixed:a.yaml"), ConductorChoice::Fixed("a.yaml".into()));
    assert_eq!(chosen("direct:w"), ConductorChoice::Direct(Some(WorkerId::new("w").unwrap())));
    assert_eq!(chosen("worker:w"), ConductorChoice::Worker(WorkerId::new("w").unwrap()));
    let model = ConductorChoice::Model { file: "a#b.toml".into(), worker: WorkerId::new("w").unwrap() };
    assert_eq!(chosen("model:a#b.toml#w"), model);
    let remote = ConductorChoice::Remote { url: "http://h:1/v1".into(), model: "org/m".into() };
    assert_eq!(chosen("remote:http://h:1/v1#org/m"), remote);
    for wrong in [
        "llama:",
        "model:a.toml",
        "model:#w",
        "model:a.toml#",
        "remote:http://h",
        "remote:h#m",
        "direct:",
        "fixed",
    ] {
        assert_eq!(problems(&[], &[("conductor", wrong)]).len(), 1, "{wrong}");
    }
}

#[test]
fn the_next_conductor_has_a_share() {
    let flags = [("conductor_next", "fixed:b.yaml"), ("conductor_next_share", "0.25")];
    let next = settings(&[], &flags).conductors.next.unwrap();
    assert_eq!(next.0, ConductorChoice::Fixed("b.yaml".into()));
    assert_eq!(next.1, podium_domain::share::Share::new(0.25).unwrap());
    for wrong in [("conductor_next", "auto"), ("conductor_next_share", "2"), ("conductor_next_share", "a")] {
        assert_eq!(problems(&[], &[wrong]).len(), 1, "{wrong:?}");
    }
}

#[test]
fn the_check_rejects_everything_that_a_start_rejects() {
    for (flags, says) in [
        (vec![("conductor", "worker:nobody")], "no worker `nobody`"),
        (vec![("conductor", "direct:nobody")], "no worker `nobody`"),
        (vec![("conductor", "fixed:/nope")], "/nope"),
        (vec![("conductor", "llama:/nope")], "llama"),
        (vec![("conductor", "model:/nope#x")], "/nope"),
        (vec![("pool", "/nope.toml"), ("conductor", "direct")], "/nope.toml"),
        (vec![("conductor", "direct"), ("conductor_next", "direct")], "both `direct`"),
        (vec![("conductor_next_share", "0.5")], "conductor_next is not set"),
        (vec![("log", "infoo")], "infoo"),
    ] {
        let problems = problems(&[], &[flags.clone(), vec![("data", "d")]].concat());
        assert!(problems.len() == 1 && problems[0].contains(says), "{flags:?}: {problems:#?}");
    }
}

#[test]
fn a_workflow_with_unknown_workers_is_rejected() {
    let workflow = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conductors/reflection.yaml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("workflow.yaml");
    let text = std::fs::read_to_string(workflow).unwrap();
    std::fs::write(&file, text.replace("worker: ", "worker: x-")).unwrap();
    let conductor = format!("fixed:{}", file.display());
    let problems = problems(&[], &[("conductor", &conductor)]);
    assert!(problems.len() == 1 && problems[0].starts_with("conductor (from --conductor)"), "{problems:#?}");
}

#[test]
fn slots_depend_on_the_pool_unless_they_are_set() {
    let slots = |flags: &[(&'static str, &str)], in_flight_max: &str| {
        let demo = include_str!("../../../../pools/demo.toml");
        let pool = demo.replace("in_flight_max = 32", &format!("in_flight_max = {in_flight_max}"));
        settings(&[], flags).step_slots(&podium_domain::pool::Pool::parse(&pool).unwrap())
    };
    assert_eq!(slots(&[], "16"), 1024);
    assert_eq!(slots(&[], "2000"), 2000);
    assert_eq!(slots(&[("step_slots", "32")], "2000"), 32);
}

/// All programs, in the order of the reference page.
fn programs() -> [ProgramKeys; 4] {
    [keys(), podium_gateway::keys(), podium_planner::keys(), podium_executor::keys()]
}

/// With the variable `UPDATE_SETTINGS`, writes the file instead.
#[track_caller]
fn assert_printed(path: &str, printed: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_SETTINGS").is_some() {
        std::fs::write(&path, printed).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text == printed,
        "{} is out of date; `UPDATE_SETTINGS=1 cargo nextest run -p podium settings` writes it",
        path.display()
    );
}

#[test]
fn the_settings_files_are_what_print_keys_prints() {
    for keys in programs() {
        let name = keys.program.trim_end_matches(" serve");
        assert_printed(&format!("deploy/settings/{name}.toml"), &keys.settings_file());
    }
}

#[test]
fn the_reference_page_lists_every_key_of_every_program() {
    const HEAD: &str = "# Settings reference

Every key of every program. `--print-keys` prints the same for one program, as a settings file.
[Settings](settings.md) explains where values come from.
A key with several rows differs between programs.
";
    assert_printed("docs/guide/settings-reference.md", &format!("{HEAD}{}", reference(&programs())));
}

#[test]
fn every_key_has_a_help_text_and_a_default_or_an_example() {
    for keys in programs() {
        let mut names = std::collections::BTreeSet::new();
        for key in keys.used() {
            assert!(names.insert(key.name), "{} has {} twice", keys.program, key.name);
            assert!(key.help.ends_with('.'), "{}: {}", key.name, key.help);
            match key.unset {
                Unset::Default(default) => assert!(!default.is_empty(), "{}", key.name),
                Unset::Instead { what, example } => {
                    assert!(!example.is_empty() && !what.ends_with('.'), "{}", key.name);
                }
                Unset::Refused { example } => assert!(!example.is_empty(), "{}", key.name),
            }
        }
    }
}

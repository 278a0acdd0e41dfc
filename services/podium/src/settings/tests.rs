//! Tests of the setup: who wins, and what is said when something is wrong.

use podium_domain::ids::WorkerId;
use podium_setup::conductor::ConductorChoice;
use podium_setup::settings::Sources;

use super::*;

fn sources(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
    let mut sources = Sources::new(KEYS);
    sources
        .read_environment(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    for (key, value) in flags {
        sources.flag(key, Some(value));
    }
    sources
}

fn settings(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Settings {
    check(sources(environment, flags)).unwrap()
}

fn problems(environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Vec<String> {
    check(sources(environment, flags)).unwrap_err().0
}

#[test]
fn the_defaults_hold_and_stay_on_this_machine() {
    let settings = settings(&[], &[("data", "d")]);
    assert!(settings.listen.ip().is_loopback() && settings.grpc_listen.ip().is_loopback());
    let nobody_follows = ConductorChoices::one(ConductorChoice::Auto);
    assert_eq!((settings.pool, settings.conductors), (PoolChoice::Demo, nobody_follows));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("podium.toml");
    std::fs::write(&file, "listen = '127.0.0.1:1'\ngrpc_listen = '127.0.0.1:2'\ndrain_ms = 3\n").unwrap();
    let mut sources = Sources::new(KEYS);
    sources.read_file(&file);
    sources.read_environment([("PODIUM__LISTEN".to_owned(), "127.0.0.1:4".to_owned())]);
    sources.read_environment([("PODIUM__GRPC_LISTEN".to_owned(), "127.0.0.1:5".to_owned())]);
    sources.flag("listen", Some("127.0.0.1:6"));
    let settings = check(sources).unwrap();
    assert_eq!((settings.listen.port(), settings.grpc_listen.port()), (6, 5));
    assert_eq!(settings.drain, Duration::from_millis(3));
}

#[test]
fn every_problem_is_listed_with_its_origin() {
    let environment = [("PODIUM__DRAIN_MS", "soon"), ("PODIUM__COLOUR", "red"), ("OTHER", "x")];
    let problems = problems(&environment, &[("listen", "here"), ("conductor", "bach")]);
    assert_eq!(problems.len(), 4, "{problems:#?}");
    for (part, said) in [
        ("PODIUM__COLOUR", "no key `colour`"),
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
fn an_address_that_others_reach_must_be_allowed() {
    let flags = [("listen", "0.0.0.0:8080"), ("grpc_listen", "[::]:8081")];
    assert_eq!(problems(&[], &flags).len(), 2);
    let allowed = [flags[0], flags[1], ("allow_remote", "true")];
    assert_eq!(settings(&[], &allowed).listen.port(), 8080);
}

#[test]
fn both_doors_cannot_share_a_port() {
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
    let remote = ConductorChoice::Remote { url: "http://h:1/v1".into(), model: "org/m".into() };
    assert_eq!(chosen("remote:http://h:1/v1#org/m"), remote);
    for wrong in ["llama:", "remote:http://h", "remote:h#m", "direct:", "fixed"] {
        assert_eq!(problems(&[], &[("conductor", wrong)]).len(), 1, "{wrong}");
    }
}

#[test]
fn who_is_to_follow_has_a_share() {
    let flags = [("conductor_next", "fixed:b.yaml"), ("conductor_next_share", "0.25")];
    let next = settings(&[], &flags).conductors.next.unwrap();
    assert_eq!(next.0, ConductorChoice::Fixed("b.yaml".into()));
    assert_eq!(next.1, podium_domain::share::Share::new(0.25).unwrap());
    for wrong in [("conductor_next", "auto"), ("conductor_next_share", "2"), ("conductor_next_share", "a")] {
        assert_eq!(problems(&[], &[wrong]).len(), 1, "{wrong:?}");
    }
}

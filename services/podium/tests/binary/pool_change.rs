//! A running server follows its pool file.

use std::path::Path;

use podium_api::v1;
use podium_vendor_sim::{Behaviour, Fault, Options, ScriptedFault, VendorSim};

use crate::support::{Folder, Server, asking, soon};

/// The pool file with this version, without the worker `without`.
fn changed(pool: &Path, version: &str, without: &str) -> String {
    let mut pool: toml::Table = std::fs::read_to_string(pool).unwrap().parse().unwrap();
    pool.insert("version".to_owned(), version.into());
    let workers = pool["workers"].as_array_mut().unwrap();
    workers.retain(|worker| worker["id"].as_str() != Some(without));
    pool.to_string()
}

async fn ended(server: &Server, run_id: String) -> v1::Run {
    let mut client = server.client().await;
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(watch).await.unwrap().into_inner();
    let end = async { while updates.message().await.unwrap().is_some() {} };
    soon("the run has ended", end).await;
    client.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap()
}

async fn created(server: &Server) -> String {
    let request = v1::CreateRunRequest {
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: "2 + 3".to_owned(),
            ..Default::default()
        }],
        // No other worker helps a call that hangs.
        policy: Some(v1::Policy { fallback: v1::Fallback::None.into(), ..Default::default() }),
        ..asking()
    };
    server.client().await.create_run(request).await.unwrap().into_inner().run.unwrap().run_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_pool_is_used_for_new_runs_and_an_invalid_one_is_not() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let stall = ScriptedFault::next_calls(Fault::Hang, 1);
    sim.set_behaviour("sim-arithmetic", Behaviour { faults: vec![stall], ..Behaviour::default() }).unwrap();
    let folder = Folder::new();
    let pool = folder.pool(&sim.base_url());
    let server = Server::start_with(&folder.path("data"), &pool, "direct:sim-arithmetic");
    let first = created(&server).await;
    soon("the first run calls", sim.wait_for(|calls| !calls.is_empty())).await;

    // The conductor needs the worker that this file lacks.
    std::fs::write(&pool, changed(&pool, "2", "sim-arithmetic")).unwrap();
    let refused = server.signal("HUP", "the settings are invalid");
    assert!(refused.contains("sim-arithmetic") && refused.contains("the earlier ones stay"), "{refused}");
    assert_eq!(ended(&server, created(&server).await).await.pool, "demo-1");

    // Without a signal, as a new ConfigMap arrives: the file becomes a link to another one.
    let original = folder.pool(&sim.base_url());
    let next = folder.write("next.toml", &changed(&original, "3", "sim-words"));
    let link = folder.path("link");
    std::os::unix::fs::symlink(&next, &link).unwrap();
    std::fs::rename(&link, &pool).unwrap();
    let logged = server.logged("the pool changed");
    assert!(
        logged.contains("\"removed\":\"sim-words\"") && logged.contains("\"pool\":\"demo-3\""),
        "{logged}"
    );
    let run = ended(&server, created(&server).await).await;
    assert_eq!((run.pool.as_str(), run.answer.as_deref()), ("demo-3", Some("5")));

    // The call that began before both changes is still under way; it is not repeated.
    let of_first = server.client().await.get_run(v1::GetRunRequest { run_id: first.clone() }).await.unwrap();
    assert_eq!(of_first.into_inner().run.unwrap().state(), v1::RunState::Active);
    let cancel = v1::CancelRunRequest { run_id: first.clone() };
    server.client().await.cancel_run(cancel).await.unwrap();
    let run = ended(&server, first).await;
    assert_eq!((run.pool.as_str(), run.rounds[0].steps[0].attempts.len()), ("demo-1", 1));
    let (status, _) = server.terminate();
    assert!(status.success());
}

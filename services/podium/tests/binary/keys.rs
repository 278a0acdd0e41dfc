//! Keys and budgets as an operator and two tenants use them, on a server that runs.

use std::path::Path;

use podium_api::v1;
use podium_vendor_sim::{Options, VendorSim};
use tonic::{Code, Request, Status};

use crate::support::{ANSWER, Folder, Server, asking, podium, run, soon, stderr, stdout};

/// A request with a key.
fn by<T>(key: &str, request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

fn operate(data: &Path, arguments: &[&str]) -> String {
    let output = run(&[arguments, &["--data", data.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).trim().to_owned()
}

fn code_and_message(status: Result<impl std::fmt::Debug, Status>) -> (Code, String) {
    let status = status.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_separate_and_a_budget_is_enforced() {
    let (folder, sim) = (Folder::new(), VendorSim::start(Options::loopback(7)).await.unwrap());
    let (data, pool) = (folder.path("data"), folder.pool(&sim.base_url()));
    let server = Server::start(&data, &pool, &folder.workflow());
    let mut client = server.client().await;
    let [acme, birch] = ["acme", "birch"].map(|name| operate(&data, &["key", "create", "--tenant", name]));

    let created = client.create_run(by(&acme, asking())).await.unwrap().into_inner();
    let run_id = created.run.unwrap().run_id;
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(by(&acme, watch.clone())).await.unwrap().into_inner();
    soon("the run ends", async { while updates.message().await.unwrap().is_some() {} }).await;
    let get = v1::GetRunRequest { run_id: run_id.clone() };
    let found = client.get_run(by(&acme, get.clone())).await.unwrap().into_inner().run.unwrap();
    assert_eq!(found.answer.as_deref(), Some(ANSWER));

    // The run does not exist for another tenant, nor for a caller without a key.
    let unknown = (Code::NotFound, format!("run `{run_id}` does not exist"));
    assert_eq!(code_and_message(client.get_run(by(&birch, get.clone())).await), unknown);
    assert_eq!(code_and_message(client.get_run(get).await), unknown);
    assert_eq!(code_and_message(client.watch_run(by(&birch, watch)).await), unknown);
    let cancel = v1::CancelRunRequest { run_id };
    assert_eq!(code_and_message(client.cancel_run(by(&birch, cancel)).await), unknown);
    for (key, expected) in [(&acme, 1), (&birch, 0)] {
        let list = client.list_runs(by(key, v1::ListRunsRequest::default())).await.unwrap().into_inner();
        assert_eq!(list.runs.len(), expected);
    }
    let wrong = format!("pdm_{}", "0".repeat(64));
    assert_eq!(code_and_message(client.create_run(by(&wrong, asking())).await).0, Code::Unauthenticated);

    let calls = sim.calls().len();
    let thrifty =
        operate(&data, &["key", "create", "--tenant", "acme", "--budget-usd", "0.000001", "--period", "day"]);
    let (code, message) = code_and_message(client.create_run(by(&thrifty, asking())).await);
    assert_eq!(code, Code::ResourceExhausted, "{message}");
    assert!(message.starts_with("budget `key:key_"), "{message}");
    assert!(message.contains("of $0.000001 has $0.000000 spent"), "{message}");
    assert_eq!(sim.calls().len(), calls, "no worker was called");
    let budgets = client.list_budgets(by(&thrifty, v1::ListBudgetsRequest {})).await.unwrap().into_inner();
    assert_eq!(budgets.budgets[0].cap_nano_usd, Some(1_000));
    assert!(operate(&data, &["budget", "show", "--tenant", "acme"]).contains("of $0.000001 (day)"));

    let shown = operate(&data, &["budget", "show", "--tenant", "acme"]);
    let id = shown.split_whitespace().next().unwrap().strip_prefix("key:").unwrap();
    let correct = |arguments: &[&str]| {
        operate(&data, &[&["budget", "correct", "--tenant", "acme", "--key", id][..], arguments].concat())
    };
    assert!(correct(&["--spent-usd", "0.5"]).contains("$0.500000 spent, $0.000000 reserved"));
    assert!(
        correct(&["--spent-usd", "-0.75", "--reserved-usd=-1"])
            .contains("$0.000000 spent, $0.000000 reserved")
    );

    let mine = |key: &str| {
        let url = format!("http://{}", server.grpc);
        let output =
            podium(&["budget", "mine", "--server", &url]).env("PODIUM_API_KEY", key).output().unwrap();
        (stdout(&output), stderr(&output))
    };
    let (told, _) = mine(&thrifty);
    assert!(
        told.starts_with("key:key_") && told.contains("$0.000000 spent") && told.lines().count() == 1,
        "{told}"
    );
    assert!(mine(&birch).1.contains("neither your tenant nor your key has a budget"));
}

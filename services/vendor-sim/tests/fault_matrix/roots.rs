//! A vendor whose certificates are signed by an authority of its own, which its entry in the pool names.

use std::collections::BTreeMap;
use std::path::Path;

use futures::TryStreamExt;
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::Pool;
use podium_ports::vendor::{ChatRequest, Vendors};
use podium_vendors::HttpVendors;

use crate::authority::Paper;
use crate::house::House;

fn pool(house: &House, paper: Paper, roots: Option<&Path>) -> Pool {
    let address = house.authority.door(paper);
    let roots = roots.map_or(String::new(), |path| format!("root_certificates = \"{}\"", path.display()));
    let toml = format!(
        r#"
        schema = 1
        name = "roots"
        version = "1"
        [[vendors]]
        id = "own"
        api = "openai-chat"
        base_url = "https://{address}/v1"
        {roots}
        [[workers]]
        id = "own"
        vendor = "own"
        model = "sim-echo"
        description = "repeats its question"
        context_tokens = 8192
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        "#
    );
    Pool::parse(&toml).unwrap()
}

async fn call(pool: &Pool) -> Result<(), String> {
    let vendors = HttpVendors::new(pool, &BTreeMap::new()).map_err(|error| error.to_string())?;
    let request = ChatRequest::new(vec![Message::new(Role::User, "Who is there?")], 64);
    let answer = vendors.chat(&pool.workers()[0], &request).await.map_err(|error| error.to_string())?;
    answer.try_collect::<Vec<_>>().await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vendor_is_trusted_by_the_authority_that_its_entry_names() {
    let house = House::new().await;
    let own = Some(house.authority.certificate());
    assert_eq!(call(&pool(&house, Paper::Sound, own)).await, Ok(()));
    for (paper, roots) in [(Paper::Sound, None), (Paper::OfNobodyKnown, own), (Paper::Expired, own)] {
        let refused = call(&pool(&house, paper, roots)).await.unwrap_err();
        assert!(refused.contains("its certificate"), "{paper:?}: {refused}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_named_at_the_start() {
    let house = House::new().await;
    let empty = tempfile::NamedTempFile::new().unwrap();
    for (path, problem) in
        [(empty.path(), "holds no PEM certificate"), (Path::new("/nowhere/ca.pem"), "cannot be read")]
    {
        let error = call(&pool(&house, Paper::Sound, Some(path))).await.unwrap_err();
        assert!(error.starts_with("vendor `own`: root_certificates "), "{error}");
        assert!(error.contains(&path.display().to_string()) && error.contains(problem), "{error}");
    }
}

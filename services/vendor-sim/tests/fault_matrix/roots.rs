//! A vendor whose certificates are signed by a private authority, which its pool entry names.

use std::collections::BTreeMap;
use std::path::Path;

use futures::TryStreamExt;
use podium_domain::conversation::{Message, Role};
use podium_domain::pool::Pool;
use podium_ports::vendor::{ChatRequest, Vendors};
use podium_vendors::HttpVendors;

use crate::authority::Certificate;
use crate::house::House;

fn pool(house: &House, kind: Certificate, roots: Option<&Path>) -> Pool {
    let address = house.authority.listener(kind);
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
async fn a_vendor_is_trusted_by_its_own_authority() {
    let house = House::new().await;
    let own = Some(house.authority.certificate());
    assert_eq!(call(&pool(&house, Certificate::Valid, own)).await, Ok(()));
    for (kind, roots) in
        [(Certificate::Valid, None), (Certificate::UnknownAuthority, own), (Certificate::Expired, own)]
    {
        let refused = call(&pool(&house, kind, roots)).await.unwrap_err();
        assert!(refused.contains("its certificate"), "{kind:?}: {refused}");
    }
}

#[tokio::test]
async fn unusable_certificates_are_reported_at_start() {
    let house = House::new().await;
    let empty = tempfile::NamedTempFile::new().unwrap();
    for (path, problem) in
        [(empty.path(), "holds no PEM certificate"), (Path::new("/nowhere/ca.pem"), "cannot be read")]
    {
        let error = call(&pool(&house, Certificate::Valid, Some(path))).await.unwrap_err();
        assert!(error.starts_with("vendor `own`: root_certificates "), "{error}");
        assert!(error.contains(&path.display().to_string()) && error.contains(problem), "{error}");
    }
}

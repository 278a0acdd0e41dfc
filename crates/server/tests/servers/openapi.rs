//! The `OpenAPI` document.

use podium_api::openapi::ROUTES;
use podium_ports::server::ServerLimits;

use crate::test_server::TestServer;

#[tokio::test]
async fn the_document_is_served_and_each_of_its_routes_exists() {
    let server = TestServer::open(ServerLimits::default()).await;
    let document = server.send("GET /openapi.json", "", "").await;
    assert_eq!((document.status, &document.json()["openapi"]), (200, &serde_json::json!("3.1.0")));
    let paths = document.json()["paths"].clone();
    for route in ROUTES {
        assert!(paths[route.path][route.method.to_ascii_lowercase()].is_object(), "{route:?}");
        let path = route.path.replace("{id}", "x").replace("{item}", "y");
        let body = if route.method == "POST" { "{}" } else { "" };
        let reply = server.send(&format!("{} {path}", route.method), "", body).await;
        let code = if reply.status < 400 { String::new() } else { reply.code() };
        assert!(!["unknown_url", "method_not_allowed"].contains(&code.as_str()), "{route:?}: {reply:?}");
    }
}

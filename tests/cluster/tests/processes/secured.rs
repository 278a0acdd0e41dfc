//! Postgres, NATS and Redis with encryption and authentication.

use std::path::Path;
use std::time::Duration;

use podium_harness::{Authority, Identity, Nats, Postgres, Redis, Secured, Service};
use podium_local_cluster::Shape;
use tempfile::TempDir;

use crate::client::Client;
use crate::http::get;

/// A password that no process may ever log.
const PASSWORD: &str = "correct-horse/battery@staple:9";
/// Longest time for a process to connect or to fail.
const PATIENCE: Duration = Duration::from_secs(30);

type Settings = Vec<(&'static str, String)>;

/// Servers with certificates for `127.0.0.1`, and the folder of their secrets.
struct Servers {
    authority: Authority,
    postgres: Postgres,
    database: String,
    nats: Nats,
    redis: Redis,
    secrets: TempDir,
}

impl Servers {
    async fn start() -> Self {
        let authority = Authority::new().unwrap();
        let own = |name| authority.issue(name, &["127.0.0.1"]).unwrap();
        let secured = Secured { authority: &authority, own: &own("postgres"), password: PASSWORD };
        let postgres = Postgres::start_secured(secured).await.unwrap();
        let database = postgres.database().await.unwrap();
        let Identity { certificate, key } = own("nats");
        let configuration = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", timeout: 5 }}
             authorization {{ users: [{{user: podium, password: \"{PASSWORD}\"}}] }}",
            certificate.display(),
            key.display()
        );
        let nats = Nats::start_configured(&configuration).await.unwrap();
        let redis = Redis::start_secured(&authority, &own("redis"), PASSWORD).await.unwrap();
        let secrets = tempfile::tempdir().unwrap();
        std::fs::write(secrets.path().join("right"), format!("{PASSWORD}\n")).unwrap();
        std::fs::write(secrets.path().join("wrong"), "wrong").unwrap();
        Self { authority, postgres, database, nats, redis, secrets }
    }

    fn secret(&self, which: &str) -> String {
        format!("file:{}", self.secrets.path().join(which).display())
    }

    /// Settings with which a process can connect to all servers.
    fn settings(&self) -> Settings {
        let root = text(&self.authority.root());
        let redis = self.redis.tls_address().unwrap();
        vec![
            ("postgres", self.database.replace("postgres@", "podium@")),
            ("postgres_root_certificates", root.clone()),
            ("postgres_password", self.secret("right")),
            ("nats", format!("tls://podium@{}", self.nats.address())),
            ("nats_root_certificates", root.clone()),
            ("nats_password", self.secret("right")),
            ("redis", format!("rediss://podium@{redis}")),
            ("redis_root_certificates", root),
            ("redis_password", self.secret("right")),
        ]
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Restarts the executor with these settings instead of its own, without waiting. Returns its later log.
async fn start_again(
    executor: &mut Service,
    settings: impl IntoIterator<Item = &(&'static str, String)>,
) -> usize {
    executor.kill().await.unwrap();
    let settings = settings.into_iter();
    executor.add_arguments(settings.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
    let logged = executor.log().len();
    executor.start_unready().await.unwrap();
    logged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_works_over_tls_and_logs_no_password() {
    let servers = Servers::start().await;
    let mut settings = servers.settings();
    settings.push(("log", "debug".to_owned()));
    let mut cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct") }).await;
    let ended = Client::new(vec![cluster.gateways[0].address(1)], 7).ask().await;
    assert!(ended.answer.is_some(), "{:?}", ended.faults);
    let connections =
        servers.postgres.execute("postgres", "SELECT count(*) FROM pg_stat_ssl WHERE ssl").await;
    assert!(connections.unwrap().parse::<u32>().unwrap() >= 3, "each process has an encrypted connection");
    for service in cluster.services() {
        let log = service.log();
        assert!(log.len() > 1_000, "{log}");
        assert!(!log.contains(PASSWORD) && !log.contains("battery"), "{log}");
    }
    // A user with a certificate and no password.
    let Identity { certificate, key } = servers.authority.issue("podium_certified", &[]).unwrap();
    let certified = vec![
        ("postgres", servers.database.replace("postgres@", "podium_certified@")),
        ("postgres_client_certificate", text(&certificate)),
        ("postgres_client_key", text(&key)),
        ("redis_client_certificate", text(&certificate)),
        ("redis_client_key", text(&key)),
    ];
    let executor = &mut cluster.executors[0];
    start_again(executor, &certified).await;
    let address = executor.address(0);
    let ready = async || get(address, "/readyz").await.filter(|(status, _)| *status == 200);
    crate::until("a client certificate is accepted", PATIENCE, ready).await;
    cluster.stop().await.unwrap();
}

/// Wrong settings, and the message for each.
fn mistakes(servers: &Servers, stranger: &Path) -> Vec<(Settings, &'static str)> {
    let (database, nats) = (servers.database.replace("postgres@", "podium@"), servers.nats.address());
    let redis = servers.redis.tls_address().unwrap();
    let (root, wrong) = (text(stranger), servers.secret("wrong"));
    let at_localhost = |address: String| address.replace("127.0.0.1", "localhost");
    let only = |key, value: &str| vec![(key, value.to_owned())];
    vec![
        (only("postgres_root_certificates", &root), "postgres_root_certificates must name"),
        (only("postgres", &at_localhost(database.clone())), "for another host than the one in `postgres`"),
        (only("postgres_password", &wrong), "postgres_password, or the user in `postgres`, is wrong"),
        (only("postgres", &format!("{database}?sslmode=disable")), "sslmode"),
        (only("nats_root_certificates", &root), "`root_certificates` lacks"),
        (
            only("nats", &at_localhost(format!("tls://podium@{nats}"))),
            "for another host than the one in the address",
        ),
        (only("nats_password", &wrong), "the user, password, token, nkey or credentials are wrong"),
        (only("redis_root_certificates", &root), "redis_root_certificates must name"),
        (
            only("redis", &at_localhost(format!("rediss://podium@{redis}"))),
            "for another host than the one in `redis`",
        ),
        (only("redis_password", &wrong), "redis_password, or the user in `redis`, is wrong"),
        (
            only("redis", &format!("rediss://nobody@{redis}")),
            "redis_password, or the user in `redis`, is wrong",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_connection_names_the_reason_and_the_setting() {
    let servers = Servers::start().await;
    let stranger = Authority::new().unwrap();
    let mistakes = mistakes(&servers, &stranger.root());
    let shape = Shape { settings: servers.settings(), ..Shape::new(0, 0, 1, "direct") };
    let mut cluster = crate::start(&shape).await;
    let executor = &mut cluster.executors[0];
    for (settings, says) in mistakes {
        let logged = start_again(executor, servers.settings().iter().chain(&settings)).await;
        let said = async || executor.log()[logged..].contains(says).then_some(());
        let known = tokio::time::timeout(PATIENCE, crate::until(says, 2 * PATIENCE, said)).await;
        assert!(known.is_ok(), "{says}: {}", &executor.log()[logged..]);
        if settings[0].0.starts_with("postgres") {
            assert_ne!(executor.ended().await.unwrap(), 0);
        } else {
            let (status, body) = get(executor.address(0), "/readyz").await.unwrap();
            assert_eq!(status, 503, "{body}");
        }
        assert!(!executor.log().contains(PASSWORD), "{}", executor.log());
    }
    start_again(executor, &servers.settings()).await;
    let address = executor.address(0);
    let ready = async || get(address, "/readyz").await.filter(|(status, _)| *status == 200);
    crate::until("it connects with the right settings", PATIENCE, ready).await;
    cluster.stop().await.unwrap();
}

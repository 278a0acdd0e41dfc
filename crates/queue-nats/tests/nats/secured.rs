//! Servers with encryption and authentication.

use std::path::PathBuf;
use std::time::Duration;

use nkeys::KeyPair;
use podium_harness::{Authority, Identity, Nats};
use podium_ports::queue::StepQueue as _;
use podium_queue_nats::{AtStart, ConnectionOptions, NatsQueue, QueueOptions, SignIn};

const PASSWORD: &str = "correct-horse";

/// A server whose certificate is valid for `localhost` and `127.0.0.1`.
async fn start(authority: &Authority, more: &str) -> Nats {
    let own = authority.issue("nats", &["localhost", "127.0.0.1"]).unwrap();
    let file = |path: &PathBuf| path.display().to_string();
    let (root, certificate, key) = (file(&authority.root()), file(&own.certificate), file(&own.key));
    let tls = format!("cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{root}\", timeout: 5");
    let more = more.replace("TLS", &tls);
    Nats::start_configured(&more).await.unwrap()
}

fn options(nats: &Nats, authority: &Authority, sign_in: SignIn) -> ConnectionOptions {
    ConnectionOptions {
        sign_in,
        root_certificates: Some(authority.root()),
        at_start: AtStart::Retry,
        ..ConnectionOptions::new(format!("tls://{}", nats.address()))
    }
}

fn password(user: &str, password: &str) -> SignIn {
    SignIn::Password { user: user.to_owned(), password: password.into() }
}

/// The queue's first answer over a connection, or its whole error chain.
async fn answer(connection: &ConnectionOptions) -> Result<(), String> {
    let queue = NatsQueue::connect(connection, QueueOptions::default()).await.unwrap();
    let mut answer = Ok(());
    // The first answer may come before the first attempt has failed.
    for _ in 0..3 {
        answer = queue.ping().await.map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        });
        if answer.as_ref().err().is_none_or(|said| said.contains("is unreachable")) {
            break;
        }
    }
    queue.close().await;
    answer
}

async fn is_refused(connection: ConnectionOptions, says: &str) {
    let connection = ConnectionOptions { call_max: Duration::from_millis(500), ..connection };
    let said = answer(&connection).await.unwrap_err();
    assert!(said.contains(says) && !said.contains(PASSWORD), "{says}: {said}");
}

#[tokio::test]
async fn wrong_credentials_are_refused_with_the_option_to_check() {
    let authority = Authority::new().unwrap();
    let key = KeyPair::new_user();
    let users = format!(
        "tls {{ TLS }}\nauthorization {{ users: [{{user: podium, password: \"{PASSWORD}\"}}, {{nkey: {}}}] }}",
        key.public_key()
    );
    let nats = start(&authority, &users).await;
    let right = password("podium", PASSWORD);
    assert_eq!(answer(&options(&nats, &authority, right.clone())).await, Ok(()));
    let seed = SignIn::NKey(key.seed().unwrap().into());
    assert_eq!(answer(&options(&nats, &authority, seed)).await, Ok(()));
    // A client without `tls://` encrypts its connection if the server requires it.
    let mut plain = options(&nats, &authority, right.clone());
    plain.servers = vec![nats.url()];
    assert_eq!(answer(&plain).await, Ok(()));

    is_refused(options(&nats, &authority, password("podium", "wrong")), "the user, password").await;
    is_refused(options(&nats, &authority, SignIn::Anonymous), "the user, password").await;
    let other = SignIn::NKey(KeyPair::new_user().seed().unwrap().into());
    is_refused(options(&nats, &authority, other), "the user, password").await;
    is_refused(options(&nats, &authority, SignIn::NKey(PASSWORD.into())), "the seed is invalid").await;
    let stranger = Authority::new().unwrap();
    is_refused(options(&nats, &stranger, right.clone()), "`root_certificates`").await;
    let mut elsewhere = options(&nats, &authority, right);
    elsewhere.servers = vec![format!("tls://127.0.0.2:{}", nats.address().port())];
    // The server listens on 127.0.0.1 only, so this one is unreachable.
    is_refused(elsewhere, "is unreachable: 127.0.0.2").await;
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused() {
    let authority = Authority::new().unwrap();
    let own = authority.issue("elsewhere", &["elsewhere.example"]).unwrap();
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", timeout: 5 }}",
        own.certificate.display(),
        own.key.display()
    );
    let nats = Nats::start_configured(&tls).await.unwrap();
    is_refused(options(&nats, &authority, SignIn::Anonymous), "for another host").await;
}

#[tokio::test]
async fn a_token_and_a_client_certificate_are_accepted() {
    let authority = Authority::new().unwrap();
    let nats =
        start(&authority, "tls { TLS, verify: true }\nauthorization { token: \"correct-horse\" }").await;
    let token = SignIn::Token(PASSWORD.into());
    let Identity { certificate, key } = authority.issue("podium", &[]).unwrap();
    let certified = ConnectionOptions {
        client_certificate: Some((certificate, key)),
        ..options(&nats, &authority, token.clone())
    };
    assert_eq!(answer(&certified).await, Ok(()));
    is_refused(options(&nats, &authority, token), "is unreachable").await;
    let wrong = ConnectionOptions { sign_in: SignIn::Token("wrong".into()), ..certified };
    is_refused(wrong, "token").await;
}

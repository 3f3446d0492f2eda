//! The client against a server on this machine.

use super::testing::{CERTIFICATE, Server};
use super::*;

fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

#[tokio::test]
async fn requests_share_a_connection() {
    let server = Server::start(|request| {
        let (host, path) = (&request.headers()["host"], request.uri());
        let told = format!("{} {path} {:?}", host.to_str().unwrap(), request.body());
        Response::new(told.into())
    })
    .await;
    let client = Client::new(Options::default());
    for _ in 0..3 {
        let request = Request::post(format!("{}/a?b=1", server.url));
        let answer = client.send(request.body("hello".into()).unwrap()).await;
        let host = server.url.trim_start_matches("http://");
        assert_eq!(
            answer.unwrap().into_body(),
            format!("{host} /a?b=1 b\"hello\"")
        );
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used_again() {
    let server = Server::start(|_| {
        let answer = Response::builder().header("connection", "close");
        answer.body(Bytes::new()).unwrap()
    })
    .await;
    let client = Client::new(Options::default());
    for _ in 0..3 {
        client.send(get(&server.url)).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn an_answer_is_bounded() {
    let server = Server::start(|_| Response::new(vec![0; 100].into())).await;
    let client = Client::new(Options {
        answer_bytes_max: 99,
        ..Options::default()
    });
    let answer = client.send(get(&server.url)).await;
    assert!(matches!(answer, Err(HttpError::TooLong { max: 99, .. })));
}

#[tokio::test]
async fn nobody_there_and_no_address_are_told_apart() {
    let client = Client::new(Options::default());
    // Bound and dropped: no server listens there now.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let answer = client.send(get(&format!("http://127.0.0.1:{port}/"))).await;
    assert!(matches!(answer, Err(HttpError::Connect { .. })));
    for wrong in ["/path", "ftp://example.org/"] {
        let answer = client.send(get(wrong)).await;
        assert!(matches!(answer, Err(HttpError::Request(_))), "{wrong}");
    }
}

#[tokio::test]
async fn silence_ends_at_the_time_limit() {
    // Accepts connections and never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new(Options {
        timeout: Duration::from_millis(20),
        ..Options::default()
    });
    let answer = client.send(get(&url)).await;
    assert!(matches!(answer, Err(HttpError::TimedOut { .. })));
}

#[tokio::test]
async fn a_certificate_is_believed_when_we_were_told_to() {
    let server = Server::start_tls(|_| Response::new("secret".into())).await;
    let client = Client::new(Options {
        ca: Some(CERTIFICATE.into()),
        ..Options::default()
    });
    let answer = client.send(get(&server.url)).await.unwrap();
    assert_eq!(answer.into_body(), "secret");
    let stranger = Client::new(Options::default());
    let refused = stranger.send(get(&server.url)).await;
    assert!(matches!(refused, Err(HttpError::Connect { .. })));
}

// proves G3
#[tokio::test]
async fn a_host_that_the_egress_policy_refuses_is_not_connected_to() {
    let server = Server::start(|_| Response::new(Bytes::new())).await;
    let client = Client::new(Options {
        egress: EgressPolicy::default().restricted(),
        ..Options::default()
    });
    let answer = client.send(get(&server.url)).await;
    let Err(HttpError::Request(reason)) = answer else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("egress.allow"), "{reason}");
    assert_eq!(server.connections(), 0);
}

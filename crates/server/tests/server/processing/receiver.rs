//! A webhook that records its requests and answers as the test says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::processing::secure;

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Request {
    pub(crate) fn id(&self) -> &str {
        self.headers.get("highwater-id").map_or("", String::as_str)
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.headers["highwater-attempt"].parse().unwrap()
    }
}

/// What to answer, or nothing at all for a hang.
pub(crate) type Behaviour = Arc<dyn Fn(&Request) -> Option<&'static str> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Receiver {
    pub address: SocketAddr,
    scheme: &'static str,
    ledger: Arc<Mutex<Vec<Request>>>,
    behaviour: Arc<Mutex<Behaviour>>,
    came: Arc<Notify>,
}

pub(crate) const OK: Option<&str> = Some("200 OK");

impl Receiver {
    pub(crate) async fn start(
        behaviour: impl Fn(&Request) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::listen(None, behaviour).await
    }

    /// The same over TLS.
    pub(crate) async fn start_tls(
        behaviour: impl Fn(&Request) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::listen(Some(secure::acceptor()), behaviour).await
    }

    async fn listen(
        tls: Option<TlsAcceptor>,
        behaviour: impl Fn(&Request) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = listener.local_addr().unwrap();
        let ledger = Arc::<Mutex<Vec<Request>>>::default();
        let behaviour: Arc<Mutex<Behaviour>> = Arc::new(Mutex::new(Arc::new(behaviour)));
        let came = Arc::new(Notify::new());
        let (noted, behave, rung) = (ledger.clone(), behaviour.clone(), came.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (noted, behave, rung) = (noted.clone(), behave.clone(), rung.clone());
                let Some(tls) = tls.clone() else {
                    tokio::spawn(serve(stream, noted, behave, rung));
                    continue;
                };
                tokio::spawn(async move {
                    // A client that does not trust the certificate closes the connection.
                    let stream = tls.accept(stream).await.ok()?;
                    serve(stream, noted, behave, rung).await
                });
            }
        });
        Receiver {
            address,
            scheme,
            ledger,
            behaviour,
            came,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/hook?a=b", self.scheme, self.address)
    }

    pub(crate) fn behave(
        &self,
        behaviour: impl Fn(&Request) -> Option<&'static str> + Send + Sync + 'static,
    ) {
        *self.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    pub(crate) fn ledger(&self) -> Vec<Request> {
        self.ledger.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.ledger.lock().unwrap().len()
    }

    /// Waits until the ledger passes the check.
    pub(crate) async fn until(&self, passes: impl Fn(&[Request]) -> bool) -> Vec<Request> {
        let waiting = async {
            loop {
                let came = self.came.notified();
                if passes(&self.ledger.lock().unwrap()) {
                    return self.ledger();
                }
                came.await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        found.unwrap_or_else(|_| panic!("it did not come to that: {:#?}", self.ledger()))
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    ledger: Arc<Mutex<Vec<Request>>>,
    behaviour: Arc<Mutex<Behaviour>>,
    came: Arc<Notify>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream
            .read_line(&mut line)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        let mut headers = HashMap::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers
            .get("content-length")
            .map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let request = Request {
            line: line.trim_end().to_owned(),
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let behave = behaviour.lock().unwrap().clone();
        let answer = behave(&request);
        ledger.lock().unwrap().push(request);
        came.notify_waiters();
        let Some(answer) = answer else {
            std::future::pending::<()>().await;
            return None;
        };
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).await.ok()?;
    }
}

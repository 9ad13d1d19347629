//! Serving the API to other processes: TLS, connections with limits, kubeconfig.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::auth::authenticate::Peer;
use crate::server::{Error, Handle};
use crate::tls;

/// A client that has not finished its handshake or request head by then is dropped.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 20_000;

/// Where the server listens.
#[derive(Debug, Clone)]
pub struct Listening {
    pub address: SocketAddr,
    ca_pem: String,
    token: String,
}

impl Handle {
    /// Serves the API over TLS on `address`, until [`Handle::shutdown`].
    pub async fn serve(&self, address: SocketAddr) -> Result<Listening, Error> {
        let failed = |source| Error::File { path: address.to_string(), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let config = self.authority.server_config(&names(address.ip()))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(accept(self.clone(), listener, acceptor));
        Ok(Listening { address, ca_pem: self.ca_pem().to_owned(), token: self.admin_token().to_owned() })
    }
}

impl Listening {
    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self) -> String {
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let (server, token) = (self.url(), &self.token);
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: embedded\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {ca}\nusers:\n- name: kubernetes-admin\n  user:\n    token: {token}\ncontexts:\n- \
             name: embedded\n  context:\n    cluster: embedded\n    user: kubernetes-admin\ncurrent-context: embedded\n"
        )
    }

    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Writes the kubeconfig so that only its owner may read it.
    pub fn write_kubeconfig(&self, path: &std::path::Path) -> Result<(), Error> {
        let failed = |source| Error::File { path: path.display().to_string(), source };
        tls::write_private(path, self.kubeconfig().as_bytes()).map_err(failed)
    }
}

fn names(ip: IpAddr) -> Vec<String> {
    let mut names: Vec<String> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "::1"]
            .map(str::to_owned)
            .to_vec();
    let own = ip.to_string();
    if !ip.is_unspecified() && !names.contains(&own) {
        names.push(own);
    }
    names
}

async fn accept(handle: Handle, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut stopped = handle.stop.subscribe();
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match connection {
            Ok((stream, _)) => {
                let (handle, acceptor) = (handle.clone(), acceptor.clone());
                tokio::spawn(async move {
                    serve_connection(handle, acceptor, stream).await;
                    drop(place);
                });
            }
            // Out of file descriptors, perhaps: give connections time to end.
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(handle: Handle, acceptor: TlsAcceptor, stream: TcpStream) {
    // Small answers must not wait for each other.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(tls)) = tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await else { return };
    let certificate =
        tls.get_ref().1.peer_certificates().and_then(|list| list.first()).and_then(tls::certificate_user);
    let service =
        handle.public_service().map_request(move |mut request: http::Request<hyper::body::Incoming>| {
            if let Some(user) = &certificate
                && !request.headers().contains_key(http::header::AUTHORIZATION)
            {
                request.extensions_mut().insert(Peer(user.clone()));
            }
            request
        });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(hyper_util::rt::TokioTimer::new()).max_concurrent_streams(1000);
    let connection = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let mut stopped = handle.stop.subscribe();
    let stopping = tokio::select! {
        // A client that goes away mid-request is no failure of the server.
        _ = connection.as_mut() => false,
        _ = stopped.wait_for(|stop| *stop) => true,
    };
    if stopping {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(Duration::from_secs(5), connection).await;
    }
}

//! The file server that upstream's consumers and the CLI download artifacts from. Read only.

use std::io::SeekFrom;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LAST_MODIFIED, RANGE};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::routing::get;
use file_tree::TreePath;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::storage::Storage;

/// Serves the storage until the process ends.
pub async fn serve(storage: Arc<Storage>, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    axum::serve(listener, router(storage)).await
}

pub fn router(storage: Arc<Storage>) -> Router {
    // The root answers too: it is what upstream's readiness probe asks for.
    Router::new().route("/", get(root)).route("/{*path}", get(file)).with_state(storage)
}

/// The address to give to others for a listener on `address`.
pub fn advertised(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned());
        return format!("{host}:{}", address.port());
    }
    address.to_string()
}

async fn root(State(storage): State<Arc<Storage>>) -> Response<Body> {
    listing(storage.root()).await.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))
}

/// The names in a folder as links, as Go's file server writes them; our own names are not among them.
async fn listing(folder: &std::path::Path) -> std::io::Result<Response<Body>> {
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if entry.file_type().await?.is_dir() {
            name.push('/');
        }
        names.push(name);
    }
    names.sort();
    let lines: String =
        names.iter().map(|name| format!("<a href=\"{0}\">{0}</a>\n", escaped(name))).collect();
    let mut response = Response::new(Body::from(format!("<!doctype html>\n<pre>\n{lines}</pre>\n")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Ok(response)
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

async fn file(
    State(storage): State<Arc<Storage>>,
    Path(path): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response<Body> {
    // Names with a leading dot are ours alone.
    let safe = TreePath::parse(&path).ok().filter(|path| path.parts().all(|part| !part.starts_with('.')));
    let Some(safe) = safe else {
        return plain(StatusCode::NOT_FOUND);
    };
    let on_disk = storage.root().join(safe.as_str());
    if tokio::fs::metadata(&on_disk).await.is_ok_and(|metadata| metadata.is_dir()) {
        return listing(&on_disk).await.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR));
    }
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    match open(on_disk, asked, method == Method::HEAD).await {
        Ok(response) => response,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => plain(StatusCode::NOT_FOUND),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn open(path: PathBuf, asked: Option<&str>, head: bool) -> std::io::Result<Response<Body>> {
    let mut file = File::open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    let size = metadata.len();
    let range = match asked.map(|text| range(text, size)) {
        Some(Some(range)) => Some(range),
        Some(None) => {
            let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE);
            if let Ok(value) = format!("bytes */{size}").parse() {
                response.headers_mut().insert(CONTENT_RANGE, value);
            }
            return Ok(response);
        }
        None => None,
    };
    let (start, length) = range.unwrap_or((0, size));
    file.seek(SeekFrom::Start(start)).await?;
    let mut builder = Response::builder()
        .status(if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK })
        .header(ACCEPT_RANGES, "bytes")
        .header(CONTENT_LENGTH, length)
        .header(CONTENT_TYPE, "application/octet-stream");
    if let Ok(modified) = metadata.modified() {
        builder = builder.header(LAST_MODIFIED, http_date(modified));
    }
    if range.is_some() {
        builder = builder.header(CONTENT_RANGE, format!("bytes {start}-{}/{size}", start + length - 1));
    }
    let body = if head { Body::empty() } else { Body::from_stream(ReaderStream::new(file.take(length))) };
    builder.body(body).map_err(std::io::Error::other)
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n` → start and length; `None` when it cannot be satisfied.
fn range(text: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (from, to) {
        ("", tail) => (size.saturating_sub(tail.parse().ok()?), size),
        (from, "") => (from.parse().ok()?, size),
        (from, to) => (from.parse().ok()?, to.parse::<u64>().ok()?.saturating_add(1).min(size)),
    };
    (start < end).then(|| (start, end - start))
}

fn http_date(at: std::time::SystemTime) -> String {
    let seconds = at.duration_since(std::time::UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default();
    k8s_openapi::jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or_default())
        .map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .unwrap_or_default()
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(status.canonical_reason().unwrap_or_default()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_are_listed_and_what_is_ours_alone_is_not_served() {
        let root = tempfile::tempdir().unwrap();
        let storage = Storage::new(super::super::StorageOptions {
            root: root.path().to_owned(),
            advertised: "localhost:9090".to_owned(),
            retention_age: std::time::Duration::from_secs(60),
            retention_records: 2,
            algorithm: flux_api::digest::Algorithm::Sha256,
        })
        .unwrap();
        std::fs::create_dir_all(root.path().join("gitrepository/apps")).unwrap();
        std::fs::write(root.path().join("gitrepository/apps/a.tar.gz"), b"0123456789").unwrap();
        std::fs::write(root.path().join(".trees/secret"), b"ours").unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(Arc::new(storage), listener));
        let http = reqwest::Client::new();
        let get = async |path: &str| {
            let answer = http.get(format!("http://{address}{path}")).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, page) = get("/").await;
        assert_eq!(status, 200);
        assert!(page.contains("<a href=\"gitrepository/\">gitrepository/</a>") && !page.contains("trees"));
        assert!(get("/gitrepository/apps/").await.1.contains("a.tar.gz"));
        assert_eq!(get("/gitrepository/apps/a.tar.gz").await, (200, "0123456789".to_owned()));
        for hidden in
            ["/.trees/secret", "/.trees", "/gitrepository/../.trees/secret", "/%2e%2e/etc/passwd", "/none"]
        {
            assert_eq!(get(hidden).await.0, 404, "{hidden}");
        }
        let url = format!("http://{address}/gitrepository/apps/a.tar.gz");
        let part = http.get(&url).header("range", "bytes=2-4").send().await.unwrap();
        assert_eq!((part.status().as_u16(), part.text().await.unwrap().as_str()), (206, "234"));
        let head = http.head(&url).send().await.unwrap();
        assert_eq!(head.headers()["content-length"], "10");
        server.abort();
    }

    #[test]
    fn ranges() {
        assert_eq!(range("bytes=0-3", 10), Some((0, 4)));
        assert_eq!(range("bytes=4-", 10), Some((4, 6)));
        assert_eq!(range("bytes=-3", 10), Some((7, 3)));
        assert_eq!(range("bytes=0-99", 10), Some((0, 10)));
        assert_eq!(range("bytes=10-", 10), None);
        assert_eq!(range("lines=1-2", 10), None);
    }
}

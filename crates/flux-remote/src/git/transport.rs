//! How the two halves of a conversation reach a server, whatever carries them.

use std::pin::Pin;

use tokio::io::AsyncRead;

use super::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    UploadPack,
    ReceivePack,
}

impl Service {
    pub(super) fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "git-upload-pack",
            Service::ReceivePack => "git-receive-pack",
        }
    }
}

pub(super) type Reply<'a> = Pin<Box<dyn AsyncRead + Send + 'a>>;
pub(super) type Answer<'a> = Pin<Box<dyn Future<Output = Result<Reply<'a>, Error>> + Send + 'a>>;

/// A way to a repository. An advertisement is asked for once, requests follow.
pub trait Remote: Send {
    /// What the server says of itself and its refs.
    fn advertisement(&mut self, service: Service) -> Answer<'_>;

    /// Sends `body` and returns the reply. Stateless carriers send it as a request of its own.
    fn request(&mut self, service: Service, body: Vec<u8>) -> Answer<'_>;

    /// Whether each request stands alone, so that what was said before must be said again.
    fn is_stateless(&self) -> bool;
}
